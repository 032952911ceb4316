//! Kills that take long, or never end.

use super::*;

fn first_process() -> Policy {
    Policy {
        first_process: true,
        ..policy()
    }
}

fn told(since: f64) -> Action {
    Action::TellOfKill { since: t(since) }
}

fn exit(outcome: Outcome) -> Action {
    Action::Exit(outcome)
}

#[test]
fn a_kill_that_does_not_end_is_told_again_and_again_and_waited_for() {
    let mut bench = Bench::leader(policy());
    bench.feed(1.0, Event::Lost(Loss::Deleted));
    assert_eq!(bench.run_until(5.9), []);
    assert_eq!(bench.run_until(6.0), [told(1.0)]);
    assert_eq!(bench.run_until(60.9).len(), 10);
    assert_eq!(bench.state(), StateName::PreFollower);
    assert_eq!(
        bench.feed(61.0, Event::TreeEmpty),
        [Action::Leave, Action::Stand]
    );
}

#[test]
fn the_first_process_exits_before_the_lease_ends_if_a_kill_does_not() {
    let mut bench = Bench::leader(first_process());
    assert_eq!(bench.run_until(13.5), [Action::KillTree]);
    assert_eq!(bench.run_until(14.62), []);
    assert_eq!(bench.run_until(14.63), [exit(Outcome::Killed)]);
    assert_eq!(bench.state(), StateName::Terminating);
    assert_eq!(bench.replica.next_deadline(), None);
}

#[test]
fn the_first_process_waits_for_one_lease_and_no_longer_while_it_can_renew() {
    let mut bench = Bench::leader(first_process());
    bench.feed_all(1.0, &[Event::StopSignal, Event::StopSignal]);
    let actions = bench.run_renewing(5.0, 15.9);
    assert!(!actions.contains(&exit(Outcome::Killed)), "{actions:?}");
    assert_eq!(bench.run_until(16.0).last(), Some(&exit(Outcome::Killed)));
}

#[test]
fn the_first_process_gives_a_kill_a_moment_even_when_the_lease_is_long_over() {
    let mut bench = Bench::leader(first_process());
    assert_eq!(
        bench.feed(100.0, Event::Lost(Loss::Expired)),
        [Action::KillTree]
    );
    assert_eq!(bench.run_until(100.37), []);
    assert_eq!(bench.run_until(100.38), [exit(Outcome::Killed)]);
}

#[test]
fn the_first_process_keeps_the_childs_own_code_if_what_it_left_behind_cannot_be_killed() {
    let mut bench = Bench::leader(Policy {
        once: true,
        ..first_process()
    });
    bench.feed(1.0, ended(7));
    let actions = bench.run_until(14.7);
    let code = Outcome::Child(Exit::Code(7));
    assert_eq!(actions.last(), Some(&exit(code)));
}

#[test]
fn with_a_graceful_loss_nobody_gives_up() {
    let mut bench = Bench::leader(Policy {
        first_process: true,
        ..graceful()
    });
    bench.feed(1.0, Event::Lost(Loss::Deleted));
    assert!(!bench.run_until(60.0).contains(&exit(Outcome::Killed)));
}
