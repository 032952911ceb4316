//! Electors on every store that needs no cluster.
#![allow(clippy::unwrap_used, reason = "a failing test says where")]

mod common;

use std::time::Duration;

use common::election::{elector, lead, quick, sees};
use futures_util::future::select_all;
use soloist_elector::clock;
use soloist_elector::core::election::Claim;
use soloist_elector::testing::{Fixture, in_time};

async fn one_of_thirty_leads<F: Fixture>(fixture: F) {
    let mut electors: Vec<_> = (0..30)
        .map(|n| elector(fixture.store(), &format!("replica-{n}")))
        .collect();
    let mut tokens = Vec::new();
    for _ in 0..3 {
        let waits = electors.iter().map(|e| Box::pin(e.lead()));
        let (term, winner, others) = in_time(select_all(waits)).await;
        let term = term.unwrap();
        // All others have seen who leads, and none of them has a term of its own.
        let leader = electors[winner].identity().as_str().to_owned();
        for (index, other) in electors.iter().enumerate() {
            if index != winner {
                sees(other, Some(&leader)).await;
                assert_eq!(other.leadership().borrow().term, None);
            }
        }
        assert!(term.is_valid());
        tokens.push(term.token());
        drop(others);
        term.finish();
        in_time(electors.swap_remove(winner).shutdown())
            .await
            .unwrap();
    }
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
}

async fn a_release_is_taken_over_at_once<F: Fixture>(fixture: F) {
    let first = elector(fixture.store(), "first");
    let second = elector(fixture.store(), "second");
    let term = lead(&first).await;
    let mut seen = second.leadership();
    let next = tokio::spawn(async move { (lead(&second).await, second) });
    let leader = first.identity().clone();
    in_time(seen.wait_for(|l| l.leader.as_ref() == Some(&leader)))
        .await
        .unwrap();
    let token = term.token();
    let released = clock::now();
    term.finish();
    let (next, _second) = next.await.unwrap();
    let took = clock::now().since(released);
    assert!(took < Duration::from_millis(900), "{took:?}");
    assert!(next.token() > token);
    assert_eq!(next.number().get(), 1);
}

async fn a_dead_leader_is_succeeded_when_its_lease_has_run_out<F: Fixture>(fixture: F) {
    let mut dead = common::election::Replica::new(fixture.store(), "dead", 1);
    dead.handle.stand();
    let elected = dead.elected().await;
    drop(dead);
    let standby = elector(fixture.store(), "standby");
    let term = lead(&standby).await;
    assert_eq!(term.claim(), Claim::Expired);
    assert!(clock::now() >= elected.valid_until);
    assert!(term.token() > elected.token);
}

async fn a_deleted_lease_is_lost_at_once_and_waited_out_by_the_others<F: Fixture>(fixture: F) {
    let leader = elector(fixture.store(), "leader");
    let standby = elector(fixture.store(), "standby");
    let term = lead(&leader).await;
    let waiting = tokio::spawn(async move { (lead(&standby).await, standby) });
    let valid_until = term.valid_until();
    fixture.delete().await;
    in_time(term.cancelled()).await;
    assert!(clock::now() < valid_until, "the loss was not seen at once");
    let (next, _standby) = waiting.await.unwrap();
    assert!(next.token() > term.token());
    term.finish();
}

async fn a_lease_edited_by_hand_is_lost_at_once<F: Fixture>(fixture: F) {
    for holder in [Some("operator"), None] {
        let leader = elector(fixture.store(), "leader");
        let term = lead(&leader).await;
        let valid_until = term.valid_until();
        fixture.set_holder(holder).await;
        in_time(term.cancelled()).await;
        assert!(clock::now() < valid_until);
        assert!(!term.is_valid());
        term.finish();
        // Nothing of ours is left to release: the operator's word stands.
        in_time(leader.shutdown()).await.unwrap();
    }
}

async fn two_with_one_name_never_lead_together<F: Fixture>(fixture: F) {
    let first = elector(fixture.store(), "same");
    let second = elector(fixture.store(), "same");
    let term = lead(&first).await;
    let waiting = tokio::spawn(async move { (lead(&second).await, second) });
    // Long enough for a lease to run out, had nobody renewed it.
    let lease = quick().lease().get();
    let mut timer = clock::Timer::new().unwrap();
    timer.until(clock::now() + lease + lease / 2).await.unwrap();
    assert!(term.is_valid() && !waiting.is_finished());
    let token = term.token();
    term.finish();
    let (next, _second) = waiting.await.unwrap();
    assert!(next.token() > token);
}

async fn a_shutdown_waits_for_the_work_and_keeps_the_lease_meanwhile<F: Fixture>(fixture: F) {
    let leader = elector(fixture.store(), "leader");
    let standby = elector(fixture.store(), "standby");
    let term = lead(&leader).await;
    let waiting = tokio::spawn(async move { (lead(&standby).await, standby) });
    let shutdown = tokio::spawn(leader.shutdown());
    in_time(term.cancelled()).await;
    // The drain takes longer than the lease.
    let lease = quick().lease().get();
    let mut timer = clock::Timer::new().unwrap();
    timer.until(clock::now() + lease + lease / 4).await.unwrap();
    assert!(!waiting.is_finished() && !shutdown.is_finished());
    assert!(term.valid_until() > clock::now());
    term.finish();
    in_time(shutdown).await.unwrap().unwrap();
    let (next, _standby) = waiting.await.unwrap();
    assert_eq!(next.claim(), Claim::Released);
}

async fn a_resigned_term_is_cancelled_and_another_can_follow<F: Fixture>(fixture: F) {
    let elector = elector(fixture.store(), "alone");
    let first = lead(&elector).await;
    elector.resign();
    in_time(first.cancelled()).await;
    first.finish();
    let second = lead(&elector).await;
    assert_eq!(second.number().get(), 1);
    second.finish();
    in_time(elector.shutdown()).await.unwrap();
}

async fn whoever_stops_waiting_is_no_candidate_any_more<F: Fixture>(fixture: F) {
    let leader = elector(fixture.store(), "leader");
    let fickle = elector(fixture.store(), "fickle");
    let patient = elector(fixture.store(), "patient");
    let term = lead(&leader).await;
    {
        let mut wait = Box::pin(fickle.lead());
        let seen = sees(&fickle, Some("leader"));
        tokio::select! {
            _ = &mut wait => panic!("two leaders"),
            () = seen => {}
        }
    }
    let waiting = tokio::spawn(async move { (lead(&patient).await, patient) });
    term.finish();
    let (_term, _patient) = waiting.await.unwrap();
    assert_eq!(fickle.leadership().borrow().term, None);
}

macro_rules! on_every_store {
    ($($name:ident,)*) => {
        mod memory {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$name(super::common::Memory::new()).await;
                }
            )*
        }
        mod file {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$name(super::common::File::new()).await;
                }
            )*
        }
    };
}

on_every_store! {
    one_of_thirty_leads,
    a_release_is_taken_over_at_once,
    a_dead_leader_is_succeeded_when_its_lease_has_run_out,
    a_deleted_lease_is_lost_at_once_and_waited_out_by_the_others,
    a_lease_edited_by_hand_is_lost_at_once,
    two_with_one_name_never_lead_together,
    a_shutdown_waits_for_the_work_and_keeps_the_lease_meanwhile,
    a_resigned_term_is_cancelled_and_another_can_follow,
    whoever_stops_waiting_is_no_candidate_any_more,
}
