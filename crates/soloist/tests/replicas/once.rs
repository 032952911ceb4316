//! `--once`: the program's own exit code, and the lease is free afterwards.

use std::fs;

use rustix::process::Signal;

use crate::harness::Group;

/// Runs the plan once and gives the exit code; a standby leads afterwards, at once.
fn once(plan: &[&str]) -> i32 {
    let mut group = Group::with_long_lease();
    let (first, _) = group.lead("r0", &["--once"], plan);
    group.follow("r1", &[], &[]);
    let code = group.replica(first).exit_code();
    let start = group.wait_start("r1");
    let end = group.wait_event("end", "r0");
    assert!(start.at >= end.at);
    code
}

#[test]
fn a_program_that_ends_well_gives_0() {
    assert_eq!(once(&["after=500"]), 0);
}

#[test]
fn a_programs_own_code_is_given() {
    assert_eq!(once(&["after=500", "code=7"]), 7);
}

#[test]
fn a_signal_gives_128_and_its_number() {
    assert_eq!(once(&["after=500", "signal=9"]), 137);
    // Not SIGINT: a shell that runs the tests in the background has them ignore it, and children inherit that.
    assert_eq!(once(&["after=500", "signal=26"]), 154);
}

#[test]
fn what_it_leaves_behind_is_killed() {
    let mut group = Group::new();
    let (first, _) = group.lead("r0", &["--once"], &["daemon", "after=300", "code=7"]);
    let detached = group.wait_event("detached", "r0");
    assert_eq!(group.replica(first).exit_code(), 7);
    detached.wait_dead();
    group.lead("r1", &[], &[]);
}

#[test]
fn a_program_that_cannot_be_found_gives_127() {
    let mut group = Group::new();
    let mut command = group.soloist("r0", &["--once"]);
    let replica = group.spawn("r0", command.args(["--", "/nonexistent/program"]));
    assert_eq!(group.replica(replica).exit_code(), 127);
    group.lead("r1", &[], &[]);
}

#[test]
fn a_program_that_may_not_be_run_gives_126() {
    let mut group = Group::new();
    let file = group.path("not-executable");
    fs::write(&file, "#!/bin/sh\n").unwrap();
    let mut command = group.soloist("r0", &["--once"]);
    let replica = group.spawn("r0", command.arg("--").arg(file));
    assert_eq!(group.replica(replica).exit_code(), 126);
    group.lead("r1", &[], &[]);
}

#[test]
fn a_stop_in_between_gives_what_the_program_makes_of_it() {
    let mut group = Group::new();
    let (replica, _) = group.lead("r0", &["--once"], &["drain=100"]);
    group.replica(replica).signal(Signal::TERM);
    assert_eq!(group.replica(replica).exit_code(), 0);
    group.wait_event("drained", "r0");
}

#[test]
fn who_is_told_to_stop_before_it_ran_anything_gives_5() {
    let mut group = Group::new();
    group.lead("r0", &[], &[]);
    let standby = group.follow("r1", &["--once"], &[]);
    group.replica(standby).signal(Signal::TERM);
    assert_eq!(group.replica(standby).exit_code(), 5);
    assert!(group.running().is_some_and(|child| child.identity == "r0"));
}
