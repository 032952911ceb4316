//! A guard that is prepared and has not been told to start anything.

#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use rustix::process::Signal as RawSignal;
use soloist_process::{Signal, Tree, TreeEvent, now};

use common::*;

fn prepared(stage: &Stage) -> Tree {
    let command = stage.helper(&["idle"]);
    stage.supervisor().prepare(&command).unwrap()
}

/// Nothing was ever started, and nothing is left.
async fn never_was(tree: &mut Tree) {
    assert_eq!(next(tree).await, Some(TreeEvent::Empty));
    assert_eq!(next(tree).await, None);
    assert_eq!(tree.child_pid(), None);
}

#[tokio::test]
async fn who_is_stopped_or_killed_before_the_start_never_starts_anything() {
    let stage = Stage::new();
    for end in [|tree: &Tree| tree.stop(Signal::TERM), Tree::kill] {
        let mut tree = prepared(&stage);
        end(&tree);
        // It may be gone by now; if it is not, it has heard the other first.
        let _ = tree.start(now() + LIMIT, &[]);
        never_was(&mut tree).await;
    }
}

#[tokio::test]
async fn a_guard_that_is_dropped_ends() {
    let stage = Stage::new();
    let tree = prepared(&stage);
    let guard = Process::of(tree.guard_pid());
    assert!(guard.is_alive());
    drop(tree);
    guard.gone().await;
}

#[tokio::test]
async fn a_deadline_before_the_start_starts_nothing() {
    let stage = Stage::new();
    let mut tree = prepared(&stage);
    tree.set_deadline(now() + LIMIT);
    tree.stop(Signal::TERM);
    never_was(&mut tree).await;
}

#[tokio::test]
async fn a_signal_before_the_start_is_nobodys() {
    let stage = Stage::new();
    let mut tree = prepared(&stage);
    tree.signal(Signal::TERM);
    tree.start(now() + LIMIT, &[]).unwrap();
    started(&mut tree).await;
    tree.kill();
    killed(&mut tree).await;
}

#[tokio::test]
async fn a_guard_that_is_killed_while_it_waits_is_lost_and_leaves_nothing() {
    let stage = Stage::new();
    let mut tree = prepared(&stage);
    Process::of(tree.guard_pid()).signal(RawSignal::KILL);
    assert_eq!(next(&mut tree).await, Some(TreeEvent::GuardLost));
    never_was(&mut tree).await;
    let error = tree.start(now() + LIMIT, &[]).unwrap_err();
    assert!(error.to_string().contains("not told"), "{error}");
}

#[tokio::test]
async fn a_guard_that_slept_hears_all_before_it_starts_anything() {
    let stage = Stage::new();
    let mut tree = prepared(&stage);
    let guard = Process::of(tree.guard_pid());
    guard.signal(RawSignal::STOP);
    tree.start(now() + LIMIT, &[]).unwrap();
    tree.stop(Signal::TERM);
    guard.signal(RawSignal::CONT);
    never_was(&mut tree).await;

    let mut tree = prepared(&stage);
    let guard = Process::of(tree.guard_pid());
    guard.signal(RawSignal::STOP);
    tree.start(now() - Duration::from_millis(1), &[]).unwrap();
    tree.set_deadline(now() + LIMIT);
    guard.signal(RawSignal::CONT);
    started(&mut tree).await;
    tree.kill();
    killed(&mut tree).await;
}

#[tokio::test]
async fn variables_that_no_program_can_be_given_are_refused_and_nothing_is_started() {
    let stage = Stage::new();
    let mut tree = prepared(&stage);
    for (name, value) in [
        ("", "x"),
        ("a=b", "x"),
        ("a", "x\0"),
        ("a", &"x".repeat(5000)),
    ] {
        let error = tree.start(now() + LIMIT, &[(name, value)]).unwrap_err();
        assert_eq!(
            error.failure(),
            soloist_process::SpawnFailure::NotExecutable
        );
    }
    tree.kill();
    never_was(&mut tree).await;
}
