//! Start, stop, wait.

#![allow(clippy::unwrap_used)]

mod common;

use std::time::Duration;

use soloist_process::{Exit, ProcessManager, SpawnFailure, State, Stop, Supervisor, now};

use common::*;

fn manager(stage: &Stage, args: &[&str]) -> ProcessManager {
    let supervisor = Supervisor::with_guard_program(HELPER).unwrap();
    ProcessManager::new(supervisor, stage.helper(args))
}

#[tokio::test]
async fn a_second_start_and_a_second_stop_do_nothing() {
    let mut stage = Stage::new();
    let manager = manager(&stage, &["drain", "300"]);
    assert_eq!(manager.state(), State::Stopped);
    assert_eq!(manager.stop(LIMIT).await, Stop::Nothing);
    assert_eq!(manager.wait().await, None);

    assert!(manager.start(now() + LIMIT).unwrap());
    assert_eq!(manager.state(), State::Starting);
    assert!(!manager.start(now() + LIMIT).unwrap());
    stage.hear("ready").await;
    assert!(!manager.start(now() + LIMIT).unwrap());
    within("the manager to know", async {
        while !manager.is_running() {
            tokio::task::yield_now().await;
        }
    })
    .await;

    let first = manager.stop(LIMIT);
    let second = async {
        assert_eq!(manager.state(), State::Stopping);
        assert_eq!(manager.stop(Duration::ZERO).await, Stop::Nothing);
    };
    let (stop, ()) = tokio::join!(biased; first, second);
    assert_eq!(stop, Stop::Ended);
    assert_eq!(manager.state(), State::Stopped);
    assert_eq!(manager.wait().await, Some(Ok(Exit::Code(0))));
}

#[tokio::test]
async fn it_can_be_started_again() {
    let mut stage = Stage::new();
    let manager = manager(&stage, &["drain", "0"]);
    for _ in 0..3 {
        assert!(manager.start(now() + LIMIT).unwrap());
        stage.hear("ready").await;
        assert_eq!(manager.stop(LIMIT).await, Stop::Ended);
    }
}

#[tokio::test]
async fn who_does_not_stop_in_time_is_killed() {
    let mut stage = Stage::new();
    let manager = manager(&stage, &["deaf"]);
    assert!(manager.start(now() + LIMIT).unwrap());
    stage.hear("ready").await;
    let stop = manager.stop(Duration::from_millis(50));
    assert_eq!(within("the stop", stop).await, Stop::Killed);
    assert_eq!(manager.wait().await, Some(Ok(Exit::Signal(9))));
}

#[tokio::test]
async fn a_stop_goes_on_when_its_caller_has_gone() {
    let mut stage = Stage::new();
    let manager = manager(&stage, &["deaf"]);
    assert!(manager.start(now() + LIMIT).unwrap());
    stage.hear("ready").await;
    let stop = manager.stop(Duration::from_millis(50));
    assert!(
        tokio::time::timeout(Duration::from_millis(1), stop)
            .await
            .is_err()
    );
    let end = within("the end", manager.wait()).await;
    assert_eq!(end, Some(Ok(Exit::Signal(9))));
}

#[tokio::test]
async fn a_stop_that_meets_the_start_is_not_lost() {
    let stage = Stage::new();
    let manager = manager(&stage, &["idle"]);
    for round in 0..40 {
        assert!(manager.start(now() + LIMIT).unwrap());
        tokio::time::sleep(Duration::from_micros(round * 100)).await;
        let stop = within("the stop", manager.stop(2 * LIMIT)).await;
        assert_eq!(stop, Stop::Ended);
    }
}

#[tokio::test]
async fn a_child_that_ends_by_itself_takes_its_tree_along() {
    let mut stage = Stage::new();
    let manager = manager(&stage, &["daemon-and-exit"]);
    assert!(manager.start(now() + LIMIT).unwrap());
    let daemon = stage.hear_process("daemon").await;
    let end = within("the end", manager.wait()).await;
    assert_eq!(end, Some(Ok(Exit::Code(0))));
    assert!(!daemon.is_alive());
}

#[tokio::test]
async fn a_program_that_cannot_be_run_is_told_by_wait() {
    let supervisor = Supervisor::with_guard_program(HELPER).unwrap();
    let command = soloist_process::Command::new("/no/such/program");
    let manager = ProcessManager::new(supervisor, command);
    assert!(manager.start(now() + LIMIT).unwrap());
    let end = within("the end", manager.wait()).await;
    let error = end.unwrap().unwrap_err();
    assert_eq!(error.failure, SpawnFailure::NotFound);
    assert_eq!(manager.state(), State::Stopped);
}
