//! Which variables the child has, and which it has not.

use std::fs;

use rustix::process::Signal;

use crate::harness::{CHILD, Group, SOLOIST};

#[test]
fn a_child_has_no_variable_of_a_flag_and_none_that_soloists_supervisor_meant_for_soloist() {
    let mut group = Group::new();
    let mut command = group.soloist("r0", &[]);
    command
        .arg("--")
        .arg(CHILD)
        .arg(group.path(""))
        .args(["env", "after=60000"])
        .env("SOLOIST_GRACE_PERIOD", "20s")
        .env("SOLOIST_STOP_TIMEOUT", "14s")
        .env("SOLOIST_LOG_LEVEL", "debug")
        .env("SOLOIST_KUBECONFIG", "/nowhere")
        .env("SOLOIST_MINE", "kept")
        .env("NOTIFY_SOCKET", "/nowhere")
        .env("WATCHDOG_USEC", "1")
        .env("WATCHDOG_PID", "1")
        .env("LISTEN_FDS", "1")
        .env("LISTEN_PID", "1")
        .env("LISTEN_FDNAMES", "x");
    group.spawn("r0", &mut command);
    group.wait_start("r0");
    let told = fs::read_to_string(group.path("env")).unwrap();
    let value = |name: &str| {
        let start = format!("{name}=");
        told.lines().find_map(|line| line.strip_prefix(&start))
    };
    for name in [
        "SOLOIST_GRACE_PERIOD",
        "SOLOIST_STOP_TIMEOUT",
        "SOLOIST_LOG_LEVEL",
        "SOLOIST_KUBECONFIG",
        "WATCHDOG_USEC",
        "WATCHDOG_PID",
        "LISTEN_FDS",
        "LISTEN_PID",
        "LISTEN_FDNAMES",
    ] {
        assert_eq!(value(name), None, "{name}");
    }
    assert_eq!(value("SOLOIST_MINE"), Some("kept"));
    assert_eq!(value("SOLOIST_NAME"), Some("test"));
    assert_eq!(value("SOLOIST_STOP_SECONDS"), Some("9"));
    assert_eq!(value("SOLOIST_DRAIN_SECONDS"), Some("4"));
    assert!(value("NOTIFY_SOCKET").is_some_and(|path| path != "/nowhere"));
}

#[test]
fn soloist_runs_under_soloist() {
    let mut group = Group::with(&["--grace-period", "20s"]);
    let mut command = group.soloist("outer", &[]);
    let inner = format!("file:{}", group.path("inner").display());
    command
        .args(["--", SOLOIST, "run", "--store", &inner])
        .args(["--grace-period", "8s", "--lease-duration", "2s"])
        .args(["--renew-deadline", "1400ms", "--retry-period", "200ms"])
        .arg("--")
        .arg(CHILD)
        .arg(group.path(""))
        .arg("drain=50")
        .env("SOLOIST_STOP_TIMEOUT", "15s");
    let outer = group.spawn("outer", &mut command);
    let start = group.wait_many("start", 1).remove(0);
    assert_eq!(start.rest[0], "name=soloist-test-child", "not the outer's");
    assert_ne!(start.identity, "outer");
    assert_eq!(start.rest[1], "stop_seconds=4");
    group.replica(outer).signal(Signal::TERM);
    assert_eq!(group.replica(outer).exit_code(), 0);
    group.wait_many("drained", 1);
}
