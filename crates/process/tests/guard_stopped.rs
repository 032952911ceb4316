//! A guard that does not answer.

mod common;

use rustix::process::Signal;
use soloist_process::TreeEvent;

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
