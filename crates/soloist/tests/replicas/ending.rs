//! A child that wants to know is told that the Pod's end is near, before any signal.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rustix::process::Signal;
use serde_json::json;

use crate::harness::{CHILD, Group, LIMIT, is_alive, wait_for};
use crate::prestop::{ask, request, unique_name};
use crate::privileges::is_root;
use crate::skipped::skipped;

#[test]
fn a_child_that_has_asked_is_told_when_the_hook_begins_and_once() {
    let mut group = Group::new();
    let name = unique_name();
    let (replica, child) = group.lead(&name, &[], &["ending", "ready"]);
    assert!(group.events("ending").is_empty());
    for _ in 0..2 {
        assert_eq!(ask(&group, &request("prestop-begin"))["ok"], true);
    }
    group.wait_event("ending", &name);
    // It works on meanwhile, and is asked to stop later.
    assert!(is_alive(child.pid) && group.events("TERM").is_empty());
    let mut end = request("prestop-end");
    end["took_ms"] = json!(10);
    assert_eq!(ask(&group, &end)["ok"], true);
    group.replica(replica).signal(Signal::TERM);
    assert_eq!(group.replica(replica).exit_code(), 0);
    let told: Vec<_> = group
        .journal()
        .into_iter()
        .map(|event| event.what)
        .collect();
    assert_eq!(told, ["start", "ending", "TERM", "drained"]);
}

#[test]
fn a_child_that_is_started_when_the_end_is_near_is_told_as_soon_as_it_asks() {
    let mut group = Group::with(&["--ready", "notify"]);
    let name = unique_name();
    let (_, first) = group.lead(&name, &[], &["ending", "ready"]);
    assert_eq!(ask(&group, &request("prestop-begin"))["ok"], true);
    group.wait_event("ending", &name);
    first.signal(Signal::KILL);
    let told = group.wait_many("ending", 2);
    assert_ne!(told[0].pid, told[1].pid);
}

#[test]
fn a_child_that_has_not_asked_hears_nothing() {
    let mut group = Group::new();
    let name = unique_name();
    let (replica, _) = group.lead(&name, &[], &["ready"]);
    assert_eq!(ask(&group, &request("prestop-begin"))["ok"], true);
    group.replica(replica).signal(Signal::TERM);
    assert_eq!(group.replica(replica).exit_code(), 0);
    let log = group.replica(replica).log();
    assert!(!log.contains("the child is told"), "{log}");
}

#[test]
fn a_child_of_another_user_is_told() {
    if !is_root() {
        return;
    }
    let mut group = Group::new();
    let name = unique_name();
    // The build directory need not be open to everyone.
    let child = group.path("child");
    fs::copy(CHILD, &child).unwrap();
    fs::set_permissions(group.path(""), fs::Permissions::from_mode(0o1777)).unwrap();
    let mut command = group.soloist(&name, &["--user", "65534", "--group", "65534"]);
    command.arg("--").arg(child).arg(group.path(""));
    command.args(["ending", "ready"]);
    let replica = group.spawn(&name, &mut command);
    group.wait_start(&name);
    assert_eq!(ask(&group, &request("prestop-begin"))["ok"], true);
    group.wait_event("ending", &name);
    group.replica(replica).signal(Signal::TERM);
    assert_eq!(group.replica(replica).exit_code(), 0);
}

#[test]
fn a_child_that_is_told_and_never_reads_costs_nothing() {
    let mut group = Group::new();
    let name = unique_name();
    // Stopped, with its queue for others to fill.
    let (replica, child) = group.lead(&name, &[], &["ending", "ready"]);
    group.replica(replica).wait_log("to=Leader");
    child.signal(Signal::STOP);
    for _ in 0..50 {
        assert_eq!(ask(&group, &request("prestop-begin"))["ok"], true);
    }
    assert_eq!(ask(&group, &request("status"))["ending"], true);
    child.signal(Signal::CONT);
    group.wait_event("ending", &name);
}

#[test]
fn what_the_contract_shows_is_told() {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/child-contract.md");
    let text = fs::read_to_string(document).unwrap();
    let mut blocks = text.split("```python\n").skip(1);
    let shown = blocks.find_map(|block| {
        let block = block.split("```").next()?;
        block.contains("X_SOLOIST_ENDING").then(|| block.to_owned())
    });
    if !has_python() {
        return skipped("there is no python3 here");
    }
    let mut group = Group::everywhere(&[]);
    let name = unique_name();
    let (asked, told) = (group.path("asked"), group.path("told"));
    let script = shown
        .unwrap()
        .replace("while b", &format!("open({asked:?}, \"w\")\nwhile b"));
    let script = format!("import os, socket\n{script}\nopen({told:?}, \"w\")\n");
    let mut command = group.soloist(&name, &[]);
    command.args(["--", "python3", "-c", &script]);
    group.spawn(&name, &mut command);
    wait_for("the question", LIMIT, || asked.exists().then_some(()));
    assert!(!told.exists());
    assert_eq!(ask(&group, &request("prestop-begin"))["ok"], true);
    wait_for("the answer", LIMIT, || told.exists().then_some(()));
}

fn has_python() -> bool {
    let found = std::process::Command::new("python3").arg("-V").output();
    found.is_ok_and(|output| output.status.success())
}
