//! Whom soloist does not kill in place of a guard.

#![allow(clippy::unwrap_used)]

mod common;

use rustix::process::Signal;
use soloist_process::TreeEvent;

use common::*;

/// A process that was left to us by somebody who is not a guard.
async fn orphan(stage: &Stage) -> Process {
    stage.supervisor();
    let file = stage.dir.path().join("orphan");
    let (mut shell, _own) = soloist_process::own_child(
        || {
            std::process::Command::new("sh")
                .args(["-c", "sleep 60 & echo $! > \"$0\""])
                .arg(&file)
                .spawn()
        },
        |child| Some(child.id()),
    )
    .unwrap();
    assert!(shell.wait().unwrap().success());
    let pid = std::fs::read_to_string(file).unwrap();
    Process::of(pid.trim().parse().unwrap())
}

#[tokio::test]
async fn a_lost_guard_costs_no_other_tree_and_no_child_of_our_own() {
    let mut stage = Stage::new();
    let mut other = stage.spawn(&["daemon"]);
    let other_child = started(&mut other).await;
    let other_daemon = stage.hear_process("daemon").await;
    let stranger = orphan(&stage).await;
    let (mut own, _mine) = soloist_process::own_child(
        || std::process::Command::new(HELPER).arg("idle").spawn(),
        |child| Some(child.id()),
    )
    .unwrap();
    let own_process = Process::of(own.id());

    let mut tree = stage.spawn(&["daemon"]);
    started(&mut tree).await;
    let daemon = stage.hear_process("daemon").await;
    Process::of(tree.guard_pid()).signal(Signal::KILL);
    assert_eq!(next(&mut tree).await, Some(TreeEvent::GuardLost));
    killed(&mut tree).await;
    assert!(!daemon.is_alive());

    assert!(stranger.is_alive());
    stranger.signal(Signal::KILL);
    stranger.gone().await;
    assert!(own_process.is_alive());
    assert!(other_child.is_alive());
    assert!(other_daemon.is_alive());
    other.kill();
    killed(&mut other).await;
    own.kill().unwrap();
    own.wait().unwrap();
}
