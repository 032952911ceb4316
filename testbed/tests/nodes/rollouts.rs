//! Rolling updates: the child moves once in each, to a Pod that stays.

use kube::ResourceExt;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;

use crate::group::Group;
use crate::journal::Event;

const ROLLOUTS: usize = 10;

#[tokio::test(flavor = "multi_thread")]
async fn in_each_of_ten_rolling_updates_the_child_moves_exactly_once() {
    let Some(group) = Group::create("rollouts").await else {
        return;
    };
    group.allow("", "pods", &["get", "list"]).await;
    group.allow("apps", "replicasets", &["list"]).await;
    let mut leader = group.start_three(&[], "standard").await;
    for number in 1..=ROLLOUTS {
        let listed = group.pods().list(&ListParams::default()).await.unwrap();
        let old: Vec<_> = listed.into_iter().map(|pod| pod.name_any()).collect();
        let change = json!({ "spec": { "template": { "metadata": { "annotations": {
            "version": number.to_string(),
        } } } } });
        let (params, change) = (PatchParams::default(), Patch::Merge(change));
        let deployments = group.deployments();
        deployments.patch("demo", &params, &change).await.unwrap();
        group.await_ready(3).await;
        let next = group
            .await_event(|event| event.is_start() && event.token > leader.token)
            .await;
        assert!(!old.contains(&next.identity), "{next:?} {old:?}");
        let drained = group
            .await_event(|event| event.what == "drained" && event.token == leader.token)
            .await;
        let gap = next.at - drained.at;
        eprintln!("rolling update {number}: {gap:?} without a child");
        leader = next;
    }
    let starts = group.events().into_iter().filter(Event::is_start);
    assert_eq!(starts.count(), ROLLOUTS + 1, "each moved it once");
    group.end().await;
}
