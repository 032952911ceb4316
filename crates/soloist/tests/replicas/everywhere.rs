//! `--store none`: every replica runs its child, under the same supervisor.

use std::fs;
use std::process::Output;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::harness::{CHILD, Group, LIMIT, is_alive, wait_for};

/// Longer than the lease that there would be without `--store none`.
const LONGER_THAN_A_LEASE: Duration = Duration::from_secs(16);

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn two_replicas_of_one_name_run_two_programs() {
    let mut group = Group::everywhere(&[]);
    let script = r#"echo $$ > "$0/runs-$SOLOIST_IDENTITY.new" && mv "$0/runs-$SOLOIST_IDENTITY.new" "$0/runs-$SOLOIST_IDENTITY" && exec sleep 1000"#;
    let replicas = ["r0", "r1"].map(|identity| {
        let mut command = group.soloist(identity, &[]);
        command.args(["--", "sh", "-c", script]).arg(group.path(""));
        group.spawn(identity, &mut command)
    });
    let running = ["r0", "r1"].map(|identity| {
        let path = group.path(&format!("runs-{identity}"));
        wait_for("a program that runs", LIMIT, || {
            fs::read_to_string(&path).ok()?.trim().parse().ok()
        })
    });
    assert_ne!(running[0], running[1]);
    for pid in running {
        assert!(is_alive(pid), "both run");
    }
    for replica in replicas {
        group.replica(replica).signal(Signal::TERM);
        assert_eq!(group.replica(replica).exit_code(), 0);
    }
    for pid in running {
        assert!(!is_alive(pid), "and both end");
    }
}

#[test]
fn a_stop_signal_drains_and_nothing_is_said_of_leases() {
    let mut group = Group::everywhere(&["--log-level", "debug", "--log-status", "100ms"]);
    let (replica, child) = group.lead("r0", &[], &["drain=300"]);
    group.replica(replica).wait_log("status state=Running");
    group.replica(replica).signal(Signal::TERM);
    assert_eq!(group.replica(replica).exit_code(), 0);
    group.wait_event("drained", "r0");
    child.wait_dead();
    let log = group.replica(replica).log();
    for line in log.lines().map(str::to_lowercase) {
        let words = [
            "lease", "leader", "elected", " term ", "term=", "token", "follower",
        ];
        for word in words {
            let is_first = line.contains("nobody is elected, every replica runs the program");
            assert!(is_first || !line.contains(word), "{word}: {line}");
        }
    }
}

#[test]
fn a_child_that_ignores_the_signal_is_killed_and_the_exit_code_says_so() {
    let mut group = Group::everywhere(&["--grace-period", "4s"]);
    let (replica, child) = group.lead("r0", &[], &["deaf"]);
    group.replica(replica).signal(Signal::TERM);
    assert_eq!(group.replica(replica).exit_code(), 1);
    child.wait_dead();
}

#[test]
fn a_child_that_crashes_is_started_again_at_once_and_then_after_waits() {
    let mut group = Group::everywhere(&[]);
    let replica = group.start("r0", &[], &["after=50", "code=3"]);
    let starts = group.wait_many("start", 3);
    let wait = Duration::from_millis(starts[2].at - starts[1].at);
    assert!(wait >= Duration::from_secs(1), "{wait:?}");
    group.replica(replica).signal(Signal::TERM);
    assert_eq!(group.replica(replica).exit_code(), 0);
}

#[test]
fn a_child_is_up_when_it_says_so_and_is_restarted_when_it_falls_silent() {
    let flags = [
        "--ready=notify",
        "--health=notify",
        "--health-interval=300ms",
        "--health-threshold=2",
    ];
    let mut group = Group::everywhere(&flags);
    let (replica, _) = group.lead("r0", &[], &["ready", "watchdog=50"]);
    group.replica(replica).wait_log("from=Starting to=Running");
    fs::write(group.path("silent"), "").unwrap();
    group.wait_many("start", 2);
    group.replica(replica).wait_log("from=Running to=Starting");
}

#[test]
fn nothing_is_left_of_the_child_when_soloist_is_killed() {
    let mut group = Group::everywhere(&[]);
    let (replica, child) = group.lead("r0", &[], &["deaf", "daemon"]);
    let daemon = group.wait_event("detached", "r0");
    group.replica(replica).signal(Signal::KILL);
    group.replica(replica).exit();
    child.wait_dead();
    daemon.wait_dead();
}

#[test]
fn a_soloist_that_stands_still_for_longer_than_a_lease_costs_no_child() {
    let mut group = Group::everywhere(&[]);
    let (replica, child) = group.lead("r0", &[], &[]);
    let still = Instant::now();
    group.replica(replica).signal(Signal::STOP);
    while still.elapsed() < LONGER_THAN_A_LEASE {
        assert!(is_alive(child.pid), "after {:?}", still.elapsed());
        thread::sleep(Duration::from_millis(200));
    }
    group.replica(replica).signal(Signal::CONT);
    group.replica(replica).signal(Signal::TERM);
    assert_eq!(group.replica(replica).exit_code(), 0);
    assert_eq!(group.events("start").len(), 1);
}

#[test]
fn a_programs_own_code_is_given_with_once() {
    let mut group = Group::everywhere(&["--once"]);
    let (replica, _) = group.lead("r0", &[], &["after=50", "code=7"]);
    assert_eq!(group.replica(replica).exit_code(), 7);
}

#[test]
fn a_child_has_no_term_and_no_token_also_none_of_another_soloist() {
    let mut group = Group::everywhere(&[]);
    let mut command = group.soloist("r0", &[]);
    command
        .arg("--")
        .arg(CHILD)
        .arg(group.path(""))
        .arg("env")
        .env("SOLOIST_TERM", "3")
        .env("SOLOIST_TOKEN", "4711");
    group.spawn("r0", &mut command);
    group.wait_start("r0");
    let told = fs::read_to_string(group.path("env")).unwrap();
    assert!(!told.contains("SOLOIST_TERM"), "{told}");
    assert!(!told.contains("SOLOIST_TOKEN"), "{told}");
    assert!(told.contains("SOLOIST_STOP_SECONDS=20"), "{told}");
}

#[test]
fn what_is_about_a_lease_is_refused_with_words() {
    let group = Group::everywhere(&[]);
    let flags = ["--lease-duration", "15s"];
    let output = group.child("r0", &flags, &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = said(&output);
    assert!(text.contains("with --store none there is none"), "{text}");
    for words in [&["status"][..], &["handover"], &["pause"]] {
        let mut command = group.command(words);
        let output = command.env("SOLOIST_STORE", "none").output().unwrap();
        let text = said(&output);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {text}");
        assert!(
            text.contains("with --store none there is no lease"),
            "{text}"
        );
    }
}
