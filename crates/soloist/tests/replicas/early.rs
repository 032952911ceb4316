//! A signal in the first milliseconds.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use crate::harness::{CHILD, Group, LIMIT, SOLOIST, send, wait_for};
use crate::namespaces;

const CONTAINER: [&str; 5] = [
    "--user",
    "--map-root-user",
    "--pid",
    "--fork",
    "--mount-proc",
];

/// What becomes of SIGTERM if it is sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Term {
    /// The first process of a container loses it; any other dies of it.
    Lost,
    Waits,
    Heard,
}

fn term(pid: u32) -> Option<Term> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let has_term = |field: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field))?;
        let set = u64::from_str_radix(line.trim(), 16).ok()?;
        Some(set & 1 << 14 != 0)
    };
    Some(match (has_term("SigCgt:")?, has_term("SigBlk:")?) {
        (true, _) => Term::Heard,
        (false, true) => Term::Waits,
        (false, false) => Term::Lost,
    })
}

/// The one child of a process, once it has become soloist.
fn soloist_below(parent: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
    let pid = children.split_whitespace().next()?.parse().ok()?;
    let program = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    (program == fs::canonicalize(SOLOIST).ok()?).then_some(pid)
}

/// Lets it run a little at a time until SIGTERM no longer is lost; what then becomes of one.
fn step(pid: u32) -> Term {
    wait_for("a program that does not lose SIGTERM", LIMIT, || {
        send(pid, Signal::STOP);
        wait_for("it to stop", LIMIT, || {
            let stopped = testbed::programs::stat_field(pid, 0)? == "T";
            stopped.then_some(())
        });
        match term(pid).unwrap() {
            Term::Lost => {
                send(pid, Signal::CONT);
                thread::sleep(Duration::from_micros(50));
                None
            }
            term => Some(term),
        }
    })
}

#[test]
fn a_signal_that_comes_before_anyone_listens_is_not_lost_by_the_first_process() {
    if !namespaces::are_there(&CONTAINER) {
        return;
    }
    // The moment is short, and may be stepped over.
    for _ in 0..20 {
        let mut group = Group::new();
        let soloist = group.soloist("r0", &[]);
        let mut command = Command::new("unshare");
        command
            .args(CONTAINER)
            .arg(soloist.get_program())
            .args(soloist.get_args())
            .arg("--")
            .arg(CHILD)
            .arg(group.path(""));
        let replica = group.spawn("r0", &mut command);
        let parent = group.replica(replica).pid();
        let pid = wait_for("soloist", LIMIT, || soloist_below(parent));
        let seen = step(pid);
        send(pid, Signal::TERM);
        send(pid, Signal::CONT);
        assert_eq!(group.replica(replica).exit_code(), 0);
        assert!(group.events("start").is_empty() || seen == Term::Heard);
        if seen == Term::Waits {
            return;
        }
    }
    panic!("SIGTERM was never held back before it was listened to");
}

#[test]
fn a_child_has_the_signal_mask_that_soloist_was_started_with() {
    let mut group = Group::new();
    let out = group.path("status");
    let mut command = group.soloist("r0", &["--once"]);
    let script = format!(
        "grep -E '^Sig(Blk|Ign)' /proc/self/status > {}",
        out.display()
    );
    let replica = group.spawn("r0", command.args(["--", "sh", "-c", &script]));
    assert_eq!(group.replica(replica).exit_code(), 0);
    let status = fs::read_to_string(&out).unwrap();
    let ours = fs::read_to_string("/proc/self/status").unwrap();
    let blocked = |status: &str| {
        let line = status.lines().find(|line| line.starts_with("SigBlk"));
        line.map(str::to_owned)
    };
    assert_eq!(blocked(&status), blocked(&ours));
}
