//! What happens to Pods.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;

use crate::{
    group::{Group, now, pod_spec},
    journal::Event,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_leaders_pod_hands_over() {
    let Some(group) = Group::create("deleted").await else {
        return;
    };
    let first = group.start_three(&[], "standard").await;
    let deleted = now();
    group
        .pods()
        .delete(&first.identity, &DeleteParams::default())
        .await
        .unwrap();
    let next = group
        .await_event(|event| event.is_start_after(&first))
        .await;
    let drained = group.await_event(|event| event.what == "drained").await;
    assert_ne!(next.identity, first.identity);
    assert!(drained.at <= next.at, "{drained:?} {next:?}");
    group.finish("Pod deleted", deleted, &next).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_is_deleted_by_force_is_waited_out_until_its_child_is_dead() {
    let Some(group) = Group::create("forced").await else {
        return;
    };
    let first = group.start_three(&["deaf"], "standard").await;
    let deleted = now();
    let by_force = DeleteParams::default().grace_period(0);
    group
        .pods()
        .delete(&first.identity, &by_force)
        .await
        .unwrap();
    let next = group
        .await_event(|event| event.is_start_after(&first))
        .await;
    group.finish("Pod deleted by force", deleted, &next).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_container_comes_back_in_its_pod_without_waiting_for_the_lease() {
    let Some(group) = Group::create("killed").await else {
        return;
    };
    let first = group.start_three(&[], "low-load").await;
    let node = group.node_of(&first.identity).await;
    let container = group.container_of(&first.identity).await;
    let killed = now();
    node.kill_container(&container).unwrap();
    let next = group
        .await_event(|event| event.is_start() && event.at > killed)
        .await;
    assert_eq!(next.identity, first.identity);
    assert!(next.token > first.token, "{next:?}");
    let gap = next.at - killed;
    assert!(
        gap.as_secs() < 40,
        "the lease of 60 s was waited out: {gap:?}"
    );
    group.finish("container killed", killed, &next).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_update_ends_with_a_child_in_a_new_pod() {
    let Some(group) = Group::create("rolled").await else {
        return;
    };
    let first = group.start_three(&[], "standard").await;
    let is_old = |pods: &[String], event: &Event| pods.contains(&event.identity);
    let old: Vec<String> = names(
        group
            .pods()
            .list(&ListParams::default())
            .await
            .unwrap()
            .items,
    );
    let change =
        json!({ "spec": { "template": { "metadata": { "annotations": { "version": "2" } } } } });
    let patch = Patch::Merge(change);
    group
        .deployments()
        .patch("demo", &PatchParams::default(), &patch)
        .await
        .unwrap();
    group.await_ready(3).await;
    let next = group
        .await_event(|event| event.is_start() && !is_old(&old, event))
        .await;
    assert!(next.token > first.token);
    let terms = group
        .events()
        .iter()
        .filter(|event| event.is_start())
        .count();
    eprintln!("rolling update: {terms} terms");
    group.end().await;
}

fn names(pods: Vec<Pod>) -> Vec<String> {
    pods.into_iter()
        .filter_map(|pod| pod.metadata.name)
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_without_rights_says_in_its_log_which_rule_is_missing() {
    let Some(group) = Group::create("rightless").await else {
        return;
    };
    let mut spec = pod_spec();
    spec["serviceAccountName"] = json!("without-rights");
    group.deploy(1, spec).await;
    group.await_ready(1).await;
    let pods = names(
        group
            .pods()
            .list(&ListParams::default())
            .await
            .unwrap()
            .items,
    );
    let log = group.await_log(&pods[0], "may not").await;
    let account = format!("system:serviceaccount:{}:without-rights", group.namespace);
    assert!(log.contains(&account) && log.contains("verbs: ["), "{log}");
    assert!(group.events().is_empty());
    group.end().await;
}
