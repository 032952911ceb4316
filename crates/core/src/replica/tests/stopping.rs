//! The planned stop, and how the process ends.

use super::*;

#[test]
fn gracefully_a_planned_stop_has_its_whole_timeout_from_the_guard_too() {
    for event in [Event::StopSignal, Event::HandOver] {
        let mut bench = Bench::leader(graceful());
        let actions = bench.feed(6.0, event);
        assert_eq!(actions.last(), Some(&Action::Deadline(t(31.75))));
        assert_eq!(bench.feed(15.0, Event::Lost(Loss::Expired)), []);
        assert_eq!(bench.run_until(31.0), [Action::KillTree]);
    }
}

#[test]
fn a_stop_signal_while_a_crashed_childs_leftovers_are_cleared_ends_clean() {
    let mut bench = Bench::leader(policy());
    bench.feed(1.0, ended(1));
    bench.feed(1.0, Event::StopSignal);
    bench.feed(1.1, Event::TreeEmpty);
    assert_eq!(bench.feed(1.2, Event::Left), [Action::Exit(Outcome::Clean)]);
}

fn left(bench: &mut Bench, seconds: f64) -> Outcome {
    let actions = bench.feed(seconds, Event::Left);
    let [Action::Exit(outcome)] = actions[..] else {
        panic!("{actions:?} is no end");
    };
    outcome
}

#[test]
fn a_planned_stop_resigns_stops_releases_and_ends_clean() {
    let mut bench = Bench::leader(policy());
    assert_eq!(
        bench.feed(1.0, Event::StopSignal),
        [Action::Resign, Action::StopChild]
    );
    assert_eq!(bench.feed(1.0, Event::Lost(Loss::Resigned)), []);
    assert_eq!(bench.feed(3.0, ended(0)), []);
    assert_eq!(bench.feed(3.1, Event::TreeEmpty), [Action::Leave]);
    assert_eq!(left(&mut bench, 3.2), Outcome::Clean);
    assert!(bench.done);
}

#[test]
fn a_child_that_ignores_the_stop_signal_is_killed_at_the_stop_timeout() {
    let mut bench = Bench::leader(policy());
    bench.feed(1.0, Event::StopSignal);
    assert_eq!(bench.run_renewing(5.0, 25.9), []);
    assert_eq!(bench.run_until(26.0), [Action::KillTree]);
    assert_eq!(bench.feed(26.1, ended(0)), []);
    assert_eq!(bench.feed(26.2, Event::TreeEmpty), [Action::Leave]);
    assert_eq!(left(&mut bench, 26.3), Outcome::Killed);
}

#[test]
fn what_is_left_of_the_grace_period_shortens_a_stop_before_it_begins_and_while_it_is_under_way() {
    let ten = Duration::from_secs(10);
    let mut before = Bench::leader(policy());
    assert_eq!(before.replica.shorten_stop(t(1.0), ten), []);
    before.feed(1.0, Event::StopSignal);
    let mut meanwhile = Bench::leader(policy());
    meanwhile.feed(0.5, Event::StopSignal);
    assert_eq!(meanwhile.replica.shorten_stop(t(1.0), ten), []);
    for mut bench in [before, meanwhile] {
        assert_eq!(bench.run_renewing(5.0, 8.4), []);
        assert_eq!(bench.run_until(8.5), [Action::KillTree]);
    }
}

#[test]
fn a_stop_is_never_made_longer() {
    let mut bench = Bench::leader(policy());
    bench.feed(1.0, Event::StopSignal);
    let hour = Duration::from_secs(3600);
    assert_eq!(bench.replica.shorten_stop(t(2.0), hour), []);
    assert_eq!(bench.run_renewing(5.0, 25.9), []);
    assert_eq!(bench.run_until(26.0), [Action::KillTree]);
}

#[test]
fn gracefully_the_guard_hears_of_a_shorter_stop() {
    let mut bench = Bench::leader(graceful());
    bench.feed(6.0, Event::StopSignal);
    let ten = Duration::from_secs(10);
    let actions = bench.replica.shorten_stop(t(8.0), ten);
    assert_eq!(actions, [Action::Deadline(t(16.25))]);
    assert_eq!(bench.run_until(15.5), [Action::KillTree]);
}

#[test]
fn the_guards_deadline_follows_the_lease_through_the_whole_stop() {
    let mut bench = Bench::leader(policy());
    bench.feed(1.0, Event::StopSignal);
    assert_eq!(
        bench.feed(5.0, extended(20.0)),
        [Action::Deadline(t(19.25))]
    );
}

#[test]
fn a_planned_stop_whose_lease_cannot_be_renewed_ends_before_the_lease() {
    let mut bench = Bench::leader(policy());
    bench.feed(1.0, Event::StopSignal);
    assert_eq!(bench.run_until(13.4), []);
    assert_eq!(bench.run_until(13.5), [Action::KillTree]);
    bench.feed(13.6, Event::TreeEmpty);
    assert_eq!(left(&mut bench, 13.7), Outcome::Killed);
}

