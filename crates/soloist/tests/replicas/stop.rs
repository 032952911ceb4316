//! Planned stops: the child ends in order, then the lease is released, then the next one starts.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::harness::{Group, LIMIT, lease, wait_for};

const PATIENT: [&str; 2] = ["--grace-period", "20s"];
/// Stop timeout 3 s.
const HASTY: [&str; 2] = ["--grace-period", "4s"];
/// On a machine with other things to do. What would be waited for otherwise takes twice as long.
const AT_ONCE: Duration = Duration::from_secs(5);

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
fn what_a_child_has_detached_does_not_hold_a_handover_for_the_whole_stop_timeout() {
    let mut group = Group::with(&PATIENT);
    let (old, _) = group.lead("r0", &[], &["daemon"]);
    let detached = group.wait_event("detached", "r0");
    group.follow("r1", &[], &[]);
    let asked = Instant::now();
    group.replica(old).signal(Signal::TERM);
    assert_eq!(
        group.replica(old).exit_code(),
        0,
        "the child ended in order"
    );
    assert!(asked.elapsed() < Duration::from_secs(6), "not 15 s");
    detached.wait_dead();
    group.wait_start("r1");
}

#[test]
fn what_a_child_has_detached_is_killed_at_the_stop_timeout_if_that_is_shorter() {
    let mut group = Group::with(&HASTY);
    let (old, child) = group.lead("r0", &[], &["daemon", "deaf"]);
    let detached = group.wait_event("detached", "r0");
    group.follow("r1", &[], &[]);
    group.replica(old).signal(Signal::TERM);
    assert_eq!(group.replica(old).exit_code(), 1);
    child.wait_dead();
    detached.wait_dead();
    group.wait_start("r1");
}

#[test]
fn the_stop_signal_can_go_to_the_child_alone() {
    let workers = "trap 'echo asked; sleep 1; kill -9 $(cat worker); wait; echo over; exit 0' TERM; \
                   sh -c 'trap \"echo worker asked\" TERM; echo $$ >worker; while :; do sleep 0.1; done' & \
                   while :; do sleep 0.1; done";
    for (to, heard) in [("child", false), ("group", true)] {
        let mut group = Group::with(&PATIENT);
        let mut command = group.soloist("r0", &["--stop-to", to]);
        command.args(["--", "sh", "-c", workers]);
        let out = std::fs::File::create(group.path("out")).unwrap();
        command.current_dir(group.path("")).stdout(out);
        let replica = group.spawn("r0", &mut command);
        let said = |group: &Group, name: &str| {
            std::fs::read_to_string(group.path(name)).unwrap_or_default()
        };
        wait_for("the worker", LIMIT, || {
            (!said(&group, "worker").is_empty()).then_some(())
        });
        group.replica(replica).signal(Signal::TERM);
        assert_eq!(group.replica(replica).exit_code(), 0);
        let out = said(&group, "out");
        assert!(out.contains("over"), "{out}");
        assert_eq!(out.contains("worker asked"), heard, "{to}: {out}");
    }
}

#[test]
fn a_standby_ends_at_once() {
    let mut group = Group::with_long_lease();
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
    // Without a terminal, wherever the tests run: on one, the two would be one request.
    let mut command = Group::under(&["setsid"], &group.child("r0", &[], &["drain=10000"]));
    let old = group.spawn("r0", &mut command);
    let child = group.wait_start("r0");
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
    wait_for("the second end", LIMIT, || {
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
    let mut group = Group::with(&["--restart-limit", "0", "--cool-down", "15s"]);
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

#[test]
fn a_signal_that_is_the_stop_signal_means_stop() {
    // As an image says it: STOPSIGNAL SIGQUIT, SIGWINCH, SIGRTMIN+3.
    for (name, number) in [("QUIT", 3), ("WINCH", 28), ("RTMIN+3", 37)] {
        let mut group = Group::with(&HASTY);
        let (replica, _) = group.lead("r0", &["--stop-signal", name], &["deaf"]);
        group.replica(replica).wait_log("to=Leader");
        kill(group.replica(replica).pid(), number);
        group.replica(replica).wait_log("asked to stop");
        let code = group.replica(replica).exit_code();
        // Only SIGQUIT ends a child that does not listen to it.
        assert_eq!(code, i32::from(name != "QUIT"), "{name}");
        assert_eq!(group.events("start").len(), 1, "{name}");
    }
}

#[test]
fn a_real_time_signal_goes_to_the_child_and_does_not_end_us() {
    let mut group = Group::new();
    let (replica, child) = group.lead("r0", &[], &[]);
    group.replica(replica).wait_log("to=Leader");
    // The test's child does not listen to it, and dies of it: it is started again.
    kill(group.replica(replica).pid(), 64);
    group.replica(replica).wait_log("exit=Signal(64)");
    child.wait_dead();
    let second = &group.wait_many("start", 2)[1];
    kill(group.replica(replica).pid(), 37);
    let heard = group.wait_event("RTMIN+3", "r0");
    assert_eq!(heard.pid, second.pid);
    assert!(!group.replica(replica).has_ended());
}

/// Any signal, by its number.
fn kill(pid: u32, number: i32) {
    let mut kill = std::process::Command::new("kill");
    let status = kill.arg(format!("-{number}")).arg(pid.to_string()).status();
    assert!(status.unwrap().success());
}
