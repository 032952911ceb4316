//! Three members, and what befalls them: never two lead, and leadership that can go on does.

use std::time::Duration;

use futures_util::future::select;
use soloist_elector::testing::in_time;
use soloist_elector::{Elector, Term, clock};

use crate::harness::{Etcd, goes_on, is_renewed};

async fn lead(elector: &Elector) -> Term {
    in_time(elector.lead()).await.unwrap()
}

/// The next term of either. Whoever had one before must not believe in it any more.
async fn next_term(one: &Elector, other: &Elector) -> Term {
    let (one, other) = (Box::pin(one.lead()), Box::pin(other.lead()));
    let (term, _) = tokio::time::timeout(Duration::from_secs(60), select(one, other))
        .await
        .expect("somebody leads again")
        .factor_first();
    term.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_killed_costs_no_leadership() {
    let Some(etcd) = Etcd::own(3) else { return };
    let leader = etcd.elector("leader");
    let term = lead(&leader).await;
    for member in 0..3 {
        etcd.cluster().kill(member);
        goes_on(&term).await;
        etcd.cluster().start_again(member).unwrap();
        is_renewed(&term).await;
    }
    assert!(term.is_valid());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_of_the_members_is_paused_and_leadership_goes_on() {
    let Some(etcd) = Etcd::own(3) else { return };
    let leader = etcd.elector("leader");
    let term = lead(&leader).await;
    for _ in 0..2 {
        let first = etcd.cluster().leader().unwrap();
        etcd.cluster().freeze(first).unwrap();
        goes_on(&term).await;
        etcd.cluster().thaw(first).unwrap();
        etcd.cluster().wait_until_healthy().unwrap();
        is_renewed(&term).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_cut_off_from_the_others_is_left() {
    let Some(etcd) = Etcd::own(3) else { return };
    let leader = etcd.elector("leader");
    let term = lead(&leader).await;
    for member in 0..3 {
        etcd.cluster().cut_off(member);
        goes_on(&term).await;
        etcd.cluster().join();
        etcd.cluster().wait_until_healthy().unwrap();
        is_renewed(&term).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_member_that_is_cut_off_is_known_and_says_that_it_has_no_leader() {
    use soloist_elector::{LeaseStore, StoreError};
    let Some(etcd) = Etcd::own(3) else { return };
    let endpoint = etcd.cluster().endpoint(1);
    let store = etcd.store_at(&endpoint);
    in_time(store.read()).await.unwrap();
    etcd.cluster().cut_off(1);
    let told = async {
        loop {
            match store.read().await {
                Err(StoreError::Unavailable(told)) if told.contains("no leader") => return told,
                _ => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    };
    let told = in_time(told).await;
    assert!(told.contains(&endpoint), "{told}");
    etcd.cluster().join();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_majority_leadership_ends_in_time_and_comes_back() {
    let Some(etcd) = Etcd::own(3) else { return };
    let (one, other) = (etcd.elector("one"), etcd.elector("other"));
    let term = next_term(&one, &other).await;
    for member in [0, 1] {
        etcd.cluster().kill(member);
    }
    in_time(term.cancelled()).await;
    assert!(clock::now() < term.valid_until());
    let token = term.token();
    term.finish();
    for member in [0, 1] {
        etcd.cluster().spawn(member).unwrap();
    }
    let next = next_term(&one, &other).await;
    assert!(next.token() > token);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_from_a_snapshot_never_makes_two_lead() {
    let Some(etcd) = Etcd::own(3) else { return };
    let (one, other) = (etcd.elector("one"), etcd.elector("other"));
    let first = next_term(&one, &other).await;
    etcd.cluster().save().unwrap();
    first.finish();
    let second = next_term(&one, &other).await;
    etcd.cluster().restore().unwrap();
    // The second term is nowhere in the record any more: it ends, before anybody else leads.
    in_time(second.cancelled()).await;
    let ended = clock::now();
    assert!(ended < second.valid_until());
    second.finish();
    let third = next_term(&one, &other).await;
    assert!(third.is_valid());
    goes_on(&third).await;
}
