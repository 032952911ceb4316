//! Leaders that die on the nodes, in Pods that do not come back: the kubelet reports their death, and nobody waits for a lease.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ContainerStateTerminated, Pod};
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use testbed::Node;
use tokio::time::sleep;

use crate::PATIENCE;
use crate::group::{Group, now, pod_spec};
use crate::journal::Event;

const ROUNDS: usize = 3;
const STANDBYS: usize = 2;
/// From a death to the next child.
const GOAL: Duration = Duration::from_secs(2);
/// A lease of 15 s is waited out for at least as long as is left of it right before a renewal.
const WAITED_OUT: Duration = Duration::from_secs(9);

/// Takes all the memory that the container has left, from inside its cgroup, and has its first process killed for it.
const HOG: &str = r#"
for p in /proc/[0-9]*; do
    if grep -q "$0" $p/cgroup && grep -q "^NSpid:.*[^0-9]1$" $p/status; then pid=${p#/proc/}; fi
done 2>/dev/null
echo 1000 > /proc/$pid/oom_score_adj
group=$(sed -n 's/^[0-9]*:memory:/memory/p; s/^0::\(..*\)/\1/p' /proc/$pid/cgroup | head -n 1)
echo $$ > /sys/fs/cgroup/$group/cgroup.procs
exec tail /dev/zero
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_dies_for_good_is_succeeded_within_two_seconds() {
    let Some(mut pods) = Pods::start("deaths", &[]).await else {
        return;
    };
    pods.group.allow("", "pods", &["watch"]).await;
    let mut gaps = Vec::new();
    let mut leader = pods.first().await;
    for round in 1..=ROUNDS {
        type Fault = fn(&Node, &str);
        let faults: [(Fault, &str); 2] = [(crash, "Error"), (exhaust_memory, "OOMKilled")];
        for (fault, reason) in faults {
            let node = pods.group.node_of(&leader.identity).await;
            let (died, end) = pods.die(node, &leader, fault).await;
            let next = pods.next(&leader).await;
            let gap = next.at.saturating_sub(died);
            assert_eq!(end.reason.as_deref(), Some(reason));
            eprintln!("{reason} {round}: {gap:?} to the next child");
            gaps.push(gap);
            pods.replace(&leader).await;
            leader = next;
        }
    }
    gaps.sort();
    let median = gaps[gaps.len() / 2];
    eprintln!(
        "deaths that are reported: median {median:?}, worst {:?}",
        gaps.last()
    );
    assert!(median < GOAL, "{gaps:?}");
    pods.group.end().await;
}

/// A kubelet that evicts sends SIGTERM and waits for two seconds. A child that ends by then is released, and so is one that soloist
/// kills by then, because it was told how long it has. Nothing has to be reported.
#[tokio::test(flavor = "multi_thread")]
async fn an_evicted_leader_that_ends_in_time_is_succeeded_within_two_seconds() {
    let in_time = json!([{ "name": "SOLOIST_KUBELET_GRACE_PERIOD", "value": "2s" }]);
    for (what, words, variables) in [
        ("ends", &[][..], json!([])),
        ("is killed in time", &["deaf"], in_time),
    ] {
        let Some(mut pods) = Pods::with("evicting", words, &variables).await else {
            return;
        };
        pods.group.allow("", "pods", &["get"]).await;
        let mut leader = pods.first().await;
        let mut gaps = Vec::new();
        for _ in 0..ROUNDS {
            let (next, gap) = pods.evict(&leader).await;
            gaps.push(gap);
            pods.replace(&leader).await;
            leader = next;
        }
        gaps.sort();
        let (median, worst) = (gaps[gaps.len() / 2], gaps[gaps.len() - 1]);
        eprintln!(
            "evicted, {what}: median {median:?}, worst {worst:?} from SIGTERM to the next child"
        );
        assert!(median < GOAL && worst < WAITED_OUT, "{what}: {gaps:?}");
        pods.group.end().await;
    }
}

/// Its child does not care about SIGTERM, so that nothing is released.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_its_kubelet_evicts_is_succeeded_when_it_is_dead() {
    let Some(mut pods) = Pods::start("evicted", &["deaf"]).await else {
        return;
    };
    pods.group.allow("", "pods", &["watch"]).await;
    let mut leader = pods.first().await;
    let mut reported = Vec::new();
    for round in 1..=ROUNDS {
        let (next, gap) = pods.evict(&leader).await;
        let status = pods
            .group
            .pods()
            .get_status(&leader.identity)
            .await
            .unwrap();
        let status = status.status.unwrap();
        assert_eq!(status.reason.as_deref(), Some("Evicted"));
        // A kubelet may have removed an evicted Pod's container before it has told of its end. Then nothing is proven.
        let end = status
            .container_statuses
            .and_then(|mut all| all.pop()?.state?.terminated);
        let reason = end.as_ref().and_then(|end| end.reason.as_deref());
        eprintln!(
            "evicted {round}: {gap:?} from SIGTERM to the next child, reported as {}",
            reason.unwrap_or("nothing")
        );
        let message = end.as_ref().and_then(|end| end.message.as_deref());
        match message.is_some_and(|text| text.contains("soloist instance=")) {
            true => reported.push(gap),
            false => assert!(gap > WAITED_OUT, "{gap:?}: {end:?}"),
        }
        pods.replace(&leader).await;
        leader = next;
    }
    reported.sort();
    let median = reported.get(reported.len() / 2);
    eprintln!(
        "evictions: {} of {ROUNDS} reported with the end of their container, median {median:?}",
        reported.len()
    );
    // Its kubelet gives it a second, or what it takes for one.
    let limit = GOAL + Duration::from_secs(2);
    assert!(median.is_none_or(|median| *median < limit), "{reported:?}");
    pods.group.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_right_to_watch_pods_a_dead_leader_is_waited_out() {
    let Some(mut pods) = Pods::start("unseen", &[]).await else {
        return;
    };
    let leader = pods.first().await;
    let node = pods.group.node_of(&leader.identity).await;
    let (died, _) = pods.die(node, &leader, crash).await;
    let next = pods.next(&leader).await;
    let gap = next.at.saturating_sub(died);
    assert!(gap > WAITED_OUT, "{gap:?}");
    pods.group
        .finish("dead, and not known to be", died, &next)
        .await;
}

/// The Pod is deleted by force, as people do, while its child lives on.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_cut_off_and_deleted_is_waited_out() {
    let Some(mut pods) = Pods::start("cut-off-deaths", &["deaf"]).await else {
        return;
    };
    pods.group.allow("", "pods", &["watch"]).await;
    let leader = pods.first().await;
    let node = pods.group.node_of(&leader.identity).await;
    let cut = now();
    pods.group.cluster.cut_off(node).unwrap();
    let by_force = DeleteParams::default().grace_period(0);
    pods.group
        .pods()
        .delete(&leader.identity, &by_force)
        .await
        .unwrap();
    let next = pods.next(&leader).await;
    let gap = next.at.saturating_sub(cut);
    assert!(gap > WAITED_OUT, "{gap:?}");
    pods.group.cluster.heal(node).unwrap();
    pods.group
        .cluster
        .wait_until_node(node, true, PATIENCE)
        .await
        .unwrap();
    pods.group
        .finish("node cut off, Pod deleted by force", cut, &next)
        .await;
}

