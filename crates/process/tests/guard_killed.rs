//! One of the two is enough: soloist.

mod common;

use rustix::process::Signal;
use soloist_process::TreeEvent;

use common::*;

#[tokio::test]
async fn when_the_guard_is_killed_soloist_kills_and_reaps_the_tree() {
    let mut stage = Stage::new();
    let mut tree = stage.spawn(&["daemon"]);
    let child = started(&mut tree).await;
    let daemon = stage.hear_process("daemon").await;
    stage.hear("ready").await;
    Process::of(tree.guard_pid()).signal(Signal::KILL);
    child.gone().await;
    assert_eq!(next(&mut tree).await, Some(TreeEvent::GuardLost));
    tree.kill();
    killed(&mut tree).await;
    assert!(!daemon.is_alive(), "empty was said too early");
    assert!(
        !std::path::Path::new(&format!("/proc/{}", daemon.pid)).exists(),
        "the daemon was not reaped"
    );
}
