//! Ways to an etcd that fail.

use std::time::Duration;

use futures_util::StreamExt;
use soloist_elector::core::election::Purpose;
use soloist_elector::testing::{Fixture, absent, held_by, in_time};
use soloist_elector::{LeaseStore, StoreError, clock};
use testbed::{Direction, Link};

use crate::harness::{Etcd, elector, goes_on, quick};

fn link(etcd: &Etcd) -> Link {
    let endpoint = etcd.cluster().endpoint(0);
    Link::to(endpoint.parse().unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_whose_answer_is_lost_has_landed_and_the_next_request_takes_another_connection() {
    let Some(etcd) = Etcd::shared() else { return };
    let link = link(&etcd);
    let store = etcd.store_at(&link.address().to_string());
    let before = in_time(store.read()).await.unwrap();
    link.swallow(Direction::ToClient).unwrap();
    let record = held_by("a", 1, 1);
    let missing = absent();
    let write = store.write(&missing, &record, Purpose::Acquire);
    let unanswered = tokio::time::timeout(Duration::from_millis(500), write).await;
    assert!(unanswered.is_err());
    store.abandon_connections();
    link.heal().unwrap();
    let found = in_time(store.read()).await.unwrap();
    assert_eq!(found.record, Some(record));
    assert!(found.version > before.version);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_dies_in_silence_ends() {
    let Some(etcd) = Etcd::shared() else { return };
    let link = link(&etcd);
    let store = etcd.store_at(&link.address().to_string());
    let before = in_time(store.read()).await.unwrap();
    let mut changes = store.watch(&before).boxed();
    let writer = etcd.store();
    let record = held_by("a", 1, 1);
    let missing = absent();
    let written = writer.write(&missing, &record, Purpose::Acquire);
    in_time(written).await.unwrap();
    in_time(changes.next()).await.unwrap().unwrap();
    link.swallow(Direction::Both).unwrap();
    assert!(in_time(changes.next()).await.unwrap().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_cannot_be_reached_had_certainly_no_effect() {
    let Some(etcd) = Etcd::shared() else { return };
    let link = link(&etcd);
    let store = etcd.store_at(&link.address().to_string());
    in_time(store.read()).await.unwrap();
    link.cut().unwrap();
    let record = held_by("a", 1, 1);
    let told = store.write(&absent(), &record, Purpose::Acquire).await;
    // The first may still have met the old connection.
    let told = match told {
        Err(StoreError::Unknown(_)) => store.write(&absent(), &record, Purpose::Acquire).await,
        told => told,
    };
    let Err(StoreError::Unavailable(told)) = told else {
        panic!("{told:?}");
    };
    assert!(told.contains("cannot reach the etcd"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_answers_cost_no_leadership() {
    let Some(etcd) = Etcd::shared() else { return };
    let link = link(&etcd);
    let elector = elector(etcd.store_at(&link.address().to_string()), "slow");
    let term = in_time(elector.lead()).await.unwrap();
    link.delay(Duration::from_millis(200)).unwrap();
    goes_on(&term).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_cut_off_stops_in_time_and_another_leads_after_it() {
    let Some(etcd) = Etcd::shared() else { return };
    let link = link(&etcd);
    let cut = elector(etcd.store_at(&link.address().to_string()), "cut");
    let term = in_time(cut.lead()).await.unwrap();
    let other = etcd.elector("other");
    let waiting = tokio::spawn(async move { (other.lead().await.unwrap(), other) });
    link.swallow(Direction::Both).unwrap();
    in_time(term.cancelled()).await;
    assert!(clock::now() < term.valid_until());
    let wait = quick().lease().get() * 3;
    let (next, _other) = tokio::time::timeout(wait, waiting).await.unwrap().unwrap();
    assert!(clock::now() > term.valid_until());
    assert!(next.token() > term.token());
}
