//! When the child counts as up, and what is done when it is not well.

use std::fs;
use std::net::TcpListener;

use crate::harness::Group;

fn health(group: &Group) -> String {
    format!("exec:test -e {}", group.path("healthy").display())
}

const OFTEN: [&str; 2] = ["--health-interval", "100ms"];

#[test]
fn ready_makes_it_the_leader() {
    let mut group = Group::with(&["--ready", "notify"]);
    let (replica, _) = group.lead("r0", &[], &["ready"]);
    group.replica(replica).wait_log("from=PreLeader to=Leader");
}

#[test]
fn a_probe_that_passes_makes_it_the_leader() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let probe = format!("tcp:{}", listener.local_addr().unwrap());
    let mut group = Group::new();
    let (replica, _) = group.lead("r0", &["--ready", &probe], &[]);
    group.replica(replica).wait_log("from=PreLeader to=Leader");
}

#[test]
fn a_probe_that_does_not_pass_yet_says_why_once() {
    let mut group = Group::new();
    let script = format!("exec:test -e {} || exit 3", group.path("up").display());
    let (replica, _) = group.lead("r0", &["--ready", &script], &[]);
    let line = group
        .replica(replica)
        .wait_log("the child is not ready yet");
    assert!(line.contains("exit status: 3"), "{line}");
    fs::write(group.path("up"), "").unwrap();
    group.replica(replica).wait_log("to=Leader");
    let log = group.replica(replica).log();
    assert_eq!(log.matches("not ready yet").count(), 1, "{log}");
}

#[test]
fn a_child_that_is_not_well_is_stopped_in_order_and_started_again() {
    let mut group = Group::with(&OFTEN);
    fs::write(group.path("healthy"), "").unwrap();
    let (replica, child) = group.lead("r0", &["--health", &health(&group)], &["drain=200"]);
    group.replica(replica).wait_log("to=Leader");
    fs::remove_file(group.path("healthy")).unwrap();
    group.replica(replica).wait_log("asking the child to stop");
    let log = group.replica(replica).log();
    assert_eq!(log.matches("health check failed").count(), 3, "{log}");
    fs::write(group.path("healthy"), "").unwrap();
    let starts = group.wait_many("start", 2);
    let drained = group.wait_event("drained", "r0");
    assert_eq!(drained.pid, child.pid);
    assert!(starts[1].at >= drained.at);
    assert_eq!(starts[1].token, starts[0].token, "the same term");
}

#[test]
fn a_child_that_is_not_well_lets_another_lead_if_so_wished() {
    let mut group = Group::with(&OFTEN);
    fs::write(group.path("healthy"), "").unwrap();
    let flags = ["--health", &health(&group), "--on-unhealthy", "step-down"];
    let (replica, _) = group.lead("r0", &flags, &["drain=200"]);
    group.replica(replica).wait_log("to=Leader");
    group.follow("r1", &[], &[]);
    fs::remove_file(group.path("healthy")).unwrap();
    let start = group.wait_start("r1");
    assert!(start.at >= group.wait_event("drained", "r0").at);
    let log = group.replica(replica).log();
    assert_eq!(log.matches("health check failed").count(), 3, "{log}");
}

#[test]
fn a_failure_now_and_then_is_none() {
    let mut group = Group::with(&OFTEN);
    let count = group.path("count").display().to_string();
    // Two of three fail.
    let script = format!("echo >> {count}; test $(($(wc -l < {count}) % 3)) = 0");
    let (replica, child) = group.lead("r0", &["--health", &format!("exec:{script}")], &[]);
    let log = |group: &mut Group| group.replica(replica).log();
    crate::harness::wait_for("six failures", crate::harness::LIMIT, || {
        (log(&mut group).matches("health check failed").count() >= 6).then_some(())
    });
    let running = group.running();
    assert!(running.is_some_and(|running| running.pid == child.pid));
}

#[test]
fn a_watchdog_that_falls_silent_is_not_well() {
    let mut group = Group::with(&["--ready", "notify", "--health", "notify"]);
    let flags = ["--health-interval", "400ms"];
    let plan = ["ready", "watchdog=50"];
    let (replica, child) = group.lead("r0", &flags, &plan);
    group.replica(replica).wait_log("to=Leader");
    // Six intervals, in which three missed beats would have done it.
    std::thread::sleep(std::time::Duration::from_millis(2400));
    let running = group.running();
    assert!(running.is_some_and(|running| running.pid == child.pid));
    fs::write(group.path("silent"), "").unwrap();
    let asked = group.wait_event("TERM", "r0");
    assert_eq!(asked.pid, child.pid);
    fs::remove_file(group.path("silent")).unwrap();
    group.wait_many("start", 2);
}

#[test]
fn a_child_that_talks_without_end_keeps_nobody_else_from_being_heard() {
    let mut group = Group::new();
    let flags = ["--grace-period", "20s"];
    let (replica, child) = group.lead("r0", &flags, &["flood", "drain=10"]);
    // Long enough for the lease to end twice, had it not been renewed.
    std::thread::sleep(2 * crate::harness::lease());
    let running = group.running();
    assert!(running.is_some_and(|running| running.pid == child.pid));
    let log = group.replica(replica).log();
    assert!(!log.contains("is lost"), "{log}");
    group.replica(replica).signal(rustix::process::Signal::TERM);
    assert_eq!(group.replica(replica).exit_code(), 0);
    group.wait_event("drained", "r0");
}
