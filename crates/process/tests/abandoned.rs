//! Trees whose tasks are gone, and with them everyone who would have killed what a lost guard leaves.

#![allow(clippy::unwrap_used)]

mod common;

use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::Signal;
use soloist_process::kill_abandoned_trees;
use tokio::runtime::{Builder, Runtime};

use common::*;

/// What is abandoned is so process-wide: one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// A tree with a daemon in a session of its own, of which the guard and the task are no more.
fn without_guard_and_task() -> Process {
    let runtime = runtime();
    let daemon = runtime.block_on(async {
        let mut stage = Stage::new();
        let mut tree = stage.spawn(&["daemon"]);
        let child = started(&mut tree).await;
        let daemon = stage.hear_process("daemon").await;
        stage.hear("ready").await;
        // Its end is not waited for as a task's: no task is given the time to hear of it.
        Process::of(tree.guard_pid()).signal(Signal::KILL);
        drop(child);
        std::mem::forget(tree);
        daemon
    });
    drop(runtime);
    daemon
}

#[test]
fn what_a_dead_guard_left_to_nobody_is_killed_and_reaped() {
    let _one = alone();
    let daemon = without_guard_and_task();
    assert!(daemon.is_alive(), "nobody was there to kill it");
    assert_eq!(kill_abandoned_trees(LIMIT), Ok(()));
    assert!(!daemon.is_alive());
    let entry = format!("/proc/{}", daemon.pid);
    assert!(!std::path::Path::new(&entry).exists(), "it was not reaped");
}

#[test]
fn a_stopped_guard_and_its_tree_are_killed() {
    let _one = alone();
    let runtime = runtime();
    let (tree, guard, child, daemon) = runtime.block_on(async {
        let mut stage = Stage::new();
        let mut tree = stage.spawn(&["daemon"]);
        let child = started(&mut tree).await;
        let daemon = stage.hear_process("daemon").await;
        let guard = Process::of(tree.guard_pid());
        guard.signal(Signal::STOP);
        (tree, guard, child, daemon)
    });
    // The tasks are there, and do not run any more.
    assert_eq!(kill_abandoned_trees(LIMIT), Ok(()));
    for process in [guard, child, daemon] {
        assert!(!process.is_alive());
    }
    drop(tree);
}

#[test]
fn who_was_here_before_the_tree_is_left_alone() {
    let _one = alone();
    let mut before = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .unwrap();
    let process = Process::of(before.id());
    let daemon = without_guard_and_task();
    assert_eq!(kill_abandoned_trees(LIMIT), Ok(()));
    assert!(!daemon.is_alive());
    assert!(process.is_alive());
    before.kill().unwrap();
    before.wait().unwrap();
}
