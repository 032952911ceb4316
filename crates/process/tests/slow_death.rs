//! A tree that takes its time to die.

mod common;

use std::time::Duration;

use rustix::process::Signal;

use common::*;

#[tokio::test]
async fn a_guard_whose_tree_dies_slowly_is_left_alone_and_does_not_spin() {
    let mut stage = Stage::new();
    let mut tree = stage.spawn(&["idle"]);
    let child = started(&mut tree).await;
    stage.hear("ready").await;
    let guard = Process::of(tree.guard_pid());
    let holder = Soloist::start(&stage.report_path(), &["hold", &child.pid.to_string()]);
    let answer = tokio::select! {
        () = async { stage.hear("held").await; } => true,
        () = tokio::time::sleep(Duration::from_secs(5)) => false,
    };
    if !answer {
        return skipped("no process may trace another here");
    }
    tree.kill();
    child.gone().await;
    // Most of the passes of a kill are made early on.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (before, own) = (cpu_time(guard.pid), cpu_time(std::process::id()));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(guard.is_alive());
    assert!(cpu_time(guard.pid) - before < 10, "the guard spins");
    assert!(cpu_time(std::process::id()) - own < 10, "soloist spins");
    holder.signal(Signal::KILL);
    killed(&mut tree).await;
}