/// The container ends, and what it shared its process namespace with does not prove that all in it has.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_shares_its_process_namespace_is_waited_out() {
    let Some(mut pods) = Pods::of("shared", &[], &json!({ "shareProcessNamespace": true })).await
    else {
        return;
    };
    pods.group.allow("", "pods", &["watch"]).await;
    let leader = pods.first().await;
    let node = pods.group.node_of(&leader.identity).await;
    let (died, _) = pods.die(node, &leader, crash).await;
    let next = pods.next(&leader).await;
    let gap = next.at.saturating_sub(died);
    assert!(gap > WAITED_OUT, "{gap:?}");
    pods.group
        .finish("dead, with a shared process namespace", died, &next)
        .await;
}

fn crash(node: &Node, container: &str) {
    node.kill_container(container).unwrap();
}

fn exhaust_memory(node: &Node, container: &str) {
    let id = container.trim_start_matches("containerd://");
    // It is killed itself in the end.
    let _ = node.run("sh", &["-c", HOG, id]);
}

/// Single Pods that nobody starts again.
struct Pods {
    group: Group,
    spec: Value,
    made: usize,
}

impl Pods {
    async fn start(prefix: &str, words: &[&str]) -> Option<Self> {
        Self::of(prefix, words, &json!({})).await
    }

