//! The moments around a start: what is under way when a signal comes.

use std::fs;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use testbed::programs::Dice;

use crate::harness::{Group, LIMIT, Replica, is_alive, wait_for};
use crate::held_lease::HeldLease;
use crate::place;

/// A child that ends at once has another replica lead, or the same one again, without a pause.
const ROUND_AND_ROUND: [&str; 4] = ["--restart-limit", "0", "--cool-down", "1ms"];

#[test]
fn a_signal_at_any_moment_between_two_terms_leaves_the_lease_free() {
    let mut dice = Dice::new(9);
    for _ in 0..10 {
        let mut group = Group::with_long_lease();
        let old = group.start("r0", &ROUND_AND_ROUND, &["after=1", "code=3"]);
        group.wait_many("start", 2);
        // Not a wait for anything: the moment is what differs.
        thread::sleep(Duration::from_micros(dice.below(40_000)));
        group.replica(old).signal(Signal::TERM);
        assert_eq!(group.replica(old).exit_code(), 0);
        if place::is_a_file() {
            let record = fs::read_to_string(group.path("lease")).unwrap();
            assert!(record.contains("\"holder\": null"), "{record}");
        }
        group.lead("r1", &[], &[]);
    }
}

/// The lease is taken and held, and the guard is not named in it: what begins the child's life is under way.
fn hold_up_the_naming() -> (Group, HeldLease) {
    wait_for("the moment before the guard is named", LIMIT, || {
        let mut group = Group::with(&["--grace-period", "4s"]);
        let mut held = HeldLease::of(&group);
        let replica = group.start("r0", &[], &[]);
        group.replica(replica).wait_listening();
        loop {
            let record = fs::read_to_string(group.path("lease")).unwrap_or_default();
            match record.matches("\"pid\"").count() {
                0 => drop(held),
                1 if has_acquired(group.replica(replica)) => return Some((group, held)),
                // Too early or too late; once more.
                _ => return None,
            }
            // So that the replica gets its turn.
            thread::sleep(Duration::from_micros(300));
            held = HeldLease::of(&group);
        }
    })
}

/// Or else it was in the middle of that write, and cannot tell whether the write landed.
fn has_acquired(replica: &Replica) -> bool {
    wait_for("the end of the first write", LIMIT, || {
        let log = replica.log();
        let unknown = log.contains("deleted or exchanged during a write");
        (unknown || log.contains("to=PreLeader")).then_some(!unknown)
    })
}

#[test]
fn a_child_whose_guard_is_not_named_yet_is_stopped_before_it_starts() {
    if !place::is_a_file() {
        return;
    }
    let (mut group, held) = hold_up_the_naming();
    let replica = group.replica(0);
    replica.wait_log("to=PreLeader");
    replica.signal(Signal::TERM);
    // Though nobody gets at the lease yet.
    replica.wait_log("nothing is left of the child");
    drop(held);
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
    let (mut group, held) = hold_up_the_naming();
    group.replica(0).wait_log("to=PreLeader");
    assert!(group.events("start").is_empty());
    drop(held);
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
