//! What happens to nodes.

use std::time::Duration;

use serde_json::json;

use crate::{
    PATIENCE,
    group::{Group, now, pod_spec},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_leaders_node_that_is_cut_off_loses_its_child_before_the_next_one_starts() {
    let Some(group) = Group::create("cut-off").await else {
        return;
    };
    let first = group.start_three(&["deaf"], "standard").await;
    let node = group.node_of(&first.identity).await;
    let cut = now();
    group.cluster.cut_off(node).unwrap();
    let asked = group
        .await_event(|event| event.what == "TERM" && event.token == first.token)
        .await;
    let next = group
        .await_event(|event| event.is_start_after(&first))
        .await;
    let (asked_after, gap) = (asked.at - cut, next.at - cut);
    // Renewed every 5 s: the renew deadline of 10 s, and the lease of 15 s, are counted from the last one.
    assert!(asked_after > Duration::from_secs(4), "{asked_after:?}");
    assert!(gap > Duration::from_secs(9), "{gap:?}");
    group
        .cluster
        .wait_until_node(node, false, PATIENCE)
        .await
        .unwrap();
    group.cluster.heal(node).unwrap();
    group
        .cluster
        .wait_until_node(node, true, PATIENCE)
        .await
        .unwrap();
    group.await_log(&first.identity, "to=Follower").await;
    assert_eq!(group.leader(), next.identity);
    group.finish("node cut off", cut, &next).await;
}

/// A frozen child is no second one while it is frozen, but it holds on to what it has: each Pod has a journal of its own here.
#[tokio::test(flavor = "multi_thread")]
async fn a_leaders_node_that_freezes_is_succeeded_and_follows_when_it_goes_on() {
    let Some(group) = Group::create("frozen").await else {
        return;
    };
    let mut spec = pod_spec();
    spec["volumes"] = json!([{ "name": "journal", "emptyDir": {} }]);
    group.deploy(3, spec).await;
    group.await_ready(3).await;
    let first = group.await_holder(|_| true).await;
    let node = group.node_of(&first).await;
    node.freeze().unwrap();
    let next = group.await_holder(|holder| holder != first).await;
    assert_ne!(group.node_of(&next).await.name(), node.name());
    node.thaw().unwrap();
    group.await_log(&first, "to=Follower").await;
    assert_eq!(group.await_holder(|_| true).await, next);
    group.cluster.wait_until_ready(PATIENCE).await.unwrap();
    group.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_kubelet_changes_nothing_for_who_leads() {
    let Some(group) = Group::create("kubelet").await else {
        return;
    };
    let first = group.start_three(&[], "low-load").await;
    let node = group.node_of(&first.identity).await;
    node.stop_kubelet();
    group
        .cluster
        .wait_until_node(node, false, PATIENCE)
        .await
        .unwrap();
    node.start_kubelet().unwrap();
    group
        .cluster
        .wait_until_node(node, true, PATIENCE)
        .await
        .unwrap();
    group.finish_without_a_gap("kubelet stopped", &first).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_node_hands_over_to_the_other_one() {
    let Some(group) = Group::create("drained").await else {
        return;
    };
    let first = group.start_three(&[], "standard").await;
    let node = group.node_of(&first.identity).await;
    let drained = now();
    group.cluster.drain(node, PATIENCE).await.unwrap();
    let next = group
        .await_event(|event| event.is_start_after(&first))
        .await;
    group.await_ready(3).await;
    assert_ne!(group.node_of(&group.leader()).await.name(), node.name());
    group.cluster.cordon(node, false).await.unwrap();
    group.finish("node drained", drained, &next).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_api_server_costs_no_leadership() {
    let Some(group) = Group::create("restarted").await else {
        return;
    };
    let first = group.start_three(&[], "low-load").await;
    group.cluster.restart_apiserver().await.unwrap();
    group.cluster.wait_until_ready(PATIENCE).await.unwrap();
    group.await_ready(3).await;
    group
        .finish_without_a_gap("API server restarted", &first)
        .await;
}
