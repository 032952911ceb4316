//! The moments around a start: what is under way when a signal comes.

use std::fs::{self, File};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testbed::programs::Dice;

use crate::harness::{Group, LIMIT, is_alive, lease, wait_for};
use crate::place;

/// A child that ends at once has another replica lead, or the same one again, without a pause.
const ROUND_AND_ROUND: [&str; 4] = ["--restart-limit", "0", "--cool-down", "1ms"];

#[test]
fn a_signal_at_any_moment_between_two_terms_leaves_the_lease_free() {
    let mut dice = Dice::new(9);
    for _ in 0..10 {
        let mut group = Group::with(&ROUND_AND_ROUND);
        let old = group.start("r0", &[], &["after=1", "code=3"]);
        group.wait_many("start", 2);
        // Not a wait for anything: the moment is what differs.
        thread::sleep(Duration::from_micros(dice.below(40_000)));
        group.replica(old).signal(Signal::TERM);
        assert_eq!(group.replica(old).exit_code(), 0);
        if place::is_a_file() {
            let record = fs::read_to_string(group.path("lease")).unwrap();
            assert!(record.contains("\"holder\": null"), "{record}");
        }
        let freed = Instant::now();
        group.lead("r1", &[], &[]);
        assert!(freed.elapsed() < lease() / 2, "{:?}", freed.elapsed());
    }
}

/// The lease is taken, its lock is ours, and the guard is not named in it: what begins the child's life is under way.
fn hold_up_the_naming() -> (Group, File) {
    wait_for("the moment before the guard is named", LIMIT, || {
        let mut group = Group::with(&["--grace-period", "4s"]);
        let lock = File::create(group.path("lease.lock")).unwrap();
        let replica = group.start("r0", &[], &[]);
        group.replica(replica).wait_listening();
        loop {
            lock.lock().unwrap();
            let record = fs::read_to_string(group.path("lease")).unwrap_or_default();
            match record.matches("\"pid\"").count() {
                0 => lock.unlock().unwrap(),
                1 => return Some((group, lock)),
                // Too late; once more.
                _ => return None,
            }
            // So that the replica gets its turn.
            thread::sleep(Duration::from_micros(300));
        }
    })
}

#[test]
fn a_child_whose_guard_is_not_named_yet_is_stopped_before_it_starts() {
    if !place::is_a_file() {
        return;
    }
    let (mut group, lock) = hold_up_the_naming();
    let replica = group.replica(0);
    replica.wait_log("to=PreLeader");
    replica.signal(Signal::TERM);
    // Though the lock is still held.
    replica.wait_log("nothing is left of the child");
    lock.unlock().unwrap();
    assert_eq!(replica.exit_code(), 0);
    assert!(group.events("start").is_empty());
    let record = fs::read_to_string(group.path("lease")).unwrap();
    assert!(record.contains("\"holder\": null"), "{record}");
}

#[test]
fn a_child_starts_when_its_guard_is_named_and_not_before() {
    if !place::is_a_file() {
        return;
    }
    let (mut group, lock) = hold_up_the_naming();
    group.replica(0).wait_log("to=PreLeader");
    assert!(group.events("start").is_empty());
    lock.unlock().unwrap();
    let child = group.wait_start("r0");
    let record = fs::read_to_string(group.path("lease")).unwrap();
    let guard = child.guard().unwrap();
    assert!(record.contains(&format!("\"pid\": {guard},")), "{record}");
    assert!(is_alive(guard));
}

#[test]
fn without_descriptors_it_says_so_and_exits_as_documented() {
    for limit in ["4", "6", "8"] {
        let mut group = Group::new();
        let mut command = group.soloist("r0", &["--once"]);
        let shell = format!("ulimit -n {limit}; exec \"$0\" \"$@\"");
        let mut command = Group::under(&["sh", "-c", &shell], command.args(["--", "true"]));
        let replica = group.spawn("r0", &mut command);
        assert_eq!(group.replica(replica).exit_code(), 6, "with {limit}");
        let log = group.replica(replica).log();
        assert!(log.contains("ulimit -n"), "with {limit}: {log}");
    }
}
