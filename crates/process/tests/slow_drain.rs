//! A child that takes its time.

mod common;

use soloist_process::{Exit, Signal};

use common::*;

#[tokio::test]
async fn a_child_that_drains_after_its_stop_signal_ends_in_order() {
    let mut stage = Stage::new();
    let mut tree = stage.spawn(&["drain", "300"]);
    started(&mut tree).await;
    stage.hear("ready").await;
    tree.stop(Signal::TERM);
    stage.hear("draining").await;
    stage.hear("drained").await;
    ends(&mut tree, Exit::Code(0)).await;
}