#[test]
fn a_second_signal_kills_at_once() {
    let mut bench = Bench::leader(policy());
    bench.feed(1.0, Event::StopSignal);
    assert_eq!(bench.feed(2.0, Event::StopSignal), [Action::KillTree]);
    assert_eq!(bench.feed(2.1, Event::TreeEmpty), [Action::Leave]);
    assert_eq!(left(&mut bench, 2.2), Outcome::Killed);
}

#[test]
fn a_second_signal_while_leaving_ends_at_once() {
    let mut bench = Bench::leader(policy());
    bench.feed_all(1.0, &[Event::StopSignal, Event::TreeEmpty]);
    assert_eq!(
        bench.feed(2.0, Event::StopSignal),
        [Action::Exit(Outcome::Clean)]
    );
    assert_eq!(bench.feed(2.1, Event::Left), []);
}

#[test]
fn a_follower_that_is_stopped_leaves_and_ends_clean() {
    let mut bench = Bench::follower(policy());
    assert_eq!(bench.feed(1.0, Event::StopSignal), [Action::Leave]);
    assert_eq!(left(&mut bench, 1.1), Outcome::Clean);
}

#[test]
fn a_stop_while_waiting_to_restart_needs_nothing_to_be_stopped() {
    let mut bench = Bench::leader(policy());
    bench.feed_all(
        1.0,
        &[ended(1), Event::TreeEmpty, ended(1), Event::TreeEmpty],
    );
    assert_eq!(bench.feed(1.5, Event::StopSignal), [Action::Leave]);
    assert_eq!(left(&mut bench, 1.6), Outcome::Clean);
}

#[test]
fn a_stop_during_a_restart_asks_the_child_only_once() {
    let mut bench = Bench::leader(policy());
    let checks = [Event::Unhealthy, Event::Unhealthy, Event::Unhealthy];
    assert_eq!(bench.feed_all(1.0, &checks), [Action::StopChild]);
    assert_eq!(bench.feed(2.0, Event::StopSignal), [Action::Resign]);
    assert_eq!(bench.run_renewing(5.0, 25.9), []);
    assert_eq!(bench.run_until(26.0), [Action::KillTree]);
}

#[test]
fn a_stop_during_a_loss_keeps_the_losss_deadline() {
    let mut bench = Bench::leader(policy());
    bench.feed(10.0, Event::Lost(Loss::RenewDeadline));
    assert_eq!(bench.feed(11.0, Event::StopSignal), [Action::Resign]);
    assert_eq!(bench.run_until(13.5), [Action::KillTree]);
}

#[test]
fn a_lease_taken_during_a_planned_stop_kills_at_once() {
    let mut bench = Bench::leader(policy());
    bench.feed(1.0, Event::StopSignal);
    assert_eq!(
        bench.feed(2.0, Event::Lost(Loss::Deleted)),
        [Action::KillTree]
    );
    assert_eq!(bench.feed(2.1, Event::TreeEmpty), [Action::Leave]);
    assert_eq!(left(&mut bench, 2.2), Outcome::Killed);
}

#[test]
fn a_guard_lost_during_a_planned_stop_kills_at_once() {
    let mut bench = Bench::leader(policy());
    bench.feed(1.0, Event::StopSignal);
    assert_eq!(bench.feed(2.0, Event::GuardLost), [Action::KillTree]);
}

#[test]
fn a_spawn_that_fails_during_the_stop_leaves_nothing_to_stop() {
    let mut bench = Bench::starting(policy());
    bench.feed(1.0, Event::StopSignal);
    let failed = Event::SpawnFailed(SpawnFailure::NotFound);
    assert_eq!(bench.feed(1.1, failed), [Action::Leave]);
    assert_eq!(left(&mut bench, 1.2), Outcome::Clean);
}

#[test]
fn a_store_that_refuses_a_follower_ends_it() {
    let mut bench = Bench::follower(policy());
    assert_eq!(bench.feed(1.0, Event::Refused), [Action::Leave]);
    assert_eq!(left(&mut bench, 1.1), Outcome::Refused);
}

#[test]
fn a_store_that_refuses_a_leader_changes_nothing_yet() {
    let mut bench = Bench::leader(policy());
    assert_eq!(bench.feed(1.0, Event::Refused), []);
    assert_eq!(bench.state(), StateName::Leader);
}

#[test]
fn every_outcome_has_its_exit_code() {
    for (outcome, code) in [
        (Outcome::Clean, 0),
        (Outcome::Killed, 1),
        (Outcome::Refused, 3),
        (Outcome::CannotRun(SpawnFailure::NotExecutable), 126),
        (Outcome::CannotRun(SpawnFailure::NotFound), 127),
        (Outcome::NotRun, 5),
        (Outcome::CannotRun(SpawnFailure::System), 6),
        (Outcome::Child(Exit::Code(0)), 0),
        (Outcome::Child(Exit::Code(42)), 42),
        (Outcome::Child(Exit::Signal(9)), 137),
        (Outcome::Child(Exit::Signal(15)), 143),
    ] {
        assert_eq!(outcome.code(), code, "{outcome:?}");
    }
}
