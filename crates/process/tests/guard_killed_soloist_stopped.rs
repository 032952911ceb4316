//! Neither of the two can act: what the kernel does by itself.

mod common;

use rustix::process::Signal;

use common::*;

#[tokio::test]
async fn the_child_dies_with_its_guard_even_if_soloist_cannot_act() {
    let mut stage = Stage::new();
    let soloist = Soloist::start(&stage.report_path(), &["soloist", "600000", "daemon"]);
    let guard = stage.hear_process("guard").await;
    let daemon = stage.hear_process("daemon").await;
    let child = stage.hear_process("ready").await;
    soloist.signal(Signal::STOP);
    guard.signal(Signal::KILL);
    child.gone().await;
    assert!(daemon.is_alive(), "nobody was there to kill it");
    soloist.signal(Signal::CONT);
    daemon.gone().await;
}
