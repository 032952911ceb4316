//! Planned stops: the child ends in order, then the lease is released, then the next one starts.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::harness::{Group, lease};

const PATIENT: [&str; 2] = ["--grace-period", "20s"];
/// Stop timeout 3 s.
const HASTY: [&str; 2] = ["--grace-period", "4s"];
/// Well under a second, on a machine with other things to do.
const AT_ONCE: Duration = Duration::from_millis(900);

#[test]
fn the_next_starts_when_the_old_one_has_drained() {
    let mut group = Group::with(&PATIENT);
    let (old, _) = group.lead("r0", &[], &["drain=300"]);
    let next = group.follow("r1", &[], &[]);
    group.replica(old).signal(Signal::TERM);
    assert_eq!(group.replica(old).exit_code(), 0);
    let start = group.wait_start("r1");
    let drained = group.wait_event("drained", "r0");
    assert!(drained.at <= start.at);
    assert!(start.token > drained.token);
    group.replica(next).signal(Signal::TERM);
    assert_eq!(group.replica(next).exit_code(), 0);
}

#[test]
fn a_drain_may_take_longer_than_the_lease() {
    let mut group = Group::with(&PATIENT);
    let (old, _) = group.lead("r0", &[], &["drain=3000"]);
    group.follow("r1", &[], &[]);
    group.replica(old).signal(Signal::TERM);
    assert_eq!(group.replica(old).exit_code(), 0);
    let asked = group.wait_event("TERM", "r0");
    let drained = group.wait_event("drained", "r0");
    let start = group.wait_start("r1");
    assert!(drained.at - asked.at >= 3000);
    assert!(start.at >= drained.at);
    let gap = Duration::from_millis(start.at - drained.at);
    assert!(gap < lease(), "a release is not waited out: {gap:?}");
}

#[test]
fn a_child_that_ignores_the_signal_is_killed_at_the_stop_timeout() {
    let mut group = Group::with(&HASTY);
    let (old, child) = group.lead("r0", &[], &["deaf"]);
    group.follow("r1", &[], &[]);
    let asked = Instant::now();
    group.replica(old).signal(Signal::TERM);
    assert_eq!(group.replica(old).exit_code(), 1);
    assert!(asked.elapsed() >= Duration::from_secs(3));
    child.wait_dead();
    group.wait_start("r1");
}

#[test]
fn what_a_child_has_detached_is_killed_at_the_stop_timeout() {
    let mut group = Group::with(&HASTY);
    let (old, _) = group.lead("r0", &[], &["daemon"]);
    let detached = group.wait_event("detached", "r0");
    group.follow("r1", &[], &[]);
    group.replica(old).signal(Signal::TERM);
    assert_eq!(group.replica(old).exit_code(), 1);
    detached.wait_dead();
    group.wait_start("r1");
}

#[test]
fn a_standby_ends_at_once() {
    let mut group = Group::new();
    group.lead("r0", &[], &[]);
    let standby = group.follow("r1", &[], &[]);
    let asked = Instant::now();
    group.replica(standby).signal(Signal::TERM);
    assert_eq!(group.replica(standby).exit_code(), 0);
    assert!(asked.elapsed() < AT_ONCE, "{:?}", asked.elapsed());
    assert!(group.running().is_some_and(|child| child.identity == "r0"));
}

#[test]
fn sigint_is_as_good_as_sigterm() {
    let mut group = Group::with(&PATIENT);
    let (old, _) = group.lead("r0", &[], &["drain=100"]);
    group.replica(old).signal(Signal::INT);
    assert_eq!(group.replica(old).exit_code(), 0);
    group.wait_event("drained", "r0");
}

#[test]
fn a_child_that_is_not_ready_yet_is_stopped_in_order() {
    let mut group = Group::with(&PATIENT);
    let flags = ["--ready", "notify"];
    let (old, _) = group.lead("r0", &flags, &["drain=300"]);
    group.replica(old).signal(Signal::TERM);
    assert_eq!(group.replica(old).exit_code(), 0);
    group.wait_event("drained", "r0");
    assert!(!group.replica(old).log().contains("to=Leader"));
}

#[test]
fn the_second_signal_kills_at_once() {
    let mut group = Group::with(&PATIENT);
    let (old, child) = group.lead("r0", &[], &["drain=10000"]);
    group.follow("r1", &[], &[]);
    group.replica(old).signal(Signal::TERM);
    group.wait_event("TERM", "r0");
    let asked = Instant::now();
    group.replica(old).signal(Signal::TERM);
    assert_eq!(group.replica(old).exit_code(), 1);
    assert!(asked.elapsed() < AT_ONCE, "{:?}", asked.elapsed());
    child.wait_dead();
    group.wait_start("r1");
    assert!(group.events("drained").is_empty());
}

