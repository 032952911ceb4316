//! A soloist that does not move its deadline.

mod common;

use rustix::process::Signal;

use common::*;

#[tokio::test]
async fn the_tree_dies_at_the_deadline_of_a_soloist_that_is_stopped() {
    let mut stage = Stage::new();
    let soloist = Soloist::start(&stage.report_path(), &["soloist", "2000", "daemon"]);
    let guard = stage.hear_process("guard").await;
    let daemon = stage.hear_process("daemon").await;
    let child = stage.hear_process("ready").await;
    soloist.signal(Signal::STOP);
    child.gone().await;
    daemon.gone().await;
    guard.gone().await;
    soloist.signal(Signal::CONT);
}
