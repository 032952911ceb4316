//! A guard that has nothing to do does nothing.

#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use soloist_process::{Signal, now};

use common::*;

/// How much of it a second of its life takes.
async fn in_a_second(pid: u32) -> u64 {
    let before = cpu_time(pid);
    tokio::time::sleep(Duration::from_secs(1)).await;
    cpu_time(pid) - before
}

#[tokio::test]
async fn a_guard_that_waits_takes_no_processor_time() {
    let mut stage = Stage::new();
    let command = stage.helper(&["deaf"]);
    let mut tree = stage.supervisor().prepare(&command).unwrap();
    assert!(in_a_second(tree.guard_pid()).await < 10, "without a child");
    tree.start(now() + LIMIT, &[]).unwrap();
    started(&mut tree).await;
    stage.hear("ready").await;
    assert!(in_a_second(tree.guard_pid()).await < 10, "with a child");
    tree.stop(Signal::TERM);
    assert!(in_a_second(tree.guard_pid()).await < 10, "after a stop");
    tree.kill();
    killed(&mut tree).await;
}
