//! What outlives the child itself.

#![allow(clippy::unwrap_used)]

mod common;

use std::time::{Duration, Instant};

use soloist_process::{Exit, Signal, StopTo, TreeEvent, now};

use common::*;

const TERM: Exit = Exit::Signal(15);

#[tokio::test]
async fn a_daemon_hears_the_stop_signal_when_the_child_has_ended() {
    let mut stage = Stage::new();
    let mut tree = stage.spawn(&["polite-daemon"]);
    started(&mut tree).await;
    stage.hear("ready").await;
    tree.stop(Signal::TERM);
    stage.hear("heard-15").await;
    ends(&mut tree, TERM).await;
}

#[tokio::test]
async fn a_daemon_that_does_not_care_has_a_short_time() {
    let mut stage = Stage::new();
    let mut tree = stage.spawn(&["deaf-daemon"]);
    started(&mut tree).await;
    let daemon = stage.hear_process("daemon").await;
    stage.hear("ready").await;
    tree.stop(Signal::TERM);
    assert_eq!(next(&mut tree).await, Some(TreeEvent::Exited(TERM)));
    let since = Instant::now();
    assert_eq!(next(&mut tree).await, Some(TreeEvent::Empty));
    let taken = since.elapsed();
    assert!(!daemon.is_alive());
    let about_two_seconds = Duration::from_millis(1900)..Duration::from_secs(5);
    assert!(about_two_seconds.contains(&taken), "{taken:?}");
}

#[tokio::test]
async fn what_a_crashed_child_leaves_behind_hears_the_stop_signal_too() {
    let mut stage = Stage::new();
    let mut tree = stage.spawn(&["crash-with-daemon"]);
    started(&mut tree).await;
    stage.hear("heard-15").await;
    ends(&mut tree, Exit::Code(3)).await;
}

#[tokio::test]
async fn who_was_asked_together_with_the_child_has_all_the_time_to_drain() {
    let mut stage = Stage::new();
    let mut tree = stage.spawn(&["follower", "3000"]);
    started(&mut tree).await;
    stage.hear("leader").await;
    stage.hear("ready").await;
    tree.stop(Signal::TERM);
    assert_eq!(next(&mut tree).await, Some(TreeEvent::Exited(TERM)));
    stage.hear("draining").await;
    stage.hear("drained").await;
    assert_eq!(next(&mut tree).await, Some(TreeEvent::Empty));
}

#[tokio::test]
async fn a_child_that_ends_its_workers_itself_can_be_the_only_one_to_hear_it() {
    for (to, workers_first) in [(StopTo::Group, true), (StopTo::Child, false)] {
        let mut stage = Stage::new();
        let command = stage.helper(&["prefork", "500"]).stop_to(to);
        let supervisor = stage.supervisor();
        let mut tree = supervisor.spawn(&command, now() + 2 * LIMIT).unwrap();
        started(&mut tree).await;
        stage.hear("worker").await;
        stage.hear("ready").await;
        tree.stop(Signal::TERM);
        // The worker hears it when the child has ended, at the latest.
        let (mut drained, mut heard) = (None, None);
        while drained.is_none() || heard.is_none() {
            let word = stage.hear_any(&["drained", "heard-15"]).await;
            match &*word {
                "drained" => drained = Some(Instant::now()),
                _ => heard = Some(Instant::now()),
            }
        }
        assert_eq!(heard < drained, workers_first, "{to:?}");
        ends(&mut tree, Exit::Code(0)).await;
    }
}
