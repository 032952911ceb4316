//! SIGTERM and SIGINT, to this very process: so this is the only test here.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use soloist_worker::Worker;
use tokio::time::timeout;

const LIMIT: Duration = Duration::from_secs(10);

#[tokio::test]
async fn the_first_signal_begins_the_shutdown_and_the_second_ends_its_time() {
    let worker = Worker::from_env().unwrap();
    assert_eq!(worker.role(), None, "this test runs without soloist");
    let stream = worker.stream();
    assert!(!worker.process().is_begun());

    kill_process(getpid(), Signal::TERM).unwrap();
    timeout(LIMIT, stream.begun()).await.unwrap();
    assert!(worker.process().is_begun() && worker.term().is_begun());
    let left = worker.process().time_left().unwrap();
    assert!(left > Duration::from_secs(5), "{left:?} of 20 s");

    kill_process(getpid(), Signal::INT).unwrap();
    timeout(LIMIT, stream.over()).await.unwrap();
    assert_eq!(worker.process().time_left(), Some(Duration::ZERO));
}
