//! Children that end by themselves.

use super::*;

/// The child crashes now and leaves nothing behind; when is the next one started?
fn crash(bench: &mut Bench, seconds: f64) -> f64 {
    bench.feed(seconds, extended(seconds + 15.0));
    assert_eq!(bench.feed(seconds, ended(1)), []);
    let actions = bench.feed(seconds, Event::TreeEmpty);
    if matches!(actions[..], [Action::Spawn { .. }]) {
        return seconds;
    }
    assert_eq!(actions, [], "neither restarted nor waiting");
    let due = bench.replica.next_deadline().expect("a restart");
    let actions = bench.handle_timeout(due);
    assert!(matches!(actions[..], [Action::Spawn { .. }]), "{actions:?}");
    due.uptime().as_secs_f64()
}

#[test]
fn a_crash_is_restarted_at_once_in_the_same_term() {
    let mut bench = Bench::leader(policy());
    assert_eq!(bench.feed(1.0, ended(1)), []);
    assert_eq!(bench.state(), StateName::PreLeader);
    assert_eq!(bench.feed(1.0, Event::TreeEmpty), [spawn(14.25)]);
    assert_eq!(bench.feed(2.0, Event::Ready), []);
    assert_eq!(bench.state(), StateName::Leader);
}

#[test]
fn what_a_crashed_child_leaves_behind_has_a_moment_and_is_killed_before_the_restart() {
    let mut bench = Bench::leader(policy());
    assert_eq!(bench.feed(1.0, ended(1)), []);
    assert_eq!(bench.run_until(2.9), []);
    assert_eq!(bench.run_until(3.0), [Action::KillTree]);
    assert_eq!(bench.feed(5.9, Event::TreeEmpty), [spawn(14.25)]);
}

#[test]
fn a_crash_before_ready_is_a_crash_too() {
    let mut bench = Bench::starting(policy());
    assert_eq!(bench.feed(1.0, ended(1)), []);
    assert_eq!(bench.feed(1.0, Event::TreeEmpty), [spawn(14.25)]);
}

#[test]
fn crashes_in_a_row_are_restarted_after_longer_and_longer_waits() {
    let mut bench = Bench::leader(policy());
    let mut now = 1.0;
    for wait in [0.0, 1.0, 2.0, 4.0, 8.0] {
        let again = crash(&mut bench, now);
        assert_eq!(again - now, wait);
        now = again + 0.5;
    }
}

#[test]
fn one_crash_too_many_gives_the_lease_away_for_a_cool_down() {
    let mut bench = Bench::leader(policy());
    let mut now = 1.0;
    for _ in 0..5 {
        now = crash(&mut bench, now) + 0.5;
    }
    bench.feed(now, ended(1));
    assert_eq!(bench.feed(now, Event::TreeEmpty), [Action::Leave]);
    assert_eq!(bench.state(), StateName::Follower);
    assert_eq!(bench.run_until(now + 20.0), [Action::Stand]);
}

#[test]
fn after_the_cool_down_crashes_are_counted_afresh() {
    let mut bench = Bench::leader(policy());
    let mut now = 1.0;
    for _ in 0..5 {
        now = crash(&mut bench, now) + 0.5;
    }
    bench.feed_all(now, &[ended(1), Event::TreeEmpty]);
    bench.run_until(40.0);
    bench.feed_all(40.0, &[elected(55.0), Event::Ready]);
    assert_eq!(crash(&mut bench, 41.0), 41.0);
}

#[test]
fn a_child_that_ran_for_a_stable_while_is_restarted_at_once_again() {
    let mut bench = Bench::leader(policy());
    let again = crash(&mut bench, 1.0);
    let again = crash(&mut bench, again + 1.0);
    bench.feed(again, Event::Ready);
    bench.run_renewing(again, again + 60.0);
    let later = again + 60.0;
    assert_eq!(crash(&mut bench, later), later);
}

#[test]
fn crashes_outside_the_window_are_forgotten() {
    let mut bench = Bench::leader(policy());
    let mut now = 1.0;
    for _ in 0..10 {
        assert_eq!(crash(&mut bench, now), now);
        bench.feed(now, Event::Ready);
        bench.run_renewing(now, now + 75.0);
        now += 75.0;
    }
}

