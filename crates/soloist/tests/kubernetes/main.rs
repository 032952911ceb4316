//! `soloist run` on the real API server: real processes, and never two children.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod cordoned;
mod group;
mod in_pods;
mod moving;
mod orders;
mod prestop;

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

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_in_the_moment_of_a_release_leaves_the_lease_free() {
    let Some(mut group) = Group::of_three("between", QUICK).await else {
        return;
    };
    let leader = group.start_next();
    let first = group.await_event(PATIENCE, Event::is_start).await;
    // At the renew deadline the child is asked to end, while the lease is still its own.
    group.links[leader].stall().unwrap();
    group.await_event(PATIENCE, |e| e.is_end_of(&first)).await;
    let way = Duration::from_millis(40);
    group.links[leader].delay(way).unwrap();
    group.await_free(PATIENCE).await;
    // It learns of its release, on which it asks for the next term, and of the signal in one moment.
    group.signal(leader, "STOP");
    group.signal(leader, "TERM");
    tokio::time::sleep(2 * way).await;
    group.signal(leader, "CONT");
    assert_eq!(group.exit_code(leader, PATIENCE).await, 0);
    let freed = group::now();
    group.start_next();
    let next = group
        .await_event(PATIENCE, |e| e.is_start() && e.at > freed)
        .await;
    let gap = next.at - freed;
    assert!(gap < Duration::from_secs(2), "half a lease: {gap:?}");
    group.assert_never_two();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_has_one_guard_that_waits_keeps_it_when_it_loses_a_race_and_takes_it_along() {
    let Some(mut group) = Group::of_three("race", QUICK).await else {
        return;
    };
    let (leader, first) = group.start_all().await;
    let late = (leader + 1) % 3;
    let guard = group.await_process_of(late, PATIENCE).await;
    group.links[late].delay(Duration::from_millis(100)).unwrap();
    group.signal(leader, "TERM");
    let next = group
        .await_event(PATIENCE, |e| e.is_start_after(&first))
        .await;
    let other = (leader + 2) % 3;
    group
        .await_log(late, &format!("leader=r{other}"), PATIENCE)
        .await;
    assert_eq!(group.processes_of(late), [guard]);
    group.signal(late, "TERM");
    assert_eq!(group.exit_code(late, PATIENCE).await, 0);
    group.await_dead(guard, PATIENCE).await;
    assert!(group.is_alive(next.pid));
    assert!(!group.log(late).contains("elected"));
    group.assert_never_two();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guard_that_is_killed_while_it_waits_is_replaced() {
    let Some(mut group) = Group::of_three("waiting", QUICK).await else {
        return;
    };
    // Every request takes more than this.
    group.links[0].delay(Duration::from_millis(150)).unwrap();
    let replica = group.start_next();
    let guard = group.await_process_of(replica, PATIENCE).await;
    group.signal_pid(guard, "KILL");
    let first = group.await_event(PATIENCE, Event::is_start).await;
    assert!(group.is_alive(first.pid));
    assert_ne!(group.guard_of(replica), guard);
    let log = group.log(replica);
    assert!(log.contains("that was to start the child is gone"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_that_are_taken_away_and_given_back_end_no_replica() {
    let Some(mut group) = Group::of_three("forbidden", QUICK).await else {
        return;
    };
    let (leader, first) = group.start_all().await;
    group.forbid().await;
    group.await_log(leader, "to=Follower", PATIENCE).await;
    for replica in 0..3 {
        group
            .await_log(replica, "replica-0 may not", PATIENCE)
            .await;
    }
    // Long enough for many tries.
    tokio::time::sleep(Duration::from_secs(5)).await;
    for replica in 0..3 {
        assert!(!group.has_exited(replica), "{}", group.log(replica));
        let log = group.log(replica);
        for verb in ["list", "update", "watch"] {
            let line = format!("may not \"{verb}\" leases");
            let told = log.matches(&line).count();
            assert!(told <= 1, "said again and again: {log}");
        }
    }
    group.allow().await;
    let next = |e: &Event| e.is_start_after(&first);
    group.await_event(PATIENCE, next).await;
    group.assert_never_two();
}

/// A minute, because a role may come a little later than the Pod.
#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_never_had_the_rights_gives_up_with_3_after_a_minute() {
    let Some(mut group) = Group::of_three("never-allowed", QUICK).await else {
        return;
    };
    group.forbid().await;
    let started = std::time::Instant::now();
    let replica = group.start_next();
    let code = group.exit_code(replica, 3 * PATIENCE).await;
    assert_eq!(code, 3, "{}", group.log(replica));
    assert!(started.elapsed() > Duration::from_secs(59));
    let log = group.log(replica);
    assert!(log.contains("verbs: [\"list\"]"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_is_refused_is_told_and_the_replica_works_without_it() {
    let Some(mut group) = Group::of_three("no-watch", QUICK).await else {
        return;
    };
    group.forbid().await;
    group.allow_without_watch().await;
    let replica = group.start_next();
    group.await_event(PATIENCE, Event::is_start).await;
    let told = "may not \"watch\" leases";
    group.await_log(replica, told, PATIENCE).await;
}

/// It runs beside the renewals, is reaped by whoever is faster, and keeps nobody from leaving.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_credential_plugin_costs_neither_the_lease_nor_the_exit() {
    let Some(mut group) = Group::of_three("plugin", QUICK).await else {
        return;
    };
    group.plugin_seconds = Some(3);
    let replica = group.start_next();
    group.await_event(PATIENCE, Event::is_start).await;
    assert_eq!(group.plugin_runs(), 1);
    let deadline = std::time::Instant::now() + 2 * PATIENCE;
    while group.plugin_runs() < 3 {
        assert!(
            std::time::Instant::now() < deadline,
            "{}",
            group.log(replica)
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // The third run has just begun.
    group.signal(replica, "TERM");
    let asked = std::time::Instant::now();
    let code = group.exit_code(replica, PATIENCE).await;
    assert_eq!(code, 0, "{}", group.log(replica));
    assert!(asked.elapsed() < Duration::from_secs(2), "it waited");
    assert_eq!(group.events().iter().filter(|e| e.is_start()).count(), 1);
    let log = group.log(replica);
    assert!(!log.contains("no new credentials"), "{log}");
}
