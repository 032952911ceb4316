//! What becomes of leadership when the store misbehaves, in memory.
#![allow(clippy::unwrap_used, reason = "a failing test says where")]

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::election::{Replica, elector, lead, name, quick, sees};
use soloist_elector::core::election::Loss;
use soloist_elector::driver::RequestKind;
use soloist_elector::memory::{Faults, MemoryStore};
use soloist_elector::testing::in_time;
use soloist_elector::{DriverEvent, DriverHandle, Elector, ElectorError, StoreError, clock};

#[tokio::test]
async fn a_term_is_cancelled_in_time_when_the_store_swallows_everything() {
    let store = MemoryStore::new();
    let elector = elector(store.clone(), "a");
    let term = lead(&elector).await;
    store.set_faults(Faults {
        swallow_everything: true,
        ..Faults::default()
    });
    in_time(term.cancelled()).await;
    let now = clock::now();
    assert!(now <= term.valid_until() - quick().kill_margin());
    assert!(!term.is_valid());
}

#[tokio::test]
async fn one_swallowed_renewal_does_not_cost_the_leadership() {
    let store = MemoryStore::new();
    let mut replica = Replica::new(store.clone(), "a", 1);
    replica.handle.stand();
    let elected = replica.elected().await;
    store.set_faults(Faults {
        swallow_next_request: true,
        ..Faults::default()
    });
    let given_up = replica
        .next(|event| match event {
            DriverEvent::Answered {
                request: RequestKind::Renew,
                error: Some(error),
                took,
            } => Some((error.clone(), *took)),
            _ => None,
        })
        .await;
    assert!(matches!(given_up.0, StoreError::Unknown(_)));
    assert!(given_up.1 >= quick().attempt_limit());
    let extended = replica
        .next(|event| match event {
            DriverEvent::Extended { valid_until } => Some(*valid_until),
            DriverEvent::Lost(loss) => panic!("{loss:?}"),
            _ => None,
        })
        .await;
    assert!(extended > elected.valid_until);
}

#[tokio::test]
async fn an_acquisition_whose_answer_was_lost_is_found_again() {
    let store = MemoryStore::new();
    store.set_faults(Faults {
        lose_next_answer: true,
        ..Faults::default()
    });
    let elector = elector(store.clone(), "a");
    let term = lead(&elector).await;
    assert_eq!(store.current().version.get(), term.token().get());
}

#[tokio::test]
async fn a_renewal_whose_answer_was_lost_still_counts() {
    let store = MemoryStore::new();
    let mut replica = Replica::new(store.clone(), "a", 1);
    replica.handle.stand();
    replica.elected().await;
    store.set_faults(Faults {
        lose_next_answer: true,
        ..Faults::default()
    });
    let mut lost_answer = false;
    replica
        .next(|event| match event {
            DriverEvent::Answered {
                error: Some(StoreError::Unknown(_)),
                ..
            } => {
                lost_answer = true;
                None
            }
            DriverEvent::Extended { .. } => Some(()),
            DriverEvent::Lost(loss) => panic!("{loss:?}"),
            _ => None,
        })
        .await;
    // Found by the watch, before or after the answer was missed.
    replica
        .next(|event| matches!(event, DriverEvent::Extended { .. }).then_some(()))
        .await;
}

#[tokio::test]
async fn broken_watches_are_replaced_and_the_next_release_is_seen() {
    let store = MemoryStore::new();
    let leader = elector(store.clone(), "leader");
    let standby = elector(store.clone(), "standby");
    let term = lead(&leader).await;
    let waiting = tokio::spawn(async move { (lead(&standby).await, standby) });
    for _ in 0..5 {
        store.break_watches();
        tokio::task::yield_now().await;
    }
    term.finish();
    let (_term, _standby) = waiting.await.unwrap();
}

#[tokio::test]
async fn a_deaf_watch_costs_a_lost_race_and_never_safety() {
    let store = MemoryStore::new();
    let leader = elector(store.clone(), "leader");
    let term = lead(&leader).await;
    let mut standby = Replica::new(store.clone(), "standby", 2);
    standby.handle.stand();
    standby
        .next(|event| matches!(event, DriverEvent::Holder(Some(_))).then_some(()))
        .await;
    store.set_faults(Faults {
        mute_watches: true,
        ..Faults::default()
    });
    standby
        .next(|event| match event {
            DriverEvent::Answered {
                request: RequestKind::Acquire,
                error: Some(StoreError::LostRace(_)),
                ..
            } => Some(()),
            DriverEvent::Elected(elected) => panic!("two leaders: {elected:?}"),
            _ => None,
        })
        .await;
    assert!(term.is_valid());
}

#[tokio::test]
async fn a_refusal_is_told_with_its_reason_and_ends_when_the_store_gives_in() {
    let store = MemoryStore::new();
    store.set_faults(Faults {
        fail_next_read: Some(StoreError::refused("no", "here", "ask somebody")),
        ..Faults::default()
    });
    let mut replica = Replica::new(store, "a", 1);
    replica.handle.stand();
    let error = replica
        .next(|event| match event {
            DriverEvent::Refused { error, .. } => Some(error.to_string()),
            _ => None,
        })
        .await;
    assert_eq!(error, "refused: no (here). ask somebody");
    replica.elected().await;
}

#[tokio::test]
async fn trouble_is_shown_while_it_lasts() {
    let store = MemoryStore::new();
    store.set_faults(Faults {
        fail_next_read: Some(StoreError::Unavailable("the cable".into())),
        ..Faults::default()
    });
    let elector = elector(store, "a");
    let mut leadership = elector.leadership();
    let leading = tokio::spawn(async move { (lead(&elector).await, elector) });
    in_time(
        leadership.wait_for(|l| l.trouble == Some(StoreError::Unavailable("the cable".into()))),
    )
    .await
    .unwrap();
    in_time(leadership.wait_for(|l| l.trouble.is_none() && l.term.is_some()))
        .await
        .unwrap();
    let (_term, _elector) = leading.await.unwrap();
}

