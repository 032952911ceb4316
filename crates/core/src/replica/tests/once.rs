//! `--once`: the child's end is ours.

use super::*;

#[test]
fn once_an_unhealthy_child_is_stopped_and_not_run_a_second_time() {
    let mut bench = Bench::leader(once());
    let sick = [Event::Unhealthy, Event::Unhealthy, Event::Unhealthy];
    assert_eq!(
        bench.feed_all(1.0, &sick),
        [Action::Resign, Action::StopChild]
    );
    assert_eq!(
        bench.feed_all(2.0, &[ended(7), Event::TreeEmpty]),
        [Action::Leave]
    );
    let exit = Action::Exit(Outcome::Child(Exit::Code(7)));
    assert_eq!(bench.feed(2.0, Event::Left), [exit]);
}

#[test]
fn once_the_exit_code_of_a_former_term_does_not_count() {
    let mut bench = Bench::leader(once());
    bench.feed(1.0, Event::Lost(Loss::Deleted));
    bench.feed_all(1.0, &[ended(7), Event::TreeEmpty]);
    bench.feed(2.0, elected(17.0));
    bench.feed(2.0, Event::StopSignal);
    bench.feed(2.0, Event::SpawnFailed(SpawnFailure::NotFound));
    let exit = Action::Exit(Outcome::CannotRun(SpawnFailure::NotFound));
    assert_eq!(bench.feed(2.0, Event::Left), [exit]);
}

fn end(bench: &mut Bench, seconds: f64) -> Outcome {
    assert_eq!(bench.feed(seconds, Event::TreeEmpty), [Action::Leave]);
    let actions = bench.feed(seconds, Event::Left);
    let [Action::Exit(outcome)] = actions[..] else {
        panic!("{actions:?} is no end");
    };
    outcome
}

#[test]
fn a_child_that_ends_ends_the_replica_with_its_code_or_signal() {
    for exit in [Exit::Code(0), Exit::Code(3), Exit::Signal(11)] {
        for mut bench in [Bench::leader(once()), Bench::starting(once())] {
            assert_eq!(bench.feed(2.0, Event::Exited(exit)), [Action::Resign]);
            assert_eq!(bench.state(), StateName::Terminating);
            assert_eq!(end(&mut bench, 3.0), Outcome::Child(exit));
        }
    }
}

#[test]
fn what_the_child_left_behind_is_killed_before_the_end_and_does_not_change_the_code() {
    let mut bench = Bench::leader(once());
    bench.feed(2.0, ended(7));
    assert_eq!(bench.feed(2.5, Event::StopSignal), [Action::KillTree]);
    assert_eq!(bench.feed(2.6, Event::GuardLost), [Action::KillTree]);
    assert_eq!(end(&mut bench, 3.0), Outcome::Child(Exit::Code(7)));
}

#[test]
fn a_command_that_cannot_be_run_ends_the_replica() {
    for failure in [
        SpawnFailure::NotFound,
        SpawnFailure::NotExecutable,
        SpawnFailure::System,
    ] {
        let mut bench = Bench::starting(once());
        assert_eq!(
            bench.feed(1.0, Event::SpawnFailed(failure)),
            [Action::Leave]
        );
        assert_eq!(
            bench.feed(1.1, Event::Left),
            [Action::Exit(Outcome::CannotRun(failure))]
        );
    }
}

#[test]
fn a_child_that_is_stopped_ends_the_replica_with_its_own_code() {
    let mut bench = Bench::leader(once());
    assert_eq!(
        bench.feed(1.0, Event::StopSignal),
        [Action::Resign, Action::StopChild]
    );
    let exit = Exit::Signal(15);
    bench.feed(2.0, Event::Exited(exit));
    assert_eq!(end(&mut bench, 2.1), Outcome::Child(exit));
}

#[test]
fn a_child_whose_guard_died_was_killed() {
    let mut bench = Bench::leader(once());
    assert_eq!(
        bench.feed(1.0, Event::GuardLost),
        [Action::Resign, Action::KillTree]
    );
    assert_eq!(end(&mut bench, 2.0), Outcome::Child(Exit::Signal(9)));
}

#[test]
fn a_child_that_was_stopped_because_the_lease_was_lost_runs_again_in_the_next_term() {
    let mut bench = Bench::leader(once());
    bench.feed(10.0, Event::Lost(Loss::RenewDeadline));
    bench.feed(10.5, ended(0));
    assert_eq!(
        bench.feed(10.6, Event::TreeEmpty),
        [Action::Leave, Action::Stand]
    );
    assert_eq!(bench.feed(20.0, elected(35.0)), [spawn(34.25)]);
}

#[test]
fn a_follower_that_is_stopped_ran_nothing_and_says_so() {
    let mut bench = Bench::follower(once());
    bench.feed(1.0, Event::StopSignal);
    let exit = Action::Exit(Outcome::NotRun);
    assert_eq!(bench.feed(1.1, Event::Left), [exit]);
    assert_eq!(Outcome::NotRun.code(), 5);
}

#[test]
fn a_child_that_is_stopped_before_it_is_started_has_not_run() {
    let mut bench = Bench::starting(once());
    bench.feed(1.0, Event::StopSignal);
    assert_eq!(end(&mut bench, 1.1), Outcome::NotRun);
}
