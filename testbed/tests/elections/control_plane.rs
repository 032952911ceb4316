//! The control plane itself fails.

use soloist_elector::clock;
use soloist_elector::testing::in_time;

use crate::harness::{Cluster, Standby, elector, lead, quick, standard};

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_api_server_ends_the_leadership_in_time_and_it_comes_back_with_the_server() {
    let Some(cluster) = Cluster::own().await else {
        return;
    };
    let leader = cluster.elector("leader").await;
    let term = lead(&leader).await;
    cluster.plane.kill_apiserver();
    in_time(term.cancelled()).await;
    assert!(clock::now() < term.valid_until() - quick().guard_margin());
    let token = term.token();
    term.finish();
    cluster.plane.start_apiserver().await.unwrap();
    assert!(lead(&leader).await.token() > token);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_etcd_ends_the_leadership_in_time_and_it_comes_back_when_it_goes_on() {
    let Some(cluster) = Cluster::own().await else {
        return;
    };
    let leader = cluster.elector("leader").await;
    let term = lead(&leader).await;
    cluster.plane.freeze_etcd().unwrap();
    in_time(term.cancelled()).await;
    assert!(clock::now() < term.valid_until() - quick().guard_margin());
    let token = term.token();
    term.finish();
    cluster.plane.thaw_etcd().unwrap();
    assert!(lead(&leader).await.token() > token);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_the_api_server_costs_a_standard_lease_nothing() {
    let Some(cluster) = Cluster::own().await else {
        return;
    };
    let store = cluster.store_as(crate::harness::USER).await;
    let leader = elector(store, "leader", standard());
    let term = lead(&leader).await;
    let store = cluster.store_as(crate::harness::USER).await;
    let standby = elector(store, "standby", standard());
    let standby = Standby::beside(standby, "leader").await;
    // Old versions are forgotten, so every watch has to begin anew.
    cluster.plane.expire_watches().await.unwrap();
    clock::sleep(standard().renew_interval()).await.unwrap();
    assert!(term.is_valid() && standby.still_waits());
    let (token, valid_until) = (term.token(), term.valid_until());
    term.finish();
    let (next, _standby) = standby.leads().await;
    assert!(next.token() > token);
    assert!(clock::now() < valid_until, "the release was not seen");
}
