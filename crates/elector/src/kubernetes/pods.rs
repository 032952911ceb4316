//! What the status of a Pod says of containers that have ended.

use serde_json::Value;
use soloist_core::death::{ContainerEnd, PodReport};
use soloist_core::ids::{InstanceId, PodUid};

/// What soloist leaves in its container's termination message: the kubelet shows it when the container has ended.
const MESSAGE: &str = "soloist instance=";
/// What containerd and others tell of a container that they have lost track of.
const UNKNOWN_CODE: i64 = 255;
/// What containerd and the kubelet call it.
const UNKNOWN_REASONS: [&str; 2] = ["Unknown", "ContainerStatusUnknown"];

/// The line that tells whose container it was; to be in the container's termination message when it ends.
#[must_use]
pub fn termination_message(instance: InstanceId) -> String {
    format!("{MESSAGE}{instance}\n")
}

/// What is proven by this Pod; `None` if it is no Pod.
pub(super) fn report(pod: &Value) -> Option<PodReport> {
    let uid = pod.pointer("/metadata/uid").and_then(Value::as_str)?;
    let of = |list: &str| pod.pointer(list).and_then(Value::as_array);
    let lists = [
        of("/status/containerStatuses"),
        of("/status/initContainerStatuses"),
    ];
    let statuses = lists.into_iter().flatten().flatten();
    let ended = statuses.flat_map(|status| {
        ["/state/terminated", "/lastState/terminated"].map(|path| status.pointer(path))
    });
    Some(PodReport {
        pod: PodUid::new(uid)?,
        ends: ended.flatten().filter_map(end).collect(),
    })
}

fn end(terminated: &Value) -> Option<ContainerEnd> {
    let text = |name: &str| terminated.get(name).and_then(Value::as_str).unwrap_or("");
    let mut lines = text("message").lines();
    let instance = lines.find_map(|line| InstanceId::parse(line.strip_prefix(MESSAGE)?))?;
    let code = terminated.get("exitCode").and_then(Value::as_i64);
    Some(ContainerEnd {
        instance,
        witnessed: code.is_some_and(|code| code != UNKNOWN_CODE)
            && !UNKNOWN_REASONS.contains(&text("reason"))
            // Without it the kubelet has not asked the runtime.
            && !text("containerID").is_empty(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const INSTANCE: InstanceId = InstanceId::from_random(0xfeed);

    fn terminated() -> Value {
        json!({
            "exitCode": 137, "reason": "OOMKilled", "containerID": "containerd://c1",
            "finishedAt": "2026-01-01T00:00:00Z", "message": termination_message(INSTANCE),
        })
    }

    fn pod(status: Value) -> Value {
        json!({ "metadata": { "name": "a", "uid": "u" }, "status": status })
    }

    fn ends(status: Value) -> Vec<ContainerEnd> {
        let report = report(&pod(status)).unwrap();
        assert_eq!(report.pod.as_str(), "u");
        report.ends
    }

    const END: ContainerEnd = ContainerEnd {
        instance: INSTANCE,
        witnessed: true,
    };

    #[test]
    fn an_end_is_found_wherever_the_kubelet_tells_it() {
        let now = json!([{ "state": { "terminated": terminated() } }]);
        let before =
            json!([{ "state": { "waiting": {} }, "lastState": { "terminated": terminated() } }]);
        for status in [
            json!({ "containerStatuses": now }),
            json!({ "containerStatuses": before }),
            json!({ "initContainerStatuses": now }),
        ] {
            assert_eq!(ends(status.clone()), [END], "{status}");
        }
        let mut after_the_programs_own = terminated();
        let message = format!("out of disk\n{}", termination_message(INSTANCE));
        after_the_programs_own["message"] = message.into();
        let status = json!([{ "state": { "terminated": after_the_programs_own } }]);
        assert_eq!(ends(json!({ "containerStatuses": status })), [END]);
    }

    #[test]
    fn an_end_that_the_runtime_did_not_see_is_told_as_such() {
        for (field, value) in [
            ("exitCode", json!(255)),
            ("exitCode", json!(null)),
            ("reason", json!("ContainerStatusUnknown")),
            ("reason", json!("Unknown")),
            ("containerID", json!(null)),
            ("containerID", json!("")),
        ] {
            let mut lost = terminated();
            lost[field] = value.clone();
            let status = json!([{ "state": { "terminated": lost } }]);
            let found = ends(json!({ "containerStatuses": status }));
            let unseen = ContainerEnd {
                witnessed: false,
                ..END
            };
            assert_eq!(found, [unseen], "{field}: {value}");
        }
    }

    #[test]
    fn what_others_write_into_a_status_is_no_end() {
        for status in [
            json!(null),
            json!({ "phase": "Failed", "reason": "NodeLost" }),
            json!({ "phase": "Failed", "conditions": [{ "type": "DisruptionTarget", "status": "True" }] }),
            json!({ "containerStatuses": [{ "state": { "running": {} } }] }),
            json!({ "containerStatuses": [{ "state": { "terminated": { "exitCode": 0, "message": "bye" } } }] }),
            json!({ "message": termination_message(INSTANCE) }),
        ] {
            assert_eq!(ends(status.clone()), [], "{status}");
        }
        assert_eq!(report(&json!({ "kind": "Status" })), None);
    }

    #[test]
    fn a_line_must_be_the_whole_line() {
        for message in [
            "soloist instance=",
            "soloist instance=feed",
            "x soloist instance=0000000000000000000000000000feed",
            "soloist instance=0000000000000000000000000000feed x",
        ] {
            let mut odd = terminated();
            odd["message"] = message.into();
            let status = json!([{ "state": { "terminated": odd } }]);
            assert_eq!(
                ends(json!({ "containerStatuses": status })),
                [],
                "{message}"
            );
        }
    }
}
