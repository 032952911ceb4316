//! Descendants that detached themselves.

mod common;

use soloist_process::{Exit, TreeEvent};

use common::*;

#[tokio::test]
async fn a_daemon_in_a_session_of_its_own_is_killed_with_the_tree() {
    let mut stage = Stage::new();
    let mut tree = stage.spawn(&["daemon"]);
    started(&mut tree).await;
    let daemon = stage.hear_process("daemon").await;
    stage.hear("ready").await;
    tree.kill();
    killed(&mut tree).await;
    assert!(!daemon.is_alive(), "empty was said too early");
}

#[tokio::test]
async fn the_tree_is_not_empty_while_a_daemon_is_left() {
    let mut stage = Stage::new();
    let mut tree = stage.spawn(&["daemon-and-exit"]);
    started(&mut tree).await;
    let daemon = stage.hear_process("daemon").await;
    assert_eq!(
        next(&mut tree).await,
        Some(TreeEvent::Exited(Exit::Code(0)))
    );
    assert!(daemon.is_alive());
    tree.kill();
    assert_eq!(next(&mut tree).await, Some(TreeEvent::Empty));
    assert!(!daemon.is_alive());
}
