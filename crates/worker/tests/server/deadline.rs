//! When the time is over.

use std::time::Duration;

use tokio::time::Instant;

use crate::stage::*;

#[tokio::test]
async fn a_handler_that_never_ends_is_cut_at_the_deadline() {
    let budget = Duration::from_secs(1);
    let stage = Stage::new(budget, Duration::ZERO).await;
    let mut client = stage.client().await;
    client.get("/never").await;
    stage.hands.wait_until_entered().await;
    let begun = Instant::now();
    stage.shutdown.begin();
    let hands = stage.hands.clone();
    let drained = stage.drained().await;
    assert!(begun.elapsed() >= budget);
    assert!(!drained.is_complete());
    assert_eq!((drained.in_flight, drained.cut), (1, 1));
    assert_eq!(drained.cut_connections, 1);
    hands.wait_until_dropped().await;
    client.expect_close().await;
}

#[tokio::test]
async fn a_hurry_cuts_at_once() {
    let stage = Stage::new(LONG, LONG).await;
    let mut client = stage.client().await;
    client.get("/never").await;
    stage.hands.wait_until_entered().await;
    stage.shutdown.begin();
    stage.shutdown.hurry();
    assert_eq!(stage.drained().await.cut, 1);
}

#[tokio::test]
async fn a_linger_that_is_too_long_does_not_reach_the_deadline() {
    let budget = Duration::from_secs(4);
    let stage = Stage::new(budget, LONG).await;
    let mut idle = stage.client().await;
    idle.get("/hello").await;
    idle.head().await;
    assert_eq!(idle.text(5).await, "hello");
    stage.shutdown.begin();
    idle.expect_close().await;
    let drained = stage.drained().await;
    assert!(drained.is_complete(), "{drained:?}");
    assert!(drained.took < budget, "{drained:?}");
}

#[tokio::test]
async fn who_drops_the_server_cuts_its_connections() {
    let stage = Stage::new(LONG, LONG).await;
    let mut client = stage.client().await;
    client.get("/never").await;
    stage.hands.wait_until_entered().await;
    stage.drop_server();
    stage.hands.wait_until_dropped().await;
    client.expect_close().await;
}
