//! The arrows of the state diagram, and health.

use super::*;

#[test]
fn elected_starts_the_child_under_a_guard() {
    let mut bench = Bench::follower(policy());
    assert_eq!(bench.state(), StateName::Follower);
    assert_eq!(bench.feed(0.0, elected(15.0)), [spawn(14.25)]);
    assert_eq!(bench.state(), StateName::PreLeader);
    assert_eq!(bench.replica.term(), Some((Term::new(4), Token::new(70))));
}

#[test]
fn ready_makes_a_leader() {
    let mut bench = Bench::starting(policy());
    assert_eq!(bench.feed(1.0, Event::Ready), []);
    assert_eq!(bench.state(), StateName::Leader);
}

#[test]
fn a_lost_lease_leads_through_pre_follower_back_to_follower() {
    let mut bench = Bench::leader(policy());
    assert_eq!(
        bench.feed(10.0, Event::Lost(Loss::RenewDeadline)),
        [Action::StopChild]
    );
    assert_eq!(bench.state(), StateName::PreFollower);
    assert_eq!(bench.feed(10.5, ended(0)), []);
    assert_eq!(
        bench.feed(10.6, Event::TreeEmpty),
        [Action::Leave, Action::Stand]
    );
    assert_eq!(bench.state(), StateName::Follower);
    assert_eq!(bench.replica.term(), None);
}

#[test]
fn a_child_that_cannot_start_gives_the_lease_away_and_stands_again_after_a_cool_down() {
    for failure in [
        SpawnFailure::NotFound,
        SpawnFailure::NotExecutable,
        SpawnFailure::System,
    ] {
        let mut bench = Bench::starting(policy());
        assert_eq!(
            bench.feed(1.0, Event::SpawnFailed(failure)),
            [Action::Leave]
        );
        assert_eq!(bench.state(), StateName::Follower);
        assert_eq!(bench.run_until(20.9), []);
        assert_eq!(bench.run_until(21.0), [Action::Stand]);
        assert_eq!(bench.feed(22.0, elected(37.0)), [spawn(36.25)]);
    }
}

#[test]
fn a_child_that_is_not_ready_in_time_is_stopped_and_the_lease_given_away() {
    let mut bench = Bench::starting(policy());
    assert_eq!(bench.run_renewing(5.0, 9.9), []);
    assert_eq!(bench.run_until(10.0), [Action::Resign, Action::StopChild]);
    assert_eq!(bench.state(), StateName::PreFollower);
    assert_eq!(bench.feed(10.0, Event::Lost(Loss::Resigned)), []);
    assert_eq!(bench.feed(11.0, Event::TreeEmpty), [Action::Leave]);
    assert_eq!(bench.run_until(31.0), [Action::Stand]);
}

#[test]
fn a_stop_signal_terminates_from_every_state() {
    let mut pre_follower = Bench::leader(policy());
    pre_follower.feed(1.0, Event::Lost(Loss::RenewDeadline));
    for (mut bench, actions) in [
        (Bench::follower(policy()), [Action::Leave].as_slice()),
        (
            Bench::starting(policy()),
            &[Action::Resign, Action::StopChild],
        ),
        (
            Bench::leader(policy()),
            &[Action::Resign, Action::StopChild],
        ),
        (pre_follower, &[Action::Resign]),
    ] {
        assert_eq!(bench.feed(2.0, Event::StopSignal), actions);
        assert_eq!(bench.state(), StateName::Terminating);
    }
}

#[test]
fn a_handover_stops_the_child_first_and_stays_out_for_a_cool_down() {
    for mut bench in [Bench::leader(policy()), Bench::starting(policy())] {
        assert_eq!(
            bench.feed(2.0, Event::HandOver),
            [Action::Resign, Action::StopChild]
        );
        assert_eq!(bench.state(), StateName::PreFollower);
        assert_eq!(bench.feed(3.0, Event::TreeEmpty), [Action::Leave]);
        assert_eq!(bench.feed(3.1, Event::Left), []);
        assert_eq!(bench.run_until(22.9), []);
        assert_eq!(bench.run_until(23.0), [Action::Stand]);
    }
}

#[test]
fn who_is_named_as_the_heir_does_not_stay_out_any_longer() {
    let mut bench = Bench::leader(policy());
    bench.feed_all(2.0, &[Event::HandOver, Event::TreeEmpty, Event::Left]);
    assert_eq!(bench.feed(3.0, Event::NamedHeir), [Action::Stand]);
    assert_eq!(bench.feed(3.1, Event::NamedHeir), []);
    assert_eq!(bench.run_until(60.0), []);
}

