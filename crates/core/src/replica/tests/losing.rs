//! The tree is dead before the lease ends.

use super::*;

const WITHOUT_GRACE: [Loss; 4] = [
    Loss::Expired,
    Loss::Emptied,
    Loss::Deleted,
    Loss::WrittenBack,
];

#[test]
fn a_lost_lease_is_a_stop_signal_and_then_a_kill_before_the_lease_ends() {
    for mut bench in [Bench::leader(policy()), Bench::starting(policy())] {
        assert_eq!(
            bench.feed(9.0, Event::Lost(Loss::RenewDeadline)),
            [Action::StopChild]
        );
        assert_eq!(bench.run_until(13.4), []);
        assert_eq!(bench.run_until(13.5), [Action::KillTree]);
        assert_eq!(
            bench.feed(13.6, Event::TreeEmpty),
            [Action::Leave, Action::Stand]
        );
    }
}

#[test]
fn a_renewal_that_came_late_gives_the_draining_child_its_time_back() {
    let mut bench = Bench::leader(policy());
    bench.feed(10.0, Event::Lost(Loss::RenewDeadline));
    assert_eq!(
        bench.feed(12.0, extended(27.0)),
        [Action::Deadline(t(26.25))]
    );
    assert_eq!(bench.run_until(25.4), []);
    assert_eq!(bench.run_until(25.5), [Action::KillTree]);
}

#[test]
fn the_stop_timeout_still_ends_a_drain_whose_lease_is_renewed() {
    let mut bench = Bench::leader(policy());
    bench.feed(10.0, Event::Lost(Loss::RenewDeadline));
    assert_eq!(bench.run_renewing(11.0, 34.9), []);
    assert_eq!(bench.run_until(35.0), [Action::KillTree]);
}

#[test]
fn a_lease_deleted_emptied_taken_or_expired_kills_at_once() {
    let taken = Loss::Taken(crate::ids::Identity::try_new("b").expect("a name"));
    for loss in WITHOUT_GRACE.into_iter().chain([taken]) {
        for mut bench in [Bench::leader(policy()), Bench::starting(policy())] {
            let lost = Event::Lost(loss.clone());
            assert_eq!(bench.feed(3.0, lost), [Action::KillTree]);
            assert_eq!(bench.state(), StateName::PreFollower);
            assert_eq!(
                bench.feed(3.1, Event::TreeEmpty),
                [Action::Leave, Action::Stand]
            );
        }
    }
}

#[test]
fn a_drain_is_cut_short_when_the_lease_is_gone() {
    for loss in WITHOUT_GRACE {
        let mut bench = Bench::leader(policy());
        bench.feed(10.0, Event::Lost(Loss::RenewDeadline));
        let lost = Event::Lost(loss);
        assert_eq!(bench.feed(11.0, lost.clone()), [Action::KillTree]);
        assert_eq!(bench.feed(11.1, lost), []);
    }
}

#[test]
fn our_own_clock_kills_although_the_election_says_nothing() {
    let mut bench = Bench::leader(policy());
    assert_eq!(bench.run_until(13.4), []);
    assert_eq!(bench.run_until(13.5), [Action::KillTree]);
    assert_eq!(bench.state(), StateName::PreFollower);
    assert_eq!(
        bench.feed(13.6, Event::TreeEmpty),
        [Action::Leave, Action::Stand]
    );
}

#[test]
fn a_replica_that_wakes_after_its_lease_kills_at_once() {
    let mut bench = Bench::leader(policy());
    assert_eq!(bench.handle_timeout(t(60.0)), [Action::KillTree]);

    let mut starting = Bench::starting(policy());
    let actions = starting.handle_timeout(t(60.0));
    assert_eq!(actions.last(), Some(&Action::KillTree));
}

#[test]
fn a_lease_that_ends_during_a_restart_kills_and_is_no_restart() {
    let mut bench = Bench::leader(policy());
    let checks = [Event::Unhealthy, Event::Unhealthy, Event::Unhealthy];
    bench.feed_all(1.0, &checks);
    assert_eq!(bench.run_until(13.5), [Action::KillTree]);
    assert_eq!(
        bench.feed(13.6, Event::TreeEmpty),
        [Action::Leave, Action::Stand]
    );
}

#[test]
fn a_lease_taken_while_leftovers_are_asked_to_end_kills_them_at_once() {
    let mut bench = Bench::leader(policy());
    bench.feed(1.0, ended(1));
    let lost = Event::Lost(Loss::Deleted);
    assert_eq!(bench.feed(2.0, lost), [Action::KillTree]);
}

#[test]
fn a_lease_lost_during_a_restart_does_not_ask_the_child_twice() {
    let mut bench = Bench::leader(policy());
    let checks = [Event::Unhealthy, Event::Unhealthy, Event::Unhealthy];
    bench.feed_all(1.0, &checks);
    assert_eq!(bench.feed(10.0, Event::Lost(Loss::RenewDeadline)), []);
    assert_eq!(bench.state(), StateName::PreFollower);
    assert_eq!(bench.run_until(13.5), [Action::KillTree]);
}

#[test]
fn a_lease_lost_while_clearing_up_waits_for_the_kill_under_way() {
    let mut bench = Bench::leader(policy());
    bench.feed(1.0, Event::GuardLost);
    assert_eq!(bench.feed(2.0, Event::Lost(Loss::Deleted)), []);
    assert_eq!(
        bench.feed(3.0, Event::TreeEmpty),
        [Action::Leave, Action::Stand]
    );
}

#[test]
fn a_guard_lost_during_a_loss_kills_at_once() {
    let mut bench = Bench::leader(policy());
    bench.feed(10.0, Event::Lost(Loss::RenewDeadline));
    assert_eq!(bench.feed(10.1, Event::GuardLost), [Action::KillTree]);
}

#[test]
fn a_graceful_loss_leaves_the_whole_stop_timeout_to_child_and_guard() {
    let mut bench = Bench::leader(graceful());
    assert_eq!(
        bench.feed(10.0, Event::Lost(Loss::RenewDeadline)),
        [Action::StopChild, Action::Deadline(t(35.75))]
    );
    assert_eq!(bench.run_until(15.0), []);
    assert_eq!(bench.feed(15.0, Event::Lost(Loss::Expired)), []);
    assert_eq!(bench.run_until(34.9), []);
    assert_eq!(bench.run_until(35.0), [Action::KillTree]);
}

/// Found by the simulator: soloist was stopped while its child ended, and its guard when it went on.
#[test]
fn a_graceful_loss_leaves_nothing_to_what_an_ended_child_has_left_behind() {
    let mut bench = Bench::leader(graceful());
    bench.feed(14.9, ended(0));
    let actions = bench.feed(15.0, Event::Lost(Loss::Expired));
    assert_eq!(actions[0], Action::KillTree);
}

#[test]
fn a_graceful_replica_still_kills_at_once_when_the_lease_is_taken() {
    let mut bench = Bench::leader(graceful());
    let actions = bench.feed(3.0, Event::Lost(Loss::Deleted));
    assert_eq!(actions[0], Action::KillTree);
}
