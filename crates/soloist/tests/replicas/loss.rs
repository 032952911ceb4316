//! Replicas and guards that die or stop without a word: the tree is dead before the next one starts.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::harness::{CHILD, Event, Group, LIMIT, is_alive, lease, send, wait_for};
use crate::held_lease::HeldLease;

const PLANS: [&[&str]; 3] = [&["drain=60000"], &["deaf"], &["daemon", "deaf"]];

/// A leader with such a child, and a standby.
struct Pair {
    group: Group,
    leader: usize,
    tree: Vec<Event>,
}

impl Pair {
    fn new(plan: &[&str]) -> Self {
        Self::in_group(Group::new(), plan)
    }

    fn in_group(mut group: Group, plan: &[&str]) -> Self {
        let (leader, child) = group.lead("r0", &["--grace-period", "4s"], plan);
        let mut tree = vec![child];
        if plan.contains(&"daemon") {
            tree.push(group.wait_event("detached", "r0"));
        }
        group.replica(leader).wait_log("to=Leader");
        group.follow("r1", &[], &["drain=0"]);
        Self {
            group,
            leader,
            tree,
        }
    }

    fn child(&self) -> &Event {
        &self.tree[0]
    }

    /// The other one's child starts, and nothing of the old tree is left by then.
    fn assert_succeeded(&self) {
        self.group.wait_start("r1");
        self.assert_old_tree_is_dead();
    }

    fn assert_old_tree_is_dead(&self) {
        for process in &self.tree {
            assert!(!is_alive(process.pid), "{process:?} lives on");
        }
    }
}

fn killed(plan: &[&str]) {
    // On one machine it shows that its processes are gone; elsewhere its lease has to run out.
    let group = match crate::place::is_a_file() {
        true => Group::with_long_lease(),
        false => Group::new(),
    };
    let mut pair = Pair::in_group(group, plan);
    pair.group.replica(pair.leader).signal(Signal::KILL);
    pair.assert_succeeded();
}

#[test]
fn a_killed_soloist_takes_its_child_along() {
    killed(PLANS[0]);
}

#[test]
fn a_killed_soloist_takes_a_child_along_that_ignores_sigterm() {
    killed(PLANS[1]);
}

#[test]
fn a_killed_soloist_takes_along_what_its_child_has_detached() {
    killed(PLANS[2]);
}

fn stopped(plan: &[&str]) {
    let Pair {
        mut group,
        leader,
        tree,
    } = {
        let mut pair = Pair::new(plan);
        pair.group.replica(pair.leader).signal(Signal::STOP);
        pair.assert_succeeded();
        pair
    };
    group.replica(leader).signal(Signal::CONT);
    group.replica(leader).wait_log("to=Follower");
    let running = group.running();
    assert!(running.is_some_and(|child| child.identity == "r1"));
    for process in &tree {
        assert!(!is_alive(process.pid));
    }
    // The group goes on: the one that was stopped can lead again.
    group.replica(leader + 1).signal(Signal::TERM);
    assert_eq!(group.replica(leader + 1).exit_code(), 0);
    let second = group.wait_start("r1");
    group.wait_journal("the third term", |event| {
        event.what == "start" && event.identity == "r0" && event.token > second.token
    });
}

#[test]
fn a_stopped_soloist_is_succeeded_and_then_follows() {
    stopped(PLANS[0]);
}

#[test]
fn a_stopped_soloist_is_succeeded_though_its_child_ignores_sigterm() {
    stopped(PLANS[1]);
}

#[test]
fn a_stopped_soloist_is_succeeded_though_its_child_has_detached_something() {
    stopped(PLANS[2]);
}

fn guard_killed(plan: &[&str]) {
    let pair = Pair::new(plan);
    let guard = pair.child().guard().unwrap();
    send(guard, Signal::KILL);
    let starts = pair.group.wait_many("start", 2);
    pair.assert_old_tree_is_dead();
    assert_eq!(starts[1].identity, "r0", "the lease is still its own");
    assert_eq!(starts[1].token, starts[0].token);
}

#[test]
fn a_child_whose_guard_is_killed_is_started_again() {
    guard_killed(PLANS[0]);
}

#[test]
fn a_deaf_child_whose_guard_is_killed_is_started_again() {
    guard_killed(PLANS[1]);
}

#[test]
fn what_a_child_has_detached_dies_with_the_guard() {
    guard_killed(PLANS[2]);
}

#[test]
fn a_stopped_guard_does_not_keep_soloist_from_ending() {
    let mut pair = Pair::new(&["drain=100"]);
    let guard = pair.child().guard().unwrap();
    send(guard, Signal::STOP);
    pair.group.replica(pair.leader).signal(Signal::TERM);
    let code = pair.group.replica(pair.leader).exit_code();
    assert!(matches!(code, 0 | 1), "{code}");
    pair.assert_succeeded();
    wait_for("the guard's end", LIMIT, || {
        (!is_alive(guard)).then_some(())
    });
}