    async fn with(prefix: &str, words: &[&str], variables: &Value) -> Option<Self> {
        let mut pods = Self::start(prefix, words).await?;
        let container = &mut pods.spec["containers"][0];
        let all = container["env"].as_array_mut().unwrap();
        all.extend(variables.as_array().unwrap().iter().cloned());
        Some(pods)
    }

    async fn of(prefix: &str, words: &[&str], more: &Value) -> Option<Self> {
        let group = Group::create(prefix).await?;
        let mut spec = pod_spec();
        spec["restartPolicy"] = json!("Never");
        for (field, value) in more.as_object().unwrap() {
            spec[field] = value.clone();
        }
        let scratch = json!({ "name": "scratch", "emptyDir": { "sizeLimit": "1Mi" } });
        spec["volumes"].as_array_mut().unwrap().push(scratch);
        let container = &mut spec["containers"][0];
        container["resources"] = json!({ "limits": { "memory": "64Mi" } });
        let arguments = container["args"].as_array_mut().unwrap();
        arguments.extend(words.iter().map(|word| json!(word)));
        let mounts = container["volumeMounts"].as_array_mut().unwrap();
        mounts.push(json!({ "name": "scratch", "mountPath": "/scratch" }));
        Some(Self {
            group,
            spec,
            made: 0,
        })
    }

    /// The first leader, and standbys on both nodes.
    async fn first(&mut self) -> Event {
        self.make().await;
        let first = self.group.await_event(Event::is_start).await;
        for _ in 0..STANDBYS {
            self.make().await;
        }
        first
    }

    /// Returns when it stands by.
    async fn make(&mut self) {
        self.made += 1;
        let name = format!("demo-{}", self.made);
        let pod = json!({
            "metadata": { "name": name, "labels": { "app": "demo" } },
            "spec": self.spec,
        });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let pods = self.group.pods();
        pods.create(&PostParams::default(), &pod).await.unwrap();
        self.group.await_log(&name, "the leader is leader=").await;
    }

    /// The next one's start.
    async fn next(&self, leader: &Event) -> Event {
        self.group
            .await_event(|event| event.is_start_after(leader))
            .await
    }

    /// When it was done, and what the kubelet says about it.
    async fn die(
        &self,
        node: &'static Node,
        leader: &Event,
        how: fn(&Node, &str),
    ) -> (Duration, ContainerStateTerminated) {
        let container = self.group.container_of(&leader.identity).await;
        let began = now();
        tokio::task::spawn_blocking(move || how(node, &container));
        let deadline = Instant::now() + PATIENCE;
        loop {
            let pod = self.group.pods().get(&leader.identity).await.unwrap();
            let statuses = pod.status.and_then(|status| status.container_statuses);
            let state = statuses.and_then(|mut statuses| statuses.pop()?.state);
            if let Some(ended) = state.and_then(|state| state.terminated) {
                return (began, ended);
            }
            assert!(Instant::now() < deadline, "{leader:?} does not die");
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// It has written more than it may. The next start, and the time to it from SIGTERM.
    async fn evict(&self, leader: &Event) -> (Event, Duration) {
        let group = &self.group;
        let node = group.node_of(&leader.identity).await;
        let pod = group.pods().get(&leader.identity).await.unwrap();
        let file = format!(
            "/var/lib/kubelet/pods/{}/volumes/kubernetes.io~empty-dir/scratch/big",
            pod.metadata.uid.unwrap()
        );
        let copy = ["if=/dev/zero", &format!("of={file}"), "bs=1M", "count=8"];
        node.run("dd", &copy).unwrap();
        let is_asked = |event: &Event| event.what == "TERM" && event.token == leader.token;
        let asked = group.await_event(is_asked).await;
        let next = self.next(leader).await;
        let gap = next.at.saturating_sub(asked.at);
        (next, gap)
    }

    /// Another standby in its place.
    async fn replace(&mut self, dead: &Event) {
        let gone = DeleteParams::default();
        self.group
            .pods()
            .delete(&dead.identity, &gone)
            .await
            .unwrap();
        self.make().await;
    }
}