#[tokio::test]
async fn the_owner_learns_of_the_death_of_the_election() {
    let store = MemoryStore::new();
    let mut replica = Replica::new(store.clone(), "a", 1);
    store.set_faults(Faults {
        panic_on_next_request: true,
        ..Faults::default()
    });
    replica.handle.stand();
    assert_eq!(in_time(replica.events.recv()).await, None);
    let error = in_time(replica.handle.join()).await.unwrap_err();
    assert!(error.is_panic());
}

#[tokio::test]
async fn a_term_is_cancelled_when_the_election_dies_and_the_elector_says_so() {
    let store = MemoryStore::new();
    let elector = elector(store.clone(), "a");
    let term = lead(&elector).await;
    store.set_faults(Faults {
        panic_on_next_request: true,
        ..Faults::default()
    });
    in_time(term.cancelled()).await;
    assert!(matches!(
        in_time(elector.lead()).await,
        Err(ElectorError::Died(_))
    ));
    let ended = in_time(elector.shutdown()).await;
    assert!(matches!(ended, Err(ElectorError::Died(_))), "{ended:?}");
}

#[tokio::test]
async fn a_dropped_elector_releases_what_it_holds() {
    let store = MemoryStore::new();
    let first = elector(store.clone(), "first");
    let term = lead(&first).await;
    drop(first);
    in_time(term.cancelled()).await;
    term.finish();
    let second = elector(store, "second");
    let next = lead(&second).await;
    assert_eq!(next.number().get(), 1);
}

#[tokio::test]
async fn the_heartbeat_goes_on_while_nothing_happens() {
    let replica = Replica::new(MemoryStore::new(), "a", 1);
    let first = replica.handle.heartbeat();
    clock::sleep(DriverHandle::HEARTBEAT + Duration::from_millis(50))
        .await
        .unwrap();
    let second = replica.handle.heartbeat();
    assert!(second.turns > first.turns && second.last > first.last);
}

#[tokio::test]
async fn resign_keeps_the_lease_and_leave_gives_it_back() {
    let store = MemoryStore::new();
    let mut replica = Replica::new(store.clone(), "a", 1);
    replica.handle.stand();
    replica.elected().await;
    replica.handle.resign();
    assert_eq!(replica.lost().await, Loss::Resigned);
    let holder = |store: &MemoryStore| store.current().record.unwrap().holder;
    assert_eq!(holder(&store), Some(name("a")));
    replica.handle.leave();
    replica.left().await;
    assert_eq!(holder(&store), None);
    assert!(store.current().record.unwrap().released_by_its_holder());
}

#[tokio::test]
async fn a_healthy_group_asks_for_little() {
    let store = MemoryStore::new();
    let leader = elector(store.clone(), "leader");
    let standby = elector(store.clone(), "standby");
    let term = lead(&leader).await;
    let waiting = tokio::spawn(async move { (lead(&standby).await, standby) });
    let begin = store.requests();
    let until = term.valid_until() + 2 * quick().lease().get();
    clock::Timer::new().unwrap().until(until).await.unwrap();
    let (reads, writes) = store.requests();
    // Three leases have passed: nine renewals, and the standby's first look.
    assert!(reads - begin.0 <= 1, "{reads}");
    assert!((6..=10).contains(&(writes - begin.1)), "{writes}");
    waiting.abort();
}

#[tokio::test]
async fn callbacks_are_called_as_client_go_calls_them() {
    let store = MemoryStore::new();
    let log = Arc::new(Mutex::new(Vec::new()));
    let (ended_sender, mut ended) = tokio::sync::mpsc::unbounded_channel();
    let (started, stopped, new_leader) = (log.clone(), log.clone(), log.clone());
    let mut term_count = 0;
    let elector = Elector::builder(store.clone())
        .identity(name("a"))
        .timings(quick())
        .on_started_leading(move |term| {
            term_count += 1;
            started
                .lock()
                .unwrap()
                .push(format!("started {term_count}"));
            let (first, ended) = (term_count == 1, ended_sender.clone());
            async move {
                // The first term ends with its work, the second with the elector.
                if !first {
                    term.cancelled().await;
                }
                term.finish();
                ended.send(()).unwrap();
            }
        })
        .on_stopped_leading(move || stopped.lock().unwrap().push("stopped".into()))
        .on_new_leader(move |leader| new_leader.lock().unwrap().push(format!("leader {leader}")))
        .spawn()
        .unwrap();
    in_time(ended.recv()).await.unwrap();
    let mut leadership = elector.leadership();
    in_time(leadership.wait_for(|l| l.term.is_some_and(|t| t.number.get() == 1)))
        .await
        .unwrap();
    in_time(elector.shutdown()).await.unwrap();
    let once = [
        "leader a",
        "started 1",
        "stopped",
        "leader a",
        "started 2",
        "stopped",
    ];
    assert_eq!(*log.lock().unwrap(), once);
}

#[tokio::test]
async fn a_leader_that_was_there_before_is_seen() {
    let store = MemoryStore::new();
    let leader = elector(store.clone(), "leader");
    let _term = lead(&leader).await;
    let late = elector(store, "late");
    let mut wait = Box::pin(late.lead());
    tokio::select! {
        _ = &mut wait => panic!("two leaders"),
        () = sees(&late, Some("leader")) => {}
    }
    assert_eq!(late.leadership().borrow().leader, Some(name("leader")));
}
