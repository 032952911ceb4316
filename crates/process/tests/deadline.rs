//! The guard's deadline.

mod common;

use std::time::Duration;

use soloist_process::{TreeEvent, now};

use common::*;

#[tokio::test]
async fn a_deadline_that_passes_ends_the_tree() {
    let mut stage = Stage::new();
    let deadline = now() + Duration::from_secs(2);
    let tree = stage
        .supervisor()
        .spawn(&stage.helper(&["daemon"]), deadline);
    let mut tree = tree.unwrap();
    let child = started(&mut tree).await;
    let daemon = stage.hear_process("daemon").await;
    assert!(child.is_alive());
    killed(&mut tree).await;
    assert!(now() >= deadline, "too early");
    assert!(!daemon.is_alive());
}

#[tokio::test]
async fn a_deadline_that_is_moved_lets_the_tree_live() {
    let mut stage = Stage::new();
    let first = now() + Duration::from_secs(2);
    let second = first + Duration::from_secs(1);
    let tree = stage.supervisor().spawn(&stage.helper(&["idle"]), first);
    let mut tree = tree.unwrap();
    started(&mut tree).await;
    tree.set_deadline(second);
    stage.hear("ready").await;
    killed(&mut tree).await;
    assert!(now() >= second, "killed at the first deadline");
}

#[tokio::test]
async fn a_guard_that_is_armed_too_late_starts_nothing() {
    let stage = Stage::new();
    let mut tree = stage.spawn_for(&["idle"], Duration::ZERO);
    assert_eq!(next(&mut tree).await, Some(TreeEvent::Empty));
    assert_eq!(next(&mut tree).await, None);
}
