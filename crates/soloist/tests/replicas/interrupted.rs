//! Replicas that are stopped in the middle of a write to the lease file.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use testbed::programs::Dice;

use crate::harness::{Group, LIMIT, is_alive, wait_for};
use crate::place::is_a_file;
use crate::skipped::skipped;

struct Tracer(Child);

impl Drop for Tracer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Stops a process once the thread that works on its lease file has made so many of these system calls. `None`, said aloud, where that cannot be.
fn stop_in_write(pid: u32, call: &str, nth: u32) -> Option<()> {
    let tasks = format!("/proc/{pid}/task");
    let working = fs::read_dir(tasks).unwrap().find_map(|task| {
        let task = task.unwrap();
        let name = fs::read_to_string(task.path().join("comm")).ok()?;
        (name.trim() == "lease-file").then(|| task.file_name().into_string().unwrap())
    });
    let mut strace = Command::new("strace");
    strace.args(["-p", &working.unwrap(), "-e", &format!("trace={call}")]);
    strace.args(["-e", &format!("inject={call}:signal=SIGSTOP:when={nth}")]);
    let spawned = strace.stdin(Stdio::null()).stderr(Stdio::piped()).spawn();
    let Ok(mut strace) = spawned else {
        skipped("there is no strace");
        return None;
    };
    let lines = BufReader::new(strace.stderr.take().unwrap()).lines();
    let _tracer = Tracer(strace);
    let mut lines = lines.map_while(Result::ok);
    if !lines.any(|line| line.contains("--- stopped by SIGSTOP")) {
        skipped("this user may trace nobody");
        return None;
    }
    Some(())
}

#[test]
fn a_leader_that_is_stopped_in_the_middle_of_a_write_is_succeeded_and_then_follows() {
    if !is_a_file() {
        return;
    }
    // With a draft, with the head moved, with the record replaced.
    for (call, nth) in [("fsync", 1), ("renameat", 1), ("renameat", 2)] {
        let mut group = Group::with(&["--grace-period", "4s"]);
        let (leader, child) = group.lead("r0", &[], &["drain=60000"]);
        group.replica(leader).wait_log("to=Leader");
        group.follow("r1", &[], &["drain=0"]);
        let pid = group.replica(leader).pid();
        if stop_in_write(pid, call, nth).is_none() {
            return;
        }
        // The lock of the children would tell of two.
        group.wait_start("r1");
        assert!(!is_alive(child.pid), "{call} {nth}");
        group.replica(leader).signal(Signal::CONT);
        group.replica(leader).wait_log("to=Follower");
        let running = group.running();
        assert!(running.is_some_and(|child| child.identity == "r1"));
    }
}

/// Some of them are in the middle of a write then.
#[test]
fn leaders_that_are_stopped_at_random_moments_are_succeeded() {
    let mut dice = Dice::new(10);
    let mut group = Group::with(&["--grace-period", "4s"]);
    group.lead("r0", &[], &["drain=0"]);
    group.follow("r1", &[], &["drain=0"]);
    for round in 0..6 {
        let running = group.wait_many("start", round + 1).pop().unwrap();
        let leader = usize::from(running.identity == "r1");
        group.replica(leader).wait_log("to=Leader");
        // Not a wait for anything: the moment is what differs.
        thread::sleep(Duration::from_micros(dice.below(700_000)));
        group.replica(leader).signal(Signal::STOP);
        wait_for("the other one's child", LIMIT, || {
            let now = group.running()?;
            (now.identity != running.identity).then_some(())
        });
        group.replica(leader).signal(Signal::CONT);
    }
}
