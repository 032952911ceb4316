use std::time::Duration;

use testbed::{Direction, shared};
use tokio::time::timeout;

use crate::{SOON, SUITE, leases};

#[tokio::test]
async fn a_cut_link_fails_its_own_client_and_no_other() {
    let Some(plane) = shared(SUITE).await else {
        return;
    };
    let link = plane.link().unwrap();
    let linked = plane.client("admin", Some(&link)).await.unwrap();
    let direct = plane.admin_client().await.unwrap();
    linked.apiserver_version().await.unwrap();

    link.cut().unwrap();
    assert!(
        linked.apiserver_version().await.is_err(),
        "a cut link passes requests"
    );
    direct.apiserver_version().await.unwrap();
    link.heal().unwrap();
    linked.apiserver_version().await.unwrap();
}

#[tokio::test]
async fn a_write_whose_answer_is_swallowed_has_landed() {
    let Some(plane) = shared(SUITE).await else {
        return;
    };
    let namespace = plane.namespace("links").await.unwrap();
    let link = plane.link().unwrap();
    let linked = leases::api(
        plane.client("admin", Some(&link)).await.unwrap(),
        &namespace,
    );
    let direct = leases::api(plane.admin_client().await.unwrap(), &namespace);
    let lease = leases::create(&linked, "landed").await.unwrap();

    link.swallow(Direction::ToClient).unwrap();
    let lost = timeout(
        Duration::from_secs(1),
        leases::replace(&linked, &lease, "landed"),
    )
    .await;
    assert!(lost.is_err(), "an answer came through: {lost:?}");
    assert_eq!(
        leases::holder(&direct.get("landed").await.unwrap()),
        "landed"
    );
}

#[tokio::test]
async fn a_stalled_request_is_answered_after_the_stall() {
    let Some(plane) = shared(SUITE).await else {
        return;
    };
    let link = plane.link().unwrap();
    let linked = plane.client("admin", Some(&link)).await.unwrap();
    linked.apiserver_version().await.unwrap();

    link.stall_for(Duration::from_millis(500)).unwrap();
    timeout(SOON, linked.apiserver_version())
        .await
        .expect("the answer comes")
        .unwrap();
    assert!(link.is_clear());
}
