//! A leader on a node that is cordoned moves before anybody evicts it.

use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::json;

use crate::PATIENCE;
use crate::group::{ACCOUNT, Group, now, pod_spec};
use crate::journal::Event;

impl Group {
    /// What `soloist manifests --leave-cordoned-node` adds.
    async fn allow_to_leave_a_cordoned_node(&self) {
        self.allow("", "pods", &["get", "list"]).await;
        let rule = PolicyRule {
            api_groups: Some(vec![String::new()]),
            resources: Some(vec!["nodes".into()]),
            verbs: vec!["get".into(), "watch".into()],
            ..PolicyRule::default()
        };
        let account = format!("system:serviceaccount:{}:{ACCOUNT}", self.namespace);
        let plane = self.cluster.plane();
        plane.allow_in_cluster(&account, vec![rule]).await.unwrap();
    }

    fn starts(&self) -> usize {
        self.events().into_iter().filter(Event::is_start).count()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cordoned_nodes_leader_moves_before_any_eviction_and_its_drain_moves_nothing_twice() {
    let Some(group) = Group::create("cordoned").await else {
        return;
    };
    group.allow_to_leave_a_cordoned_node().await;
    let mut spec = pod_spec();
    let variables = spec["containers"][0]["env"].as_array_mut().unwrap();
    variables.push(json!({ "name": "SOLOIST_LEAVE_CORDONED_NODE", "value": "true" }));
    group.deploy(3, spec).await;
    group.await_ready(3).await;
    let first = group.await_event(Event::is_start).await;
    let node = group.node_of(&first.identity).await;

    let cordoned = now();
    group.cluster.cordon(node, true).await.unwrap();
    let next = group
        .await_event(|event| event.is_start_after(&first))
        .await;
    let heirs = group.node_of(&next.identity).await;
    assert_ne!(heirs.name(), node.name());
    let former = group.pods().get(&first.identity).await.unwrap();
    assert_eq!(former.metadata.deletion_timestamp, None, "not evicted");
    let drained = group
        .await_event(|event| event.what == "drained" && event.token == first.token)
        .await;
    eprintln!(
        "node cordoned: the child had moved after {:?}, {:?} without one",
        next.at - cordoned,
        next.at - drained.at
    );
    let log = group.await_log(&first.identity, "handing over").await;
    assert!(log.contains(node.name()), "{log}");

    // What is evicted now are standbys.
    group.cluster.drain(node, PATIENCE).await.unwrap();
    group.await_ready(3).await;
    assert_eq!(group.leader(), next.identity);
    assert_eq!(group.starts(), 2, "it moved once");
    group.cluster.cordon(node, false).await.unwrap();
    group.await_renewals(3).await;
    assert_eq!(group.starts(), 2, "and does not come back");
    group.end().await;
}
