//! Signals on their way to the child.

mod common;

use soloist_process::{Exit, Signal, TreeEvent};

use common::*;

#[tokio::test]
async fn any_signal_reaches_the_child() {
    for number in [1, 10, 12, 28, 37] {
        let mut stage = Stage::new();
        let mut tree = stage.spawn(&["echo", &number.to_string()]);
        let _child = started(&mut tree).await;
        stage.hear("ready").await;
        tree.signal(Signal::from_number(number).unwrap());
        stage.hear(&format!("got-{number}")).await;
        tree.kill();
        killed(&mut tree).await;
    }
}

#[tokio::test]
async fn the_stop_signal_reaches_the_whole_group() {
    let mut stage = Stage::new();
    let mut tree = stage.spawn(&["follower", "100"]);
    started(&mut tree).await;
    stage.hear("leader").await;
    stage.hear("ready").await;
    tree.stop(Signal::TERM);
    stage.hear("drained").await;
    ends(&mut tree, Exit::Signal(15)).await;
}

#[tokio::test]
async fn the_stop_signal_reaches_the_group_after_the_child_has_ended() {
    let mut stage = Stage::new();
    let mut tree = stage.spawn(&["follower", "100"]);
    let child = started(&mut tree).await;
    stage.hear("ready").await;
    child.signal(rustix::process::Signal::KILL);
    assert_eq!(
        next(&mut tree).await,
        Some(TreeEvent::Exited(Exit::Signal(9)))
    );
    tree.stop(Signal::TERM);
    stage.hear("drained").await;
    assert_eq!(next(&mut tree).await, Some(TreeEvent::Empty));
}
