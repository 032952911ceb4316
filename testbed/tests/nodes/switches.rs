//! Planned switches between real Pods, ordered as `kubectl annotate lease` does.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;

use crate::group::{Group, now};

const HANDOVERS: usize = 10;
/// Three leases of 10 s, and more.
const LEASES: Duration = Duration::from_secs(32);
/// Half a lease, so that none was waited out.
const AT_ONCE: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread")]
async fn ten_handovers_go_to_the_pod_that_each_names() {
    let Some(group) = Group::create("switched").await else {
        return;
    };
    let mut leader = group.start_three(&[], "standard").await;
    let leases: Api<Lease> = Api::namespaced(group.client.clone(), &group.namespace);
    for number in 1..=HANDOVERS {
        let listed = group.pods().list(&ListParams::default()).await.unwrap();
        let mut standbys: Vec<_> = listed.into_iter().map(|pod| pod.name_any()).collect();
        standbys.retain(|pod| *pod != leader.identity);
        let heir = &standbys[number % standbys.len()];
        let lease = leases.get("demo").await.unwrap();
        let term = lease.spec.unwrap().lease_transitions.unwrap();
        let order = json!({ "metadata": { "annotations": {
            "soloist.dev/handover": format!("term={term} to={heir}"),
        } } });
        let (params, order) = (PatchParams::default(), Patch::Merge(order));
        leases.patch("demo", &params, &order).await.unwrap();
        let next = group
            .await_event(|event| event.is_start_after(&leader))
            .await;
        assert_eq!(next.identity, *heir);
        let drained = group
            .await_event(|event| {
                event.what == "drained"
                    && event.identity == leader.identity
                    && event.token == leader.token
            })
            .await;
        assert!(drained.at <= next.at, "{drained:?} {next:?}");
        let gap = next.at - drained.at;
        eprintln!("handover {number} to a named Pod: {gap:?} without a child");
        leader = next;
    }
    let starts = group
        .events()
        .into_iter()
        .filter(crate::journal::Event::is_start);
    assert_eq!(starts.count(), HANDOVERS + 1);
    group.end().await;
}

/// What `kubectl annotate lease demo soloist.dev/pause=…` does; nothing takes the pause away.
async fn order_pause(group: &Group, pause: Option<&str>) {
    let leases: Api<Lease> = Api::namespaced(group.client.clone(), &group.namespace);
    let order = json!({ "metadata": { "annotations": { "soloist.dev/pause": pause } } });
    let (params, order) = (PatchParams::default(), Patch::Merge(order));
    leases.patch("demo", &params, &order).await.unwrap();
}

fn starts(group: &Group) -> usize {
    let starts = group.events().into_iter();
    starts.filter(crate::journal::Event::is_start).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_pause_nobody_succeeds_a_killed_leader_for_several_leases_and_then_somebody_at_once() {
    let Some(group) = Group::create("paused").await else {
        return;
    };
    let first = group.start_three(&[], "high-availability").await;
    order_pause(&group, Some("keep")).await;
    group.await_log(&first.identity, "nobody takes over").await;
    // Its container comes back in the same Pod.
    let node = group.node_of(&first.identity).await;
    let container = group.container_of(&first.identity).await;
    node.kill_container(&container).unwrap();
    tokio::time::sleep(LEASES).await;
    assert_eq!(starts(&group), 1, "{:?}", group.events());
    let resumed = now();
    order_pause(&group, None).await;
    let next = group
        .await_event(|event| event.is_start_after(&first))
        .await;
    let gap = next.at.saturating_sub(resumed);
    eprintln!("resumed after {LEASES:?}: {gap:?} to the next child");
    assert!(gap < AT_ONCE, "{gap:?}");
    group.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_that_stops_is_obeyed_in_a_drain_and_nobody_leads_until_it_is_resumed() {
    let Some(group) = Group::create("migrated").await else {
        return;
    };
    let first = group
        .start_three(&["drain=4000"], "high-availability")
        .await;
    let leases: Api<Lease> = Api::namespaced(group.client.clone(), &group.namespace);
    let term = leases.get("demo").await.unwrap().spec.unwrap();
    let order = json!({ "metadata": { "annotations": {
        "soloist.dev/handover": format!("term={}", term.lease_transitions.unwrap()),
    } } });
    let (params, order) = (PatchParams::default(), Patch::Merge(order));
    leases.patch("demo", &params, &order).await.unwrap();
    group
        .await_log(&first.identity, "asking the child to stop")
        .await;
    order_pause(&group, Some("stop")).await;
    let drained = group
        .await_event(|event| event.what == "drained" && event.token == first.token)
        .await;
    tokio::time::sleep(LEASES).await;
    assert_eq!(starts(&group), 1, "{:?}", group.events());
    let resumed = now();
    assert!(resumed > drained.at);
    order_pause(&group, None).await;
    let next = group
        .await_event(|event| event.is_start_after(&first))
        .await;
    let gap = next.at.saturating_sub(resumed);
    eprintln!("resumed after a drain and {LEASES:?}: {gap:?} to the next child");
    assert!(gap < AT_ONCE, "{gap:?}");
    group.end().await;
}
