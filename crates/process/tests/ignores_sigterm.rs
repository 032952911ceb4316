//! A child that does not listen.

mod common;

use soloist_process::Signal;

use common::*;

#[tokio::test]
async fn a_child_that_ignores_the_stop_signal_is_killed_when_told() {
    let mut stage = Stage::new();
    let mut tree = stage.spawn(&["deaf"]);
    let child = started(&mut tree).await;
    stage.hear("ready").await;
    tree.stop(Signal::TERM);
    tree.signal(Signal::CONT);
    assert!(child.is_alive());
    tree.kill();
    killed(&mut tree).await;
}
