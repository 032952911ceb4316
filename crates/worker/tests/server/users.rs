//! A child that is a web server, under load, as the users that children are: what it loses when it is told to stop.

use std::time::Duration;

use crate::child::{Kind, WebChild};
use crate::load::{Load, Manner};
use crate::stage::Client;

const DRAIN: Duration = Duration::from_secs(20);
const THINKS: Duration = Duration::from_millis(20);
const MANNERS: [(Manner, usize); 4] = [
    (Manner::Fresh(Duration::ZERO), 16),
    (Manner::Fresh(THINKS), 8),
    (Manner::KeepAlive, 4),
    (Manner::Http2, 4),
];
/// Answers before the child is told to stop.
const ENOUGH: usize = 300;

/// Its log.
async fn nothing_is_lost(kind: Kind) -> Option<String> {
    let child = WebChild::start(kind, DRAIN)?;
    let load = Load::begin(child.address, &MANNERS);
    load.until_answered(ENOUGH).await;
    child.terminate();
    let count = load.until_refused().await;
    let (code, log) = child.ended().await;
    assert_eq!(count.lost(), 0, "{} were answered\n{log}", count.answered());
    assert_eq!(code, Some(0), "{log}");
    Some(log)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ordinary_user_loses_no_request() {
    for _ in 0..4 {
        let Some(log) = nothing_is_lost(Kind::Nobody).await else {
            return;
        };
        assert!(log.contains("new connections are "), "{log}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ordinary_user_with_the_right_to_filter_loses_no_request() {
    for _ in 0..2 {
        let Some(log) = nothing_is_lost(Kind::NobodyWithNetAdmin).await else {
            return;
        };
        assert!(log.contains("ignored, by a socket filter"), "{log}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_runs_the_test_loses_no_request() {
    nothing_is_lost(Kind::Own).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_nobody_can_be_kept_out_all_are_served_until_it_is_quiet() {
    for _ in 0..3 {
        let Some(child) = WebChild::start(Kind::NobodyOnInterface, DRAIN) else {
            return;
        };
        let load = Load::begin(child.address, &MANNERS);
        load.until_answered(ENOUGH).await;
        child.terminate();
        // As in a Pod: connections come for a while after the signal.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let at_end = load.count.answered();
        load.until_answered(at_end + ENOUGH).await;
        let count = load.end().await;
        let (code, log) = child.ended().await;
        assert_eq!(count.lost(), 0, "{} were answered\n{log}", count.answered());
        assert_eq!(code, Some(0), "{log}");
        assert!(log.contains("served until none has come"), "{log}");
    }
}

#[tokio::test]
async fn a_request_that_had_to_be_cut_shows_in_the_exit_code() {
    let child = WebChild::start(Kind::Own, Duration::from_secs(1)).unwrap();
    let mut client = Client::new(child.address).await;
    client.get("/never").await;
    // Accepted in turn, and on one thread or the other: when this one is answered, the other has been heard or will be.
    let mut later = Client::new(child.address).await;
    later.get("/hello").await;
    later.head().await;
    child.terminate();
    let (code, log) = child.ended().await;
    assert_eq!(code, Some(1), "{log}");
    assert!(
        log.contains("the time ran out before http had ended in order"),
        "{log}"
    );
}