#[test]
fn a_guard_that_was_stopped_for_a_moment_guards_on() {
    let mut pair = Pair::new(&["drain=100"]);
    let guard = pair.child().guard().unwrap();
    send(guard, Signal::STOP);
    // The fault itself, not a wait for anything.
    std::thread::sleep(lease() / 8);
    send(guard, Signal::CONT);
    pair.group.replica(pair.leader).signal(Signal::USR1);
    pair.group.wait_event("USR1", "r0");
    assert!(
        is_alive(pair.child().pid),
        "its lease was renewed all along"
    );
    pair.group.replica(pair.leader).signal(Signal::TERM);
    assert_eq!(pair.group.replica(pair.leader).exit_code(), 0);
    pair.assert_succeeded();
}

#[test]
fn a_killed_child_is_started_again() {
    let pair = Pair::new(PLANS[2]);
    pair.child().signal(Signal::KILL);
    let starts = pair.group.wait_many("start", 2);
    assert_eq!(starts[1].identity, "r0");
    pair.assert_old_tree_is_dead();
}

#[test]
fn a_lease_that_cannot_be_renewed_costs_the_child_its_life_before_it_ends() {
    if !crate::place::is_a_file() {
        return;
    }
    for plan in PLANS {
        // A tenth of it is between the kill and its end: time enough to see the one before the other.
        let mut pair = Pair::in_group(Group::with_timings(["8s", "5s", "500ms"]), plan);
        let held = HeldLease::of(&pair.group);
        let began = Instant::now();
        for process in &pair.tree {
            process.wait_dead();
        }
        // The last renewal was before that; what was begun may end a little later than it died.
        assert!(
            began.elapsed() < Duration::from_secs(8),
            "{:?}",
            began.elapsed()
        );
        pair.group
            .replica(pair.leader)
            .wait_log("the lease is lost");
        drop(held);
        pair.group.wait_many("start", 2);
    }
}

#[test]
fn a_child_is_asked_first_when_its_lease_cannot_be_renewed() {
    if !crate::place::is_a_file() {
        return;
    }
    let pair = Pair::new(&["drain=10"]);
    let held = HeldLease::of(&pair.group);
    pair.group.wait_event("drained", "r0");
    pair.child().wait_dead();
    drop(held);
    pair.group.wait_many("start", 2);
}

#[test]
fn a_lease_that_is_deleted_costs_the_child_its_life_at_once() {
    if !crate::place::is_a_file() {
        return;
    }
    let pair = Pair::in_group(Group::with_long_lease(), &["drain=60000"]);
    fs::remove_file(pair.group.path("lease")).unwrap();
    pair.child().wait_dead();
    assert!(pair.group.events("TERM").is_empty(), "there is no grace");
    let starts = pair.group.wait_many("start", 2);
    assert!(starts[1].token > starts[0].token);
    // Only the one that made it knows that the deleted record's promise is void; the other one waits for its end.
    assert_eq!(starts[1].identity, "r0");
}

#[test]
fn whoever_deletes_the_leases_folder_costs_the_child_its_life_before_a_new_replica_starts() {
    if !crate::place::is_a_file() {
        return;
    }
    let mut group = Group::new();
    let folder = group.path("leases");
    let command = |group: &Group, identity: &str| {
        let mut command = group.bare();
        // Whoever would look again only after the retry period is too late.
        command
            .args(["--lease-duration=240s", "--renew-deadline=200s"])
            .args(["--retry-period=50s", "--name=test"])
            .arg(format!("--store=file:{}", folder.join("lease").display()))
            .args(["--identity", identity, "--", CHILD])
            .args([&group.path("")])
            .arg("drain=60000");
        command
    };
    let mut leader = command(&group, "r0");
    group.spawn("r0", &mut leader);
    let child = group.wait_start("r0");
    fs::remove_dir_all(&folder).unwrap();
    let mut new = command(&group, "r1");
    group.spawn("r1", &mut new);
    child.wait_dead();
    // The lock of the children would tell of two.
    let starts = group.wait_many("start", 2);
    assert!(starts[1].token > starts[0].token);
}

#[test]
fn a_store_that_does_not_answer_keeps_nobody_from_ending() {
    if !crate::place::is_a_file() {
        return;
    }
    let mut pair = Pair::new(&["drain=0"]);
    let held = HeldLease::of(&pair.group);
    // It is to be started again, and its guard cannot be named in the lease.
    pair.child().signal(Signal::KILL);
    let replica = pair.group.replica(pair.leader);
    replica.wait_log("nothing is left of the child");
    replica.signal(Signal::TERM);
    assert_eq!(replica.exit_code(), 0);
    assert_eq!(pair.group.events("start").len(), 1);
    drop(held);
    pair.group.wait_start("r1");
}