#[test]
fn while_waiting_to_restart_the_lease_is_kept() {
    let mut bench = Bench::leader(policy());
    bench.feed_all(
        1.0,
        &[ended(1), Event::TreeEmpty, ended(1), Event::TreeEmpty],
    );
    assert_eq!(bench.state(), StateName::PreLeader);
    assert_eq!(bench.feed(1.5, extended(16.0)), []);
    assert_eq!(bench.run_until(2.0), [spawn(15.25)]);
}

#[test]
fn a_lease_lost_or_handed_over_while_waiting_to_restart_is_given_back() {
    let mut waiting = Bench::leader(policy());
    waiting.feed_all(
        1.0,
        &[ended(1), Event::TreeEmpty, ended(1), Event::TreeEmpty],
    );
    let mut handing = waiting.clone();
    assert_eq!(
        waiting.feed(1.5, Event::Lost(Loss::Deleted)),
        [Action::Leave, Action::Stand]
    );
    assert_eq!(handing.feed(1.5, Event::HandOver), [Action::Leave]);
    assert_eq!(handing.run_until(21.5), [Action::Stand]);
}

#[test]
fn nothing_is_restarted_when_the_lease_is_about_to_end() {
    let mut bench = Bench::leader(policy());
    bench.feed(13.0, ended(1));
    assert_eq!(
        bench.feed(13.5, Event::TreeEmpty),
        [Action::Leave, Action::Stand]
    );
    assert_eq!(bench.state(), StateName::Follower);
}

#[test]
fn a_restart_that_comes_due_while_the_process_is_stopped_past_its_lease_starts_nothing() {
    for policy in [policy(), graceful()] {
        let mut bench = Bench::leader(policy);
        bench.feed_all(1.0, &[ended(1), Event::TreeEmpty]);
        bench.feed_all(1.0, &[ended(1), Event::TreeEmpty]);
        assert_eq!(
            bench.handle_timeout(t(20.0)),
            [Action::Leave, Action::Stand]
        );
        assert_eq!(bench.state(), StateName::Follower);
    }
}

#[test]
fn a_child_is_stable_by_how_long_it_ran_and_not_by_how_long_it_was_waited_for() {
    let mut policy = policy();
    policy.restarts.most = 1000;
    let mut bench = Bench::leader(policy);
    let mut now = 0.0;
    let mut waits = Vec::new();
    for _ in 0..9 {
        now += 31.0;
        bench.feed(now - 31.0, extended(now + 100.0));
        bench.feed(now, ended(1));
        let at_once = !bench.feed(now, Event::TreeEmpty).is_empty();
        let until = match at_once {
            true => t(now),
            false => bench.replica.next_deadline().expect("it waits to restart"),
        };
        let wait = until.since(t(now));
        now += wait.as_secs_f64();
        if !at_once {
            let started = bench.handle_timeout(until);
            assert!(matches!(started[..], [Action::Spawn { .. }]), "{started:?}");
        }
        waits.push(wait.as_secs());
    }
    assert_eq!(waits, [0, 1, 2, 4, 8, 16, 30, 30, 30]);
}

#[test]
fn a_lost_guard_is_a_crash() {
    for mut bench in [Bench::leader(policy()), Bench::starting(policy())] {
        assert_eq!(bench.feed(1.0, Event::GuardLost), [Action::KillTree]);
        assert_eq!(bench.state(), StateName::PreLeader);
        assert_eq!(bench.feed(1.0, ended(137)), []);
        assert_eq!(bench.feed(1.1, Event::TreeEmpty), [spawn(14.25)]);
    }
}

#[test]
fn a_guard_lost_while_killing_kills_again() {
    let mut bench = Bench::leader(policy());
    bench.feed(1.0, ended(1));
    assert_eq!(bench.feed(1.1, Event::GuardLost), [Action::KillTree]);
    assert_eq!(bench.state(), StateName::PreLeader);
}
