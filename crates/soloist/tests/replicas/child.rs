//! Children that crash, cannot be started or never come up.

use std::fs;

use crate::harness::{Event, Group};

/// The time between two events, in milliseconds.
fn between(events: &[Event], first: usize) -> u64 {
    events[first + 1].at - events[first].at
}

#[test]
fn a_crashed_child_is_started_again_at_once_and_then_after_a_while() {
    let mut group = Group::new();
    group.start("r0", &[], &["after=50", "code=3"]);
    let starts = group.wait_many("start", 4);
    assert!(between(&starts, 0) < 800, "at once: {starts:?}");
    let second = between(&starts, 1);
    assert!((1000..2000).contains(&second), "about 1 s: {starts:?}");
    let third = between(&starts, 2);
    assert!((2000..3500).contains(&third), "about 2 s: {starts:?}");
    assert!(starts.iter().all(|start| start.token == starts[0].token));
}

#[test]
fn a_child_that_ends_in_order_is_started_again_too() {
    let mut group = Group::new();
    group.start("r0", &[], &["after=50", "code=0"]);
    group.wait_many("start", 2);
}

#[test]
fn after_too_many_crashes_another_leads_and_the_first_stays_out() {
    let mut group = Group::with(&["--restart-limit", "2", "--cool-down", "3s"]);
    group.lead("r0", &[], &["after=200", "code=3"]);
    let standby = group.follow("r1", &[], &[]);
    let taken = group.wait_start("r1");
    let ends = group.events("end");
    assert_eq!(ends.len(), 3, "two restarts, and no more");
    assert!(taken.at - ends[2].at < 1500, "a release is not waited out");
    // While it cools down it does not want the lease, though nobody has it.
    group.replica(standby).signal(rustix::process::Signal::TERM);
    assert_eq!(group.replica(standby).exit_code(), 0);
    let back = group.wait_journal("the first one's return", |event| {
        event.what == "start" && event.token > taken.token
    });
    assert_eq!(back.identity, "r0");
    assert!(back.at - ends[2].at >= 2900, "the cool-down holds");
}

#[test]
fn who_alone_crashes_too_often_tries_again_after_the_cool_down() {
    let mut group = Group::with(&["--restart-limit", "0", "--cool-down", "1s"]);
    group.start("r0", &[], &["after=50", "code=3"]);
    let starts = group.wait_many("start", 2);
    assert!(between(&starts, 0) >= 1000);
    assert!(starts[1].token > starts[0].token);
}

/// A replica whose program cannot be started, and one that waits for its chance.
fn cannot_start(program: &str, reason: &str) {
    let mut group = Group::with(&["--cool-down", "20s"]);
    let mut command = group.soloist("r0", &[]);
    let bad = group.spawn("r0", command.args(["--", program]));
    group.replica(bad).wait_log("from=PreLeader to=Follower");
    let log = group.replica(bad).log();
    assert!(log.contains(reason), "{log}");
    group.lead("r1", &[], &[]);
    assert!(!group.replica(bad).has_ended());
}

#[test]
fn a_program_that_is_missing_lets_another_lead() {
    cannot_start(
        "/nonexistent/program",
        "/nonexistent/program cannot be started: the program cannot be run: No such file or directory",
    );
}

#[test]
fn a_program_that_may_not_be_run_lets_another_lead() {
    let group = Group::new();
    let file = group.path("not-executable");
    fs::write(&file, "#!/bin/sh\n").unwrap();
    cannot_start(
        file.to_str().unwrap(),
        "cannot be started: the program cannot be run: Permission denied",
    );
}

#[test]
fn a_child_that_never_becomes_ready_lets_another_lead() {
    let mut group = Group::with(&["--ready", "notify", "--cool-down", "20s"]);
    let (late, _) = group.lead("r0", &["--start-limit", "500ms"], &[]);
    group.follow("r1", &[], &["ready"]);
    group.wait_start("r1");
    let log = group.replica(late).log();
    assert!(!log.contains("to=Leader"), "{log}");
    assert!(log.contains("to=PreFollower"), "{log}");
    group.wait_event("drained", "r0");
}
