//! Guards that do not answer.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, prlimit};

use crate::harness::{Group, LIMIT, is_alive, lease, send, wait_for};

#[test]
fn a_guard_that_is_stopped_is_replaced_with_its_child_long_before_it_is_needed() {
    let mut group = Group::new();
    let (replica, first) = group.lead("r0", &[], &["daemon"]);
    let guard = wait_for("the child's guard", LIMIT, || first.guard());
    group.wait_event("detached", "r0");
    let stopped = Instant::now();
    send(guard, Signal::STOP);
    first.wait_dead();
    let noticed = stopped.elapsed();
    let next = group.wait_many("start", 2).remove(1);
    assert_ne!(next.guard(), Some(guard));
    assert_eq!(next.token, first.token, "the lease was never at stake");
    let log = group.replica(replica).log();
    assert!(log.contains("does not answer"), "{log}");
    // Half of it, and time for a machine with other things to do.
    let allowed = lease() / 2 + Duration::from_secs(1);
    assert!(noticed < allowed, "{noticed:?}");
}

/// The descriptors that the process may open from now on; what it was before.
fn set_descriptors(pid: u32, limit: Rlimit) -> Rlimit {
    let pid = Pid::from_raw(pid.cast_signed()).unwrap();
    let old = prlimit(Some(pid), Resource::Nofile, limit);
    old.expect("the same user may do that, below the hard limit")
}

#[test]
fn a_tree_is_not_called_empty_while_nobody_can_look() {
    let mut group = Group::new();
    let (replica, first) = group.lead("r0", &[], &["daemon"]);
    let guard = wait_for("the child's guard", LIMIT, || first.guard());
    let detached = group.wait_event("detached", "r0");
    group.follow("r1", &[], &[]);
    let soloist = group.replica(replica).pid();
    // It can open nothing any more, so `/proc` says nothing.
    let none = Rlimit {
        current: Some(3),
        ..getrlimit(Resource::Nofile)
    };
    let usual = set_descriptors(soloist, none);
    send(guard, Signal::KILL);
    group.replica(replica).wait_log("/proc cannot be read");
    let log = group.replica(replica).log();
    assert!(!log.contains("nothing is left of the child"), "{log}");
    assert!(is_alive(detached.pid));
    set_descriptors(soloist, usual);
    // The lock of the children would tell of two.
    group.wait_many("start", 2);
    detached.wait_dead();
}
