use std::time::Duration;

use testbed::{Account, Peer, PeerEvent, PeerOptions, pids_vanish, shared};

use crate::{SOON, SUITE, leases};

#[tokio::test]
async fn a_peer_acquires_the_lease_and_releases_it_on_sigterm() {
    let Some(plane) = shared(SUITE).await else {
        return;
    };
    let namespace = plane.namespace("peer").await.unwrap();
    plane
        .allow_lease(&namespace, "led", Account::User("replica-10"))
        .await
        .unwrap();
    let kubeconfig = plane.kubeconfig("replica-10", None).unwrap();
    let api = leases::api(plane.admin_client().await.unwrap(), &namespace);
    let options = PeerOptions::new(kubeconfig, &namespace, "led", "peer-a");

    let mut peer = Peer::start(&plane.binaries().peer, &options).unwrap();
    peer.wait_for(SOON, |event| matches!(event, PeerEvent::Started { .. }))
        .await
        .unwrap();
    assert_eq!(leases::holder(&api.get("led").await.unwrap()), "peer-a");

    peer.terminate().unwrap();
    peer.wait_for(SOON, |event| matches!(event, PeerEvent::Stopped { .. }))
        .await
        .unwrap();
    assert!(peer.exited(SOON).await.unwrap().success());
    assert_eq!(leases::holder(&api.get("led").await.unwrap()), "");
}

#[tokio::test]
async fn a_peer_succeeds_another_and_sees_who_leads() {
    let Some(plane) = shared(SUITE).await else {
        return;
    };
    let namespace = plane.namespace("peer").await.unwrap();
    let options = |identity: &str| PeerOptions {
        lease_duration: Duration::from_secs(3),
        renew_deadline: Duration::from_secs(2),
        retry_period: Duration::from_millis(300),
        ..PeerOptions::new(
            plane.admin_kubeconfig().unwrap(),
            &namespace,
            "led",
            identity,
        )
    };
    let start = |identity| Peer::start(&plane.binaries().peer, &options(identity)).unwrap();
    let started = |event: &PeerEvent| matches!(event, PeerEvent::Started { .. });

    let mut one = start("one");
    one.wait_for(SOON, started).await.unwrap();
    let mut two = start("two");
    let sees_one =
        |event: &PeerEvent| matches!(event, PeerEvent::NewLeader { leader, .. } if leader == "one");
    two.wait_for(SOON, sees_one).await.unwrap();
    one.kill();
    two.wait_for(SOON, started).await.unwrap();
}

#[tokio::test]
async fn a_peers_child_runs_while_it_leads() {
    let Some(plane) = shared(SUITE).await else {
        return;
    };
    let namespace = plane.namespace("peer").await.unwrap();
    let kubeconfig = plane.admin_kubeconfig().unwrap();
    let mut options = PeerOptions::new(kubeconfig, &namespace, "led", "parent");
    options.command = ["sleep", "600"].map(str::to_owned).into();

    let mut peer = Peer::start(&plane.binaries().peer, &options).unwrap();
    let child = child_of(&mut peer).await;
    peer.terminate().unwrap();
    peer.wait_for(
        SOON,
        |event| matches!(event, PeerEvent::ChildExited { pid, .. } if *pid == child),
    )
    .await
    .unwrap();
    peer.wait_for(SOON, |event| matches!(event, PeerEvent::Stopped { .. }))
        .await
        .unwrap();
}

#[tokio::test]
async fn a_killed_peer_takes_its_child_along() {
    let Some(plane) = shared(SUITE).await else {
        return;
    };
    let namespace = plane.namespace("peer").await.unwrap();
    let kubeconfig = plane.admin_kubeconfig().unwrap();
    let mut options = PeerOptions::new(kubeconfig, &namespace, "led", "parent");
    options.command = ["sleep", "600"].map(str::to_owned).into();

    let mut peer = Peer::start(&plane.binaries().peer, &options).unwrap();
    let child = child_of(&mut peer).await;
    peer.kill();
    assert!(pids_vanish(&[child], SOON), "the child {child} still runs");
}

async fn child_of(peer: &mut Peer) -> u32 {
    let started = peer
        .wait_for(SOON, |event| {
            matches!(event, PeerEvent::ChildStarted { .. })
        })
        .await
        .unwrap();
    let PeerEvent::ChildStarted { pid, .. } = started else {
        unreachable!("asked for this event")
    };
    pid
}
