//! `soloist run` on the real API server: real processes, and never two children.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod group;

use std::time::Duration;

use group::{Event, Group, Kind, QUICK, STANDARD};

const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn a_handover_waits_for_a_drain_longer_than_the_lease_and_exits_0() {
    let Some(mut group) = Group::of_three("handover", QUICK).await else {
        return;
    };
    group.drain_seconds = 6;
    let (leader, first) = group.start_all().await;
    group.signal(leader, "TERM");
    let ended = group.await_event(PATIENCE, |e| e.is_end_of(&first)).await;
    let next = group
        .await_event(PATIENCE, |e| e.is_start_after(&first))
        .await;
    assert!(next.at >= ended.at, "{next:?} {ended:?}");
    assert!(next.token > first.token);
    assert_eq!(group.exit_code(leader, PATIENCE).await, 0);
    group.assert_never_two();
}

async fn a_killed_soloist_takes_its_tree_along_before_the_next_one_starts(child: Kind) {
    let Some(mut group) = Group::of_three("killed", QUICK).await else {
        return;
    };
    group.kind = child;
    let (leader, first) = group.start_all().await;
    group.signal(leader, "KILL");
    let next = group
        .await_event(PATIENCE, |e| e.is_start_after(&first))
        .await;
    assert!(!group.is_alive(first.pid));
    assert!(next.token > first.token);
    group.assert_never_two();
}

async fn a_stopped_soloist_loses_its_tree_in_time_and_follows_when_it_goes_on(child: Kind) {
    let Some(mut group) = Group::of_three("stopped", QUICK).await else {
        return;
    };
    group.kind = child;
    let (leader, first) = group.start_all().await;
    group.signal(leader, "STOP");
    let next = group
        .await_event(PATIENCE, |e| e.is_start_after(&first))
        .await;
    assert!(!group.is_alive(first.pid));
    group.signal(leader, "CONT");
    group.await_log(leader, "to=Follower", PATIENCE).await;
    assert!(group.is_alive(next.pid));
    group.assert_never_two();
}

async fn a_killed_guard_takes_the_tree_along_and_it_starts_again(child: Kind) {
    let Some(mut group) = Group::of_three("guard-killed", QUICK).await else {
        return;
    };
    group.kind = child;
    let (leader, first) = group.start_all().await;
    let guard = group.guard_of(leader);
    group.signal_pid(guard, "KILL");
    group.await_dead(first.pid, PATIENCE).await;
    let another = |e: &Event| e.is_start() && e.pid != first.pid;
    let next = group.await_event(PATIENCE, another).await;
    assert!(next.token >= first.token);
    group.assert_never_two();
}

async fn a_stopped_guard_does_not_keep_the_tree_alive(child: Kind) {
    let Some(mut group) = Group::of_three("guard-stopped", QUICK).await else {
        return;
    };
    group.kind = child;
    let (leader, first) = group.start_all().await;
    let guard = group.guard_of(leader);
    group.signal_pid(guard, "STOP");
    group.links[leader].cut().unwrap();
    let next = group
        .await_event(PATIENCE, |e| e.is_start_after(&first))
        .await;
    assert!(!group.is_alive(first.pid));
    assert!(next.token > first.token);
    group.assert_never_two();
}

/// Each with a child that ignores the stop signal, and with one that has daemonised.
macro_rules! with_stubborn_children {
    ($($name:ident),* $(,)?) => { $(
        mod $name {
            #[tokio::test(flavor = "multi_thread")]
            async fn that_ignores_the_stop_signal() {
                super::$name(super::Kind::Ignores).await;
            }

            #[tokio::test(flavor = "multi_thread")]
            async fn that_has_daemonised() {
                super::$name(super::Kind::Daemonises).await;
            }
        }
    )* };
}

with_stubborn_children! {
    a_killed_soloist_takes_its_tree_along_before_the_next_one_starts,
    a_stopped_soloist_loses_its_tree_in_time_and_follows_when_it_goes_on,
    a_killed_guard_takes_the_tree_along_and_it_starts_again,
    a_stopped_guard_does_not_keep_the_tree_alive,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_off_leaders_child_is_asked_at_the_renew_deadline_and_dead_before_the_lease_ends() {
    let Some(mut group) = Group::of_three("cut-off", STANDARD).await else {
        return;
    };
    group.drain_seconds = 20;
    let (leader, first) = group.start_all().await;
    group.links[leader].cut().unwrap();
    let asked = group.await_event(PATIENCE, |e| e.is_stop_of(&first)).await;
    group.await_dead(first.pid, PATIENCE).await;
    let dead = group::now();
    let next = group
        .await_event(PATIENCE, |e| e.is_start_after(&first))
        .await;
    // SIGTERM at 10 s, SIGKILL at 13.5 s, the end at 15 s.
    let grace = dead - asked.at;
    assert!((3.0..4.5).contains(&grace.as_secs_f64()), "{grace:?}");
    let gap = next.at - asked.at;
    assert!(gap >= Duration::from_millis(4900), "{gap:?}");
    assert!(next.token > first.token);
    group.assert_never_two();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_that_stalls_for_two_seconds_now_and_then_does_not_cost_the_leadership() {
    let Some(mut group) = Group::of_three("stalls", STANDARD).await else {
        return;
    };
    let (leader, first) = group.start_all().await;
    for _ in 0..4 {
        group.links[leader]
            .stall_for(Duration::from_secs(2))
            .unwrap();
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert!(group.is_alive(first.pid));
    }
    let starts = group.events().into_iter().filter(Event::is_start).count();
    assert_eq!(starts, 1);
    group.assert_never_two();
}
