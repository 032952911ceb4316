//! How an elector ends when its program does not do its part.
#![allow(clippy::unwrap_used, reason = "a failing test says where")]

mod common;

use common::election::{elector, lead, name, quick};
use soloist_elector::memory::MemoryStore;
use soloist_elector::testing::in_time;
use soloist_elector::{Elector, ElectorError, clock};

fn died(error: &ElectorError, reason: &str) -> bool {
    matches!(error, ElectorError::Died(text) if text.contains(reason))
}

#[tokio::test]
async fn a_shutdown_with_a_term_that_nobody_finishes_ends_and_renews_no_more() {
    let store = MemoryStore::new();
    let elector = Elector::builder(store.clone())
        .identity(name("a"))
        .timings(quick())
        .drain_limit(2 * quick().lease().get())
        .spawn()
        .unwrap();
    let term = lead(&elector).await;
    let outcome = in_time(elector.shutdown()).await;
    assert!(
        matches!(outcome, Err(ElectorError::Unfinished)),
        "{outcome:?}"
    );
    assert!(!term.is_valid());
    // Its work may go on, so nothing is released, and the lease runs out.
    let (_, writes) = store.requests();
    assert!(store.current().record.unwrap().holder.is_some());
    clock::sleep(2 * quick().renew_interval()).await.unwrap();
    assert_eq!(store.requests().1, writes);
}

#[tokio::test]
async fn work_that_panics_ends_the_elector_with_the_reason_and_the_lease_is_released() {
    let store = MemoryStore::new();
    let elector = Elector::builder(store.clone())
        .identity(name("a"))
        .timings(quick())
        .on_started_leading(|_term| async { panic!("the work fell over") })
        .spawn()
        .unwrap();
    let mut leadership = elector.leadership();
    in_time(async { while leadership.changed().await.is_ok() {} }).await;
    let error = elector.lead().await.unwrap_err();
    assert!(died(&error, "the work fell over"), "{error}");
    assert!(store.current().record.unwrap().holder.is_none());
    let error = in_time(elector.shutdown()).await.unwrap_err();
    assert!(died(&error, "the work fell over"), "{error}");
}

#[tokio::test]
async fn a_callback_that_panics_ends_the_elector_and_is_told() {
    let elector = Elector::builder(MemoryStore::new())
        .identity(name("a"))
        .timings(quick())
        .on_started_leading(|term| async move { term.cancelled().await })
        .on_new_leader(|_| panic!("the callback fell over"))
        .spawn()
        .unwrap();
    let error = in_time(elector.lead()).await.unwrap_err();
    assert!(died(&error, "panicked"), "{error}");
}

#[tokio::test]
async fn work_runs_for_as_long_as_the_term_lasts() {
    let store = MemoryStore::new();
    let elector = elector(store.clone(), "a");
    let term = lead(&elector).await;
    let most = quick().lease().get() - quick().kill_margin();
    assert!(term.remaining() > most / 2 && term.remaining() <= most);
    assert_eq!(in_time(term.run(async { 42 })).await, Some(42));
    let endless = std::future::pending::<()>();
    let (lost, ()) = tokio::join!(in_time(term.run(endless)), async { store.delete() });
    assert_eq!(lost, None);
    assert_eq!(term.remaining(), std::time::Duration::ZERO);
    term.finish();
    in_time(elector.shutdown()).await.unwrap();
}
