//! The tests' own means: would they notice two?

use std::fs;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::harness::{CHILD, Group};

fn run_beside(group: &Group) -> Option<i32> {
    let mut command = Command::new(CHILD);
    command.arg(group.path("")).args(["after=0"]);
    command.stderr(Stdio::null()).status().unwrap().code()
}

#[test]
fn a_second_child_is_noticed() {
    let mut group = Group::new();
    let (_, child) = group.lead("r0", &[], &[]);
    assert_eq!(run_beside(&group), Some(99));
    let overlap = fs::read_to_string(group.path("overlap")).unwrap();
    assert!(
        overlap.contains(&format!("beside {}", child.pid)),
        "{overlap}"
    );
    fs::remove_file(group.path("overlap")).unwrap();
}

#[test]
fn what_a_child_has_detached_counts_as_well() {
    let group = Group::new();
    let mut first = Command::new(CHILD)
        .arg(group.path(""))
        .arg("daemon")
        .env("SOLOIST_IDENTITY", "r0")
        .env("SOLOIST_TERM", "0")
        .env("SOLOIST_TOKEN", "0")
        .spawn()
        .unwrap();
    let detached = group.wait_event("detached", "r0");
    first.kill().unwrap();
    first.wait().unwrap();
    assert_eq!(run_beside(&group), Some(99));
    detached.signal(Signal::KILL);
    detached.wait_dead();
    fs::remove_file(group.path("overlap")).unwrap();
}
