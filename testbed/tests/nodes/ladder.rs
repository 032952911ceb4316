//! The time that a Pod really has for its end.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ContainerStateTerminated;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use testbed::Node;
use tokio::time::sleep;

use crate::PATIENCE;
use crate::group::{Group, pod_spec};
use crate::journal::Event;

/// Keeps the Pod after its containers have ended, for its status.
pub(crate) const KEPT: &str = "testbed.local/kept";
const GRACE: u32 = 10;
const LOOK: Duration = Duration::from_millis(50);

#[tokio::test(flavor = "multi_thread")]
async fn a_shorter_grace_period_is_kept_by_a_child_that_drains_and_exits_0() {
    let Some(group) = Group::create("hurried").await else {
        return;
    };
    let (end, took) = end_leader(&group, "drain=3000").await;
    assert_eq!(end.exit_code, 0, "{end:?}");
    assert!(took < Duration::from_secs(GRACE.into()), "{took:?}");
    eprintln!(
        "--grace-period={GRACE}, drains for 3 s: exit code 0 after {:.2} s",
        took.as_secs_f64()
    );
    group.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_ignores_sigterm_is_killed_before_the_kubelet_would() {
    let Some(group) = Group::create("ignoring").await else {
        return;
    };
    let (end, took) = end_leader(&group, "deaf").await;
    assert_eq!(end.exit_code, 1, "{end:?}");
    assert!(end.signal.is_none(), "{end:?}");
    eprintln!(
        "--grace-period={GRACE}, ignores SIGTERM: exit code 1 after {:.2} s",
        took.as_secs_f64()
    );
    group.end().await;
}

/// A kubelet that ends its Pods itself has its own time for that, and tells nobody: neither the Pod nor the node says it.
#[tokio::test(flavor = "multi_thread")]
async fn a_nodes_shutdown_is_shorter_and_who_was_told_so_kills_the_child_before_the_kubelet_would()
{
    let limit = Node::SHUTDOWN_GRACE;
    for (is_told, code) in [(true, 1), (false, 137)] {
        let Some(group) = Group::create("shut-down").await else {
            return;
        };
        allow_reading_pods(&group).await;
        let mut spec = pod_spec();
        let container = &mut spec["containers"][0];
        container["args"]
            .as_array_mut()
            .unwrap()
            .push("deaf".into());
        if is_told {
            let grace = format!("{}s", limit.as_secs());
            let variable = json!({ "name": "SOLOIST_KUBELET_GRACE_PERIOD", "value": grace });
            container["env"].as_array_mut().unwrap().push(variable);
        }
        group.deploy(3, spec).await;
        group.await_ready(3).await;
        let leader = group.await_event(Event::is_start).await.identity;
        let node = group.node_of(&leader).await;
        set_finalizers(&group, &leader, &[KEPT]).await;
        node.shut_down(true).unwrap();
        let began = Instant::now();
        let end = await_end(&group, &leader).await;
        let took = began.elapsed();
        eprintln!(
            "a node's shutdown, {limit:?}, ignores SIGTERM, {}: exit code {} after {:.2} s",
            if is_told {
                "told of it"
            } else {
                "not told of it"
            },
            end.exit_code,
            took.as_secs_f64()
        );
        assert_eq!(end.exit_code, code, "{end:?}");
        assert_eq!(took < limit, is_told, "{took:?}");
        set_finalizers(&group, &leader, &[]).await;
        node.shut_down(false).unwrap();
        group.end().await;
    }
}

async fn allow_reading_pods(group: &Group) {
    group.allow("", "pods", &["get"]).await;
}

/// How the container of a Pod has ended, which stays until then.
pub(crate) async fn await_end(group: &Group, pod: &str) -> ContainerStateTerminated {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let seen = group.pods().get(pod).await.unwrap();
        let status = seen.status.and_then(|s| s.container_statuses?.pop());
        if let Some(ended) = status.and_then(|status| status.state?.terminated) {
            return ended;
        }
        assert!(Instant::now() < deadline, "{pod} does not end");
        sleep(LOOK).await;
    }
}

/// Deletes the leader's Pod, with less time than its manifest says; how its container ended, and after how long.
async fn end_leader(group: &Group, child: &str) -> (ContainerStateTerminated, Duration) {
    allow_reading_pods(group).await;
    let leader = group.start_three(&[child], "standard").await.identity;
    set_finalizers(group, &leader, &[KEPT]).await;
    let hurried = DeleteParams::default().grace_period(GRACE);
    group.pods().delete(&leader, &hurried).await.unwrap();
    let began = Instant::now();
    let end = await_end(group, &leader).await;
    let took = began.elapsed();
    set_finalizers(group, &leader, &[]).await;
    (end, took)
}

pub(crate) async fn set_finalizers(group: &Group, pod: &str, finalizers: &[&str]) {
    let change = Patch::Merge(json!({ "metadata": { "finalizers": finalizers } }));
    let how = PatchParams::default();
    group.pods().patch(pod, &how, &change).await.unwrap();
}