#[test]
fn two_signals_in_a_row_end_it_whatever_has_come_of_the_first() {
    let mut group = Group::with(&PATIENT);
    let (old, child) = group.lead("r0", &[], &["drain=10000"]);
    group.follow("r1", &[], &[]);
    group.replica(old).signal(Signal::TERM);
    // Not the same, since two of a kind may become one.
    group.replica(old).signal(Signal::INT);
    assert_eq!(group.replica(old).exit_code(), 1);
    child.wait_dead();
    group.wait_start("r1");
}

#[test]
fn a_signal_in_the_midst_of_the_start_ends_it() {
    for _ in 0..5 {
        let mut group = Group::with(&PATIENT);
        let old = group.start("r0", &[], &[]);
        group.replica(old).wait_log("elected");
        group.replica(old).signal(Signal::TERM);
        let asked = Instant::now();
        assert_eq!(group.replica(old).exit_code(), 0);
        assert!(asked.elapsed() < AT_ONCE, "{:?}", asked.elapsed());
        assert!(group.running().is_none());
        let (_, next) = group.lead("r1", &[], &[]);
        assert!(next.token > 0);
    }
}

#[test]
fn a_signal_before_the_election_ends_it() {
    for _ in 0..5 {
        let mut group = Group::new();
        let old = group.start("r0", &[], &[]);
        group.replica(old).wait_listening();
        group.replica(old).signal(Signal::TERM);
        assert_eq!(group.replica(old).exit_code(), 0);
        assert!(group.running().is_none());
    }
}

#[test]
fn a_signal_while_stepping_down_lets_the_child_drain() {
    let mut group = Group::with(&PATIENT);
    let flags = ["--ready", "notify", "--start-limit", "300ms"];
    let (replica, _) = group.lead("r0", &flags, &["drain=1000"]);
    group.replica(replica).wait_log("to=PreFollower");
    group.replica(replica).signal(Signal::TERM);
    assert_eq!(group.replica(replica).exit_code(), 0);
    group.wait_event("drained", "r0");
}

#[test]
fn a_signal_between_two_starts_ends_it_at_once() {
    let mut group = Group::with(&PATIENT);
    let replica = group.start("r0", &[], &["after=50", "code=3"]);
    // The second crash is followed by a pause of a second.
    group.wait_many("end", 2);
    let log = |group: &mut Group| group.replica(replica).log();
    crate::harness::wait_for("the second end", crate::harness::LIMIT, || {
        (log(&mut group).matches("nothing is left").count() == 2).then_some(())
    });
    let asked = Instant::now();
    group.replica(replica).signal(Signal::TERM);
    assert_eq!(group.replica(replica).exit_code(), 0);
    assert!(asked.elapsed() < AT_ONCE, "{:?}", asked.elapsed());
    assert_eq!(group.events("start").len(), 2);
}

#[test]
fn a_signal_while_cooling_down_ends_it_at_once() {
    let mut group = Group::with(&["--restart-limit", "0"]);
    let (replica, _) = group.lead("r0", &[], &["after=50", "code=3"]);
    group.replica(replica).wait_log("the lease is released");
    let asked = Instant::now();
    group.replica(replica).signal(Signal::TERM);
    assert_eq!(group.replica(replica).exit_code(), 0);
    assert!(asked.elapsed() < AT_ONCE, "{:?}", asked.elapsed());
}

#[test]
fn other_signals_go_to_the_child() {
    let mut group = Group::new();
    let (replica, _) = group.lead("r0", &[], &[]);
    group.replica(replica).wait_log("to=Leader");
    for (signal, name) in [
        (Signal::HUP, "HUP"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
    ] {
        group.replica(replica).signal(signal);
        group.wait_event(name, "r0");
    }
    assert_eq!(group.events("start").len(), 1);
}

#[test]
fn a_stop_signal_of_ones_own_is_used() {
    let mut group = Group::with(&HASTY);
    let (replica, _) = group.lead("r0", &["--stop-signal", "USR1"], &[]);
    group.replica(replica).signal(Signal::TERM);
    group.wait_event("USR1", "r0");
    assert_eq!(group.replica(replica).exit_code(), 1);
    assert!(group.events("TERM").is_empty());
}
