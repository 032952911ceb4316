//! Who leads next, and when.

use futures_util::future::select_all;
use serde_json::json;
use soloist_elector::clock;
use soloist_elector::core::election::Claim;
use soloist_elector::kubernetes::KubernetesStore;
use soloist_elector::testing::{Fixture, in_time};

use crate::harness::{Cluster, LEASE, Standby, USER, elector, lead, quick, sees};

#[tokio::test(flavor = "multi_thread")]
async fn of_thirty_candidates_at_once_one_creates_the_lease_and_one_leads() {
    let Some(cluster) = Cluster::shared().await else {
        return;
    };
    let mut electors = Vec::new();
    for n in 0..30 {
        electors.push(cluster.elector(&format!("candidate-{n}")).await);
    }
    let waits = electors.iter().map(|e| Box::pin(e.lead()));
    let (term, winner, others) = in_time(select_all(waits)).await;
    let term = term.unwrap();
    let leader = electors[winner].identity().as_str().to_owned();
    for (index, other) in electors.iter().enumerate() {
        if index != winner {
            sees(other, &leader).await;
            assert_eq!(other.leadership().borrow().term, None);
        }
    }
    assert!(term.is_valid());
    drop(others);

    let created = |requests: &[testbed::Request]| {
        requests
            .iter()
            .filter(|r| r.namespace == cluster.namespace && r.resource == "leases")
            .filter(|r| r.verb == "create" && r.code == 201)
            .count()
    };
    let requests = cluster.plane.requests().unwrap();
    assert_eq!(created(&requests), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_is_taken_over_at_once() {
    let Some(cluster) = Cluster::shared().await else {
        return;
    };
    let first = cluster.elector("first").await;
    let term = lead(&first).await;
    let standby = Standby::beside(cluster.elector("second").await, "first").await;
    let valid_until = term.valid_until();
    let token = term.token();
    term.finish();
    let (next, _second) = standby.leads().await;
    assert_eq!(next.claim(), Claim::Released);
    assert!(clock::now() < valid_until);
    assert!(next.token() > token);
    assert_eq!(next.number().get(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_dies_is_succeeded_when_its_lease_has_run_out() {
    let Some(cluster) = Cluster::shared().await else {
        return;
    };
    let dead = cluster.leader_that_dies("dead").await;
    let term = lead(&cluster.elector("standby").await).await;
    assert_eq!(term.claim(), Claim::Expired);
    assert!(clock::now() >= dead.valid_until);
    assert!(term.token() > dead.token);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_lease_is_lost_at_once_and_waited_out_by_the_others() {
    let Some(cluster) = Cluster::shared().await else {
        return;
    };
    let leader = cluster.elector("leader").await;
    let term = lead(&leader).await;
    let standby = Standby::beside(cluster.elector("standby").await, "leader").await;
    cluster.delete().await;
    in_time(term.cancelled()).await;
    assert!(clock::now() < term.valid_until() - quick().kill_margin());
    let (next, _standby) = standby.leads().await;
    assert_eq!(next.claim(), Claim::WaitedOut);
    assert!(clock::now() >= term.valid_until());
    assert!(next.token() > term.token());
    assert_eq!(next.number().get(), term.number().get() + 1);
    term.finish();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operators_edit_of_the_holder_is_lost_at_once_and_waited_out_by_the_others() {
    for holder in [None, Some("operator")] {
        let Some(cluster) = Cluster::shared().await else {
            return;
        };
        let leader = cluster.elector("leader").await;
        let term = lead(&leader).await;
        let standby = Standby::beside(cluster.elector("standby").await, "leader").await;
        cluster.set_holder(holder).await;
        in_time(term.cancelled()).await;
        assert!(clock::now() < term.valid_until() - quick().kill_margin());
        let (next, _standby) = standby.leads().await;
        assert!(clock::now() >= term.valid_until(), "{holder:?}");
        assert!(next.token() > term.token());
        term.finish();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shortened_duration_does_not_shorten_what_the_holder_was_promised() {
    let Some(cluster) = Cluster::shared().await else {
        return;
    };
    let dead = cluster.leader_that_dies("dead").await;
    let patch = json!({"spec": {"leaseDurationSeconds": 1}});
    cluster.patch(patch).await;
    let term = lead(&cluster.elector("standby").await).await;
    assert!(clock::now() >= dead.valid_until);
    assert!(term.token() > dead.token);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_annotation_by_somebody_else_costs_nothing() {
    let Some(cluster) = Cluster::shared().await else {
        return;
    };
    let leader = cluster.elector("leader").await;
    let term = lead(&leader).await;
    for note in ["one", "two", "three"] {
        let patch = json!({"metadata": {"annotations": {"note": note}}});
        cluster.patch(patch).await;
        clock::sleep(quick().renew_interval()).await.unwrap();
        assert!(term.is_valid());
    }
    let annotations = cluster.lease().await.metadata.annotations.unwrap();
    assert_eq!(annotations["note"], "three");
    assert!(term.is_valid());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_replicas_with_one_identity_never_lead_together() {
    let Some(cluster) = Cluster::shared().await else {
        return;
    };
    let first = cluster.elector("same").await;
    let term = lead(&first).await;
    let standby = Standby::beside(cluster.elector("same").await, "same").await;
    let lease = quick().lease().get();
    clock::sleep(lease + lease / 2).await.unwrap();
    assert!(term.is_valid() && standby.still_waits());
    let token = term.token();
    term.finish();
    let (next, _second) = standby.leads().await;
    assert!(next.token() > token);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drain_longer_than_the_lease_keeps_it() {
    let Some(cluster) = Cluster::shared().await else {
        return;
    };
    let leader = cluster.elector("leader").await;
    let term = lead(&leader).await;
    let standby = Standby::beside(cluster.elector("standby").await, "leader").await;
    let shutdown = tokio::spawn(leader.shutdown());
    in_time(term.cancelled()).await;
    let lease = quick().lease().get();
    clock::sleep(lease + lease / 2).await.unwrap();
    assert!(standby.still_waits() && !shutdown.is_finished());
    term.finish();
    in_time(shutdown).await.unwrap().unwrap();
    let (next, _standby) = standby.leads().await;
    assert_eq!(next.claim(), Claim::Released);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_brings_its_own_client() {
    let Some(cluster) = Cluster::shared().await else {
        return;
    };
    let client = cluster.plane.client(USER, None).await.unwrap();
    let store = KubernetesStore::with_client(client.clone(), &cluster.namespace, LEASE).unwrap();
    let first = elector(store, "first", quick());
    let term = lead(&first).await;
    let standby = Standby::beside(cluster.elector("second").await, "first").await;
    term.finish();
    let (_term, _second) = standby.leads().await;
    let wrong = KubernetesStore::with_client(client, "Not a name", LEASE);
    assert!(wrong.is_err());
}
