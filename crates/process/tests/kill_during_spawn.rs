//! Kills that come early, and handles that go.

mod common;

use soloist_process::{Exit, TreeEvent};

use common::*;

#[tokio::test]
async fn a_kill_that_meets_the_spawn_leaves_nothing() {
    let stage = Stage::new();
    for round in 0..40_u32 {
        let mut tree = stage.spawn(&["idle"]);
        // From before the guard runs to after the child does.
        let pause = std::time::Duration::from_micros(u64::from(round) * 100);
        tokio::time::sleep(pause).await;
        tree.kill();
        let mut child = None;
        loop {
            match next(&mut tree).await {
                Some(TreeEvent::Started { pid }) => child = Some(pid),
                Some(TreeEvent::Exited(exit)) => assert_eq!(exit, Exit::Signal(9)),
                Some(TreeEvent::Empty) => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(next(&mut tree).await, None);
        if let Some(pid) = child {
            assert!(!Process::of(pid).is_alive());
        }
    }
}

#[tokio::test]
async fn a_handle_that_is_dropped_takes_its_tree_along() {
    let mut stage = Stage::new();
    let mut tree = stage.spawn(&["daemon"]);
    let child = started(&mut tree).await;
    let daemon = stage.hear_process("daemon").await;
    drop(tree);
    child.gone().await;
    daemon.gone().await;
}
