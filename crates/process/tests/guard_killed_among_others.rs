mod common;

use rustix::process::Signal;
use soloist_process::TreeEvent;

use common::*;

#[tokio::test]
async fn a_lost_guard_costs_no_other_tree_and_no_child_of_our_own() {
    let mut stage = Stage::new();
    let mut other = stage.spawn(&["daemon"]);
    let other_child = started(&mut other).await;
    let other_daemon = stage.hear_process("daemon").await;
    stage.supervisor();
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

    assert!(own_process.is_alive());
    assert!(other_child.is_alive());
    assert!(other_daemon.is_alive());
    other.kill();
    killed(&mut other).await;
    own.kill().unwrap();
    own.wait().unwrap();
}
