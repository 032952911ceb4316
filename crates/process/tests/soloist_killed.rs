//! One of the two is enough: the guard.

mod common;

use rustix::process::Signal;

use common::*;

#[tokio::test]
async fn the_tree_dies_with_a_soloist_that_is_killed() {
    let mut stage = Stage::new();
    let soloist = Soloist::start(&stage.report_path(), &["soloist", "600000", "daemon"]);
    let guard = stage.hear_process("guard").await;
    let daemon = stage.hear_process("daemon").await;
    let child = stage.hear_process("ready").await;
    soloist.signal(Signal::KILL);
    child.gone().await;
    daemon.gone().await;
    guard.gone().await;
}