#[test]
fn a_pause_stops_the_child_first_and_stands_again_at_once() {
    let mut bench = Bench::leader(policy());
    assert_eq!(
        bench.feed(2.0, Event::Pause),
        [Action::Resign, Action::StopChild]
    );
    assert_eq!(
        bench.feed(3.0, Event::TreeEmpty),
        [Action::Leave, Action::Stand]
    );
}

#[test]
fn a_handover_during_a_loss_keeps_us_out_for_a_cool_down() {
    let mut bench = Bench::leader(policy());
    bench.feed(10.0, Event::Lost(Loss::RenewDeadline));
    assert_eq!(bench.feed(10.1, Event::HandOver), []);
    assert_eq!(bench.feed(11.0, Event::TreeEmpty), [Action::Leave]);
}

#[test]
fn a_follower_has_nothing_to_hand_over() {
    let mut bench = Bench::follower(policy());
    assert_eq!(bench.feed(1.0, Event::HandOver), []);
    assert_eq!(bench.state(), StateName::Follower);
}

#[test]
fn a_loss_that_a_follower_hears_of_makes_it_stand_again_unless_it_cools_down() {
    let mut bench = Bench::follower(policy());
    let expired = Event::Lost(Loss::Expired);
    assert_eq!(bench.feed(1.0, expired.clone()), [Action::Stand]);

    let mut cooling = Bench::starting(policy());
    cooling.feed(1.0, Event::SpawnFailed(SpawnFailure::System));
    assert_eq!(cooling.feed(2.0, expired), []);
}

#[test]
fn three_failed_checks_in_a_row_restart_the_child_in_order() {
    let mut bench = Bench::leader(policy());
    let twice = [Event::Unhealthy, Event::Unhealthy];
    assert_eq!(bench.feed_all(1.0, &twice), []);
    assert_eq!(bench.feed(2.0, Event::Healthy), []);
    assert_eq!(bench.feed_all(3.0, &twice), []);
    assert_eq!(bench.feed(4.0, Event::Unhealthy), [Action::StopChild]);
    assert_eq!(bench.state(), StateName::PreLeader);
    assert_eq!(bench.feed(5.0, ended(0)), []);
    assert_eq!(bench.feed(5.0, Event::TreeEmpty), [spawn(14.25)]);
}

#[test]
fn an_unhealthy_child_that_will_not_stop_is_killed_and_restarted() {
    let mut bench = Bench::leader(policy());
    let checks = [Event::Unhealthy, Event::Unhealthy, Event::Unhealthy];
    bench.feed_all(0.0, &checks);
    assert_eq!(bench.run_renewing(5.0, 24.9), []);
    assert_eq!(bench.run_until(25.0), [Action::KillTree]);
    assert_eq!(bench.state(), StateName::PreLeader);
    assert_eq!(bench.feed(25.1, Event::TreeEmpty), [spawn(34.25)]);
}

#[test]
fn three_failed_checks_in_a_row_may_also_give_the_lease_away() {
    let mut bench = Bench::leader(stepping_down());
    let checks = [Event::Unhealthy, Event::Unhealthy, Event::Unhealthy];
    assert_eq!(
        bench.feed_all(1.0, &checks),
        [Action::Resign, Action::StopChild]
    );
    assert_eq!(bench.feed(2.0, Event::TreeEmpty), [Action::Leave]);
    assert_eq!(bench.run_until(22.0), [Action::Stand]);
}

#[test]
fn failed_checks_of_the_last_child_do_not_count_for_the_next() {
    let mut bench = Bench::leader(policy());
    bench.feed_all(1.0, &[Event::Unhealthy, Event::Unhealthy]);
    bench.feed_all(2.0, &[ended(1), Event::TreeEmpty, Event::Ready]);
    assert_eq!(bench.feed(3.0, Event::Unhealthy), []);
    assert_eq!(bench.state(), StateName::Leader);
}

#[test]
fn checks_do_not_count_before_the_child_is_ready() {
    let mut bench = Bench::starting(policy());
    let checks = [Event::Unhealthy, Event::Unhealthy, Event::Unhealthy];
    assert_eq!(bench.feed_all(1.0, &checks), []);
    assert_eq!(bench.state(), StateName::PreLeader);
}

#[test]
fn every_extension_moves_the_guards_deadline() {
    for mut bench in [Bench::starting(policy()), Bench::leader(policy())] {
        assert_eq!(
            bench.feed(5.0, extended(20.0)),
            [Action::Deadline(t(19.25))]
        );
        assert_eq!(
            bench.feed(10.0, extended(25.0)),
            [Action::Deadline(t(24.25))]
        );
    }
}
