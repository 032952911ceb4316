//! The line that sums up a term.

use rustix::process::Signal;

use crate::harness::Group;
use crate::place;

const OVER: &str = "the term is over";

/// The line of this replica's first term.
fn line(group: &mut Group, replica: usize) -> String {
    let log = group.replica(replica).wait_log(OVER);
    let line = log.lines().find(|line| line.contains(OVER));
    line.unwrap().to_owned()
}

#[test]
fn each_term_is_summed_up_when_it_is_over() {
    let mut group = Group::new();
    let (first, start) = group.lead("r0", &[], &[]);
    group.replica(first).wait_log("to=Leader");
    let second = group.follow("r1", &[], &[]);
    group.replica(first).signal(Signal::TERM);
    assert_eq!(group.replica(first).exit_code(), 0);
    let told = line(&mut group, first);
    let term = format!("term={} token={}", start.term, start.token);
    for part in [
        &*term,
        "began=FirstSight gap=unknown",
        "children=1",
        "ended=\"released\"",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    group.replica(second).wait_log("to=Leader");
    group.replica(second).signal(Signal::TERM);
    assert_eq!(group.replica(second).exit_code(), 0);
    let told = line(&mut group, second);
    assert!(told.contains("began=Released gap="), "{told}");
    assert!(!told.contains("gap=unknown"), "{told}");
    assert!(!told.contains("child_up_after=unknown"), "{told}");
}

#[test]
fn a_term_whose_lease_is_lost_says_what_was_lost() {
    if !place::is_a_file() {
        return;
    }
    let mut group = Group::new();
    let (leader, _) = group.lead("r0", &[], &[]);
    group.replica(leader).wait_log("to=Leader");
    // Whoever deletes the file deletes the lease.
    std::fs::remove_file(group.path("lease")).unwrap();
    let told = line(&mut group, leader);
    assert!(told.contains("ended=\"lost (Deleted)"), "{told}");
}
