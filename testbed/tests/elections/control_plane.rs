//! The control plane itself fails.

use serde_json::json;
use soloist_elector::testing::{Fixture, in_time};
use soloist_elector::{Elector, clock};

use crate::harness::{Cluster, Standby, USER, elector, lead, name, quick, standard};

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

/// Nothing bumps the revision, so all that the replicas know is of a future that has not been.
#[tokio::test(flavor = "multi_thread")]
async fn after_etcd_was_set_back_to_a_backup_the_running_replicas_write_again() {
    let Some(cluster) = Cluster::own().await else {
        return;
    };
    let mut replicas = Vec::new();
    for identity in ["first", "second"] {
        let replica = Elector::builder(cluster.store_as(USER).await)
            .identity(name(identity))
            .timings(quick())
            .on_started_leading(|term| async move { term.cancelled().await });
        replicas.push(replica.spawn().unwrap());
    }
    for replica in &replicas {
        let mut leadership = replica.leadership();
        in_time(leadership.wait_for(|l| l.leader.is_some()))
            .await
            .unwrap();
    }
    cluster.back_up().await;
    for n in 0..30 {
        let touch = json!({"metadata": {"annotations": {"touched": n.to_string()}}});
        cluster.patch(touch).await;
    }
    cluster.set_back().await;
    let mut last = cluster.lease().await.metadata.resource_version;
    for _ in 0..3 {
        last = in_time(async {
            loop {
                let found = cluster.lease().await.metadata.resource_version;
                if found != last {
                    return found;
                }
                clock::sleep(quick().retry_period()).await.unwrap();
            }
        })
        .await;
    }
    for replica in replicas {
        in_time(replica.shutdown()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_the_api_server_costs_a_standard_lease_nothing() {
    let Some(cluster) = Cluster::own().await else {
        return;
    };
    let store = cluster.store_as(USER).await;
    let leader = elector(store, "leader", standard());
    let term = lead(&leader).await;
    let store = cluster.store_as(USER).await;
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
