//! Every event in every state. [`Bench`] checks each action that comes of it.

use super::*;
use std::vec;

const NOW: f64 = 3.0;

fn policies() -> Vec<Policy> {
    vec![policy(), once(), graceful(), stepping_down()]
}

fn events() -> Vec<Event> {
    let losses = [
        Loss::RenewDeadline,
        Loss::Resigned,
        Loss::Expired,
        Loss::Emptied,
        Loss::WrittenBack,
        Loss::Deleted,
        Loss::Taken(crate::ids::Identity::try_new("b").expect("a name")),
    ];
    let failures = [
        SpawnFailure::NotFound,
        SpawnFailure::NotExecutable,
        SpawnFailure::System,
    ];
    let timers = [
        Timer::Kill,
        Timer::ReadyLimit,
        Timer::Restart,
        Timer::CoolDown,
        Timer::KillReminder,
        Timer::GiveUp,
    ];
    let mut events = vec![
        elected(18.0),
        extended(18.0),
        Event::Left,
        Event::Refused,
        Event::Ready,
        ended(0),
        Event::Exited(Exit::Signal(9)),
        Event::TreeEmpty,
        Event::GuardLost,
        Event::Healthy,
        Event::Unhealthy,
        Event::StopSignal,
        Event::HandOver,
        Event::Pause,
        Event::NamedHeir,
    ];
    events.extend(losses.map(Event::Lost));
    events.extend(failures.map(Event::SpawnFailed));
    events.extend(timers.map(Event::Timer));
    events
}

/// One replica in each state, by the events that lead there from a leader.
fn states(policy: Policy) -> Vec<(&'static str, Bench)> {
    let crash = [ended(1), Event::TreeEmpty];
    let unhealthy = [Event::Unhealthy, Event::Unhealthy, Event::Unhealthy];
    let from_leader: [(&str, &[Event]); 13] = [
        ("leader", &[]),
        ("leader with a failed check", &[Event::Unhealthy]),
        ("stopping an unhealthy child", &unhealthy),
        ("clearing up after a crash", &crash[..1]),
        ("restarted", &crash),
        ("losing", &[Event::Lost(Loss::RenewDeadline)]),
        ("killed for a lost lease", &[Event::Lost(Loss::Deleted)]),
        ("handing over", &[Event::HandOver]),
        ("stopping for a pause", &[Event::Pause]),
        ("terminating", &[Event::StopSignal]),
        ("killing", &[Event::StopSignal, Event::StopSignal]),
        ("leaving", &[Event::StopSignal, Event::TreeEmpty]),
        ("done", &[Event::StopSignal, Event::TreeEmpty, Event::Left]),
    ];
    let mut waiting = Bench::leader(policy);
    waiting.feed_all(2.5, &crash);
    waiting.feed_all(2.5, &crash);
    let mut cooling = Bench::leader(policy);
    cooling.feed_all(2.0, &[Event::HandOver, Event::TreeEmpty]);

    let mut states = vec![
        ("follower", Bench::follower(policy)),
        ("cooling down", cooling),
        ("starting", Bench::starting(policy)),
        ("waiting to restart", waiting),
    ];
    for (name, events) in from_leader {
        let mut bench = Bench::leader(policy);
        bench.feed_all(2.0, events);
        states.push((name, bench));
    }
    states
}

fn every_pair(mut check: impl FnMut(&str, &Event, Bench)) {
    for policy in policies() {
        for (name, bench) in states(policy) {
            for event in events() {
                check(name, &event, bench.clone());
            }
        }
    }
}

#[test]
fn the_table_visits_every_state() {
    let names = states(policy()).into_iter().map(|(_, b)| b.state());
    let names: Vec<_> = names.collect();
    for state in [
        StateName::Follower,
        StateName::PreLeader,
        StateName::Leader,
        StateName::PreFollower,
        StateName::Terminating,
    ] {
        assert!(names.contains(&state), "{state}");
    }
}

#[test]
fn every_event_in_every_state_keeps_the_rules_and_leaves_no_deadline_behind() {
    every_pair(|_, event, mut bench| {
        bench.feed(NOW, event.clone());
        bench.handle_timeout(t(NOW));
    });
}

#[test]
fn every_pair_of_events_in_every_state_keeps_the_rules() {
    every_pair(|_, first, mut bench| {
        bench.feed(NOW, first.clone());
        for second in events() {
            let mut bench = bench.clone();
            bench.feed(NOW, second);
            bench.handle_timeout(t(NOW));
        }
    });
}

#[test]
fn after_any_event_two_stop_signals_and_an_empty_tree_end_the_replica() {
    every_pair(|name, event, mut bench| {
        bench.feed(NOW, event.clone());
        bench.feed_all(NOW, &[Event::StopSignal, Event::StopSignal]);
        bench.feed_all(NOW, &[Event::TreeEmpty, Event::Left]);
        assert!(bench.done, "{name}, {event:?}: {:?}", bench.replica);
    });
}

#[test]
fn once_done_nothing_is_done_any_more() {
    let mut bench = Bench::leader(policy());
    bench.feed_all(1.0, &[Event::StopSignal, Event::TreeEmpty, Event::Left]);
    assert_eq!(bench.feed_all(2.0, &events()), []);
    assert_eq!(bench.replica.next_deadline(), None);
}

#[test]
fn a_child_is_only_started_when_elected_or_to_restart_an_empty_tree() {
    every_pair(|name, event, mut bench| {
        let actions = bench.feed(NOW, event.clone());
        if actions.iter().any(|a| matches!(a, Action::Spawn { .. })) {
            let cause = matches!(
                event,
                Event::Elected(_)
                    | Event::TreeEmpty
                    | Event::SpawnFailed(_)
                    | Event::Timer(Timer::Restart)
            );
            assert!(cause, "{name}: {event:?} started a child");
        }
    });
}
