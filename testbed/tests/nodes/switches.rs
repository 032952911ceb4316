//! Planned switches between real Pods, ordered as `kubectl annotate lease` does.

use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde_json::json;

use crate::group::Group;

const HANDOVERS: usize = 10;

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
