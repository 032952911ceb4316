//! client-go's leaderelection on the same Lease.

use std::time::Duration;

use soloist_elector::clock;
use soloist_elector::core::election::Claim;
use soloist_elector::testing::in_time;
use testbed::{Peer, PeerEvent, PeerOptions};

use crate::harness::{Cluster, LEASE, Standby, USER, lead, name, quick};

const PATIENCE: Duration = Duration::from_secs(20);

fn peer(cluster: &Cluster) -> Peer {
    let kubeconfig = cluster.plane.kubeconfig(USER, None).unwrap();
    let mut options = PeerOptions::new(kubeconfig, &cluster.namespace, LEASE, "theirs");
    options.lease_duration = quick().lease().get();
    options.renew_deadline = quick().renew_deadline();
    options.retry_period = quick().retry_period();
    Peer::start(&cluster.plane.binaries().peer, &options).unwrap()
}

async fn leads(peer: &mut Peer) {
    let started = |event: &PeerEvent| matches!(event, PeerEvent::Started { .. });
    peer.wait_for(PATIENCE, started).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn client_gos_release_is_taken_over_at_once() {
    let Some(cluster) = Cluster::shared().await else {
        return;
    };
    let mut theirs = peer(&cluster);
    leads(&mut theirs).await;
    let standby = Standby::beside(cluster.elector("ours").await, "theirs").await;
    theirs.terminate().unwrap();
    let (term, _ours) = standby.leads().await;
    assert_eq!(term.claim(), Claim::Released);
    assert_eq!(term.number().get(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_client_go_holds_is_respected_until_it_has_run_out() {
    let Some(cluster) = Cluster::shared().await else {
        return;
    };
    let mut theirs = peer(&cluster);
    leads(&mut theirs).await;
    let standby = Standby::beside(cluster.elector("ours").await, "theirs").await;
    let lease = quick().lease().get();
    clock::sleep(lease + lease / 2).await.unwrap();
    assert!(standby.still_waits());
    theirs.kill();
    let renewed = cluster.lease().await.spec.unwrap().renew_time.unwrap().0;
    let (term, _ours) = standby.leads().await;
    assert_eq!(term.claim(), Claim::Expired);
    let acquired = cluster.lease().await.spec.unwrap().acquire_time.unwrap().0;
    let waited = acquired.duration_since(renewed).unsigned_abs();
    assert!(waited >= lease, "{waited:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn client_go_respects_our_lease_and_takes_over_when_we_release_it() {
    let Some(cluster) = Cluster::shared().await else {
        return;
    };
    let ours = cluster.elector("ours").await;
    let term = lead(&ours).await;
    let mut theirs = peer(&cluster);
    let sees_us = |event: &PeerEvent| matches!(event, PeerEvent::NewLeader { leader, .. } if leader == "ours");
    theirs.wait_for(PATIENCE, sees_us).await.unwrap();
    let lease = quick().lease().get();
    clock::sleep(lease + lease / 2).await.unwrap();
    assert!(term.is_valid());
    term.finish();
    leads(&mut theirs).await;
    let mut leadership = ours.leadership();
    let seen = leadership.wait_for(|l| l.leader == Some(name("theirs")));
    in_time(seen).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn client_go_takes_over_when_we_die() {
    let Some(cluster) = Cluster::shared().await else {
        return;
    };
    let dead = cluster.leader_that_dies("ours").await;
    let mut theirs = peer(&cluster);
    leads(&mut theirs).await;
    assert!(clock::now() >= dead.valid_until);
}
