//! What `--log-status` says.

use crate::harness::Group;
use crate::held_lease::HeldLease;
use crate::place;

const OFTEN: [&str; 2] = ["--log-status", "200ms"];

#[test]
fn a_follower_says_who_leads_and_that_it_does_not_know_when_it_is_cut_off() {
    if !place::is_a_file() {
        return;
    }
    let mut group = Group::with(&OFTEN);
    group.lead("r0", &[], &[]);
    let follower = group.follow("r1", &[], &[]);
    group
        .replica(follower)
        .wait_log("state=Follower leader=\"r0\"");
    // Nobody gets at the lease any more.
    let held = HeldLease::of(&group);
    group
        .replica(follower)
        .wait_log("state=Follower leader=\"unknown, no answer for 2s\"");
    drop(held);
}
