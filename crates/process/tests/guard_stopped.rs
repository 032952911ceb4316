//! A guard that does not answer.

#![allow(clippy::unwrap_used)]

mod common;

use std::time::{Duration, Instant};

use rustix::process::Signal;
use soloist_core::timings::Timings;
use soloist_process::{Supervisor, TreeEvent, now};

use common::*;

#[tokio::test]
async fn a_guard_that_is_stopped_does_not_save_its_tree() {
    let mut stage = Stage::new();
    let mut tree = stage.spawn(&["daemon"]);
    let child = started(&mut tree).await;
    let daemon = stage.hear_process("daemon").await;
    stage.hear("ready").await;
    let guard = Process::of(tree.guard_pid());
    guard.signal(Signal::STOP);
    tree.kill();
    child.gone().await;
    assert_eq!(next(&mut tree).await, Some(TreeEvent::GuardLost));
    killed(&mut tree).await;
    assert!(!daemon.is_alive());
    assert!(!guard.is_alive());
}

#[tokio::test]
async fn a_child_that_ends_under_a_stopped_guard_is_noticed_all_the_same() {
    let mut stage = Stage::new();
    let mut tree = stage.spawn(&["daemon"]);
    let child = started(&mut tree).await;
    let daemon = stage.hear_process("daemon").await;
    stage.hear("ready").await;
    let guard = Process::of(tree.guard_pid());
    guard.signal(Signal::STOP);
    child.signal(Signal::KILL);
    assert_eq!(next(&mut tree).await, Some(TreeEvent::GuardLost));
    killed(&mut tree).await;
    assert!(!daemon.is_alive());
    assert!(!guard.is_alive());
}

/// A supervisor for the shortest lease: a mute guard is noticed within a second.
fn with_short_lease() -> Supervisor {
    let millis = Duration::from_millis;
    let timings = Timings::try_new(millis(2000), millis(1400), millis(200)).unwrap();
    let supervisor = Supervisor::with_guard_program(HELPER).unwrap();
    supervisor.with_timings(timings)
}

#[tokio::test]
async fn a_guard_that_is_stopped_while_all_is_well_is_killed_with_its_tree() {
    let mut stage = Stage::new();
    let supervisor = with_short_lease();
    let command = stage.helper(&["daemon"]);
    let mut tree = supervisor.spawn(&command, now() + 2 * LIMIT).unwrap();
    let child = started(&mut tree).await;
    let daemon = stage.hear_process("daemon").await;
    stage.hear("ready").await;
    let guard = Process::of(tree.guard_pid());
    let stopped = Instant::now();
    guard.signal(Signal::STOP);
    assert_eq!(next(&mut tree).await, Some(TreeEvent::GuardLost));
    assert!(stopped.elapsed() < Duration::from_secs(2));
    killed(&mut tree).await;
    assert!(!child.is_alive() && !daemon.is_alive() && !guard.is_alive());
}

#[tokio::test]
async fn a_guard_that_answers_is_left_alone() {
    let mut stage = Stage::new();
    let supervisor = with_short_lease();
    let command = stage.helper(&["idle"]);
    let mut tree = supervisor.spawn(&command, now() + 2 * LIMIT).unwrap();
    started(&mut tree).await;
    stage.hear("ready").await;
    // Six questions.
    let event = tokio::time::timeout(Duration::from_secs(2), tree.next_event()).await;
    assert!(event.is_err(), "{event:?}");
    tree.kill();
    killed(&mut tree).await;
}
