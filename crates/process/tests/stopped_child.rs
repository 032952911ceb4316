//! A child that is stopped.

#![allow(clippy::unwrap_used)]

mod common;

use rustix::process::Signal as Raw;
use soloist_process::{Exit, Signal};

use common::*;

async fn stopped(process: &Process) {
    let path = format!("/proc/{}/stat", process.pid);
    let mut ticks = tokio::time::interval(std::time::Duration::from_millis(5));
    within("the child to stop", async {
        while !std::fs::read_to_string(&path).unwrap().contains(") T ") {
            ticks.tick().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_stopped_child_hears_the_stop_signal() {
    let mut stage = Stage::new();
    let mut tree = stage.spawn(&["drain", "0"]);
    let child = started(&mut tree).await;
    stage.hear("ready").await;
    child.signal(Raw::STOP);
    stopped(&child).await;
    tree.stop(Signal::TERM);
    stage.hear("drained").await;
    ends(&mut tree, Exit::Code(0)).await;
}

#[tokio::test]
async fn a_stopped_child_can_be_killed() {
    let mut stage = Stage::new();
    let mut tree = stage.spawn(&["idle"]);
    let child = started(&mut tree).await;
    stage.hear("ready").await;
    child.signal(Raw::STOP);
    stopped(&child).await;
    tree.kill();
    killed(&mut tree).await;
}
