//! How a watch ends, and goes on.

use futures_util::StreamExt;
use soloist_elector::core::election::Purpose;
use soloist_elector::etcd::{EtcdStore, Options};
use soloist_elector::testing::{Fixture, absent, held_by, in_time};
use soloist_elector::{LeaseStore, Stored, WatchEnded};

use crate::harness::Etcd;

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_from_what_was_compacted_away_ends_in_words_and_a_read_helps() {
    let Some(etcd) = Etcd::own(1) else { return };
    let store = etcd.store();
    let record = held_by("a", 1, 1);
    let created = store.write(&absent(), &record, Purpose::Acquire).await;
    let created = created.unwrap();
    // Others go on while nobody touches the lease.
    for n in 0..3 {
        let n = n.to_string();
        etcd.cluster().etcdctl(&["put", "another", &n]).unwrap();
    }
    etcd.cluster().compact().unwrap();
    let ended = in_time(store.watch(&created).boxed().next()).await.unwrap();
    let WatchEnded::Broken(told) = ended.unwrap_err() else {
        panic!("refused");
    };
    assert!(told.contains("compaction"), "{told}");

    let found = in_time(store.read()).await.unwrap();
    assert_eq!(found.version, created.version);
    let mut changes = store.watch(&found).boxed();
    let writer = etcd.store();
    let record = held_by("a", 1, 2);
    let renewed = writer.write(&found, &record, Purpose::Renew);
    let renewed = in_time(renewed).await.unwrap();
    let seen = in_time(changes.next()).await.unwrap().unwrap();
    assert_eq!((seen.version, seen.record), (renewed.version, Some(record)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_knows_more_than_the_member_ends_instead_of_waiting_in_silence() {
    use soloist_elector::core::ids::Version;
    let Some(etcd) = Etcd::shared() else { return };
    let store = etcd.store();
    let late = Version::new(in_time(store.read()).await.unwrap().version.get() + 1_000_000);
    let ended = in_time(store.watch(&Stored::missing(late)).boxed().next())
        .await
        .unwrap();
    assert!(ended.unwrap_err().to_string().contains("is at revision"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_is_no_lease_is_refused_in_words() {
    let Some(etcd) = Etcd::shared() else { return };
    let store = etcd.store();
    let found = in_time(store.read()).await.unwrap();
    let mut changes = store.watch(&found).boxed();
    etcd.put("something else");
    let told = crate::harness::refused(in_time(store.read()).await);
    assert!(told.contains("is not the JSON of a lease"), "{told}");
    assert!(in_time(changes.next()).await.unwrap().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_of_others_are_kept() {
    let Some(etcd) = Etcd::shared() else { return };
    let store = etcd.store();
    let record = held_by("a", 1, 1);
    let created = store.write(&absent(), &record, Purpose::Acquire).await;
    created.unwrap();
    let mut value = etcd.json();
    value["note"] = "mine".into();
    etcd.put(&value.to_string());
    let found = in_time(store.read()).await.unwrap();
    let renewed = store
        .write(&found, &held_by("a", 1, 2), Purpose::Renew)
        .await;
    renewed.unwrap();
    assert_eq!(etcd.json()["note"], "mine");
}

/// Somebody put the key there, under a lease of etcd's own.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_somebody_else_put_under_a_lease_of_etcds_is_freed_of_it_by_the_first_write() {
    let Some(etcd) = Etcd::shared() else { return };
    let store = etcd.store();
    let record = held_by("a", 1, 1);
    let missing = absent();
    let written = store.write(&missing, &record, Purpose::Acquire).await;
    written.unwrap();
    let granted = etcd.cluster().etcdctl(&["lease", "grant", "600"]).unwrap();
    let lease = granted.split(' ').nth(1).unwrap().to_owned();
    let value = etcd.json().to_string();
    let flag = format!("--lease={lease}");
    let words = ["put", &flag, &etcd.key(), &value];
    etcd.cluster().etcdctl(&words).unwrap();
    let found = in_time(store.read()).await.unwrap();
    let renewal = held_by("a", 1, 2);
    let renewed = store.write(&found, &renewal, Purpose::Renew).await.unwrap();
    // As if its time were up.
    etcd.cluster()
        .etcdctl(&["lease", "revoke", &lease])
        .unwrap();
    let found = in_time(store.read()).await.unwrap();
    assert_eq!(
        (found.version, found.record),
        (renewed.version, Some(renewal))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_has_grown_too_large_for_etcd_is_told_in_few_words() {
    let Some(etcd) = Etcd::shared() else { return };
    let store = etcd.store();
    let missing = absent();
    let written = store
        .write(&missing, &held_by("a", 1, 1), Purpose::Acquire)
        .await;
    written.unwrap();
    let put = |value: String| {
        let key = etcd.key();
        etcd.cluster()
            .etcdctl_with_input(&["put", &key], &value)
            .unwrap();
    };
    // Of what etcd takes, all but what our longer form of it adds.
    let mut value = etcd.json();
    value["note"] = "x".repeat(1_572_864 - value.to_string().len() - 120).into();
    put(value.to_string());
    let found = in_time(store.read()).await.unwrap();
    let renewal = held_by("a", 1, 2);
    let told = crate::harness::refused(store.write(&found, &renewal, Purpose::Renew).await);
    assert!(
        told.contains("has grown too large") && told.len() < 500,
        "{told}"
    );
    put("y".repeat(1_000_000));
    let told = crate::harness::refused(in_time(store.read()).await);
    assert!(
        told.contains("is not the JSON of a lease") && told.len() < 500,
        "{told}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prefix_may_have_any_letters_that_can_be_typed() {
    let Some(etcd) = Etcd::shared() else { return };
    let endpoint = etcd.cluster().endpoint(0);
    for prefix in ["two words", "Dienst/ü", "it's", "a,b:c", "%2F", "$HOME"] {
        let address = format!("{endpoint}/odd/{prefix}").parse().unwrap();
        let store = EtcdStore::new(Options::lease(address, "demo"));
        let record = held_by("a", 1, 1);
        let missing = absent();
        let written = store.write(&missing, &record, Purpose::Acquire).await;
        let version = written.unwrap().version;
        assert_eq!(in_time(store.read()).await.unwrap().version, version);
        let key = format!("odd/{prefix}/demo");
        let found = etcd.cluster().etcdctl(&["get", "--print-value-only", &key]);
        assert!(found.unwrap().contains("soloist-lease"), "{key}");
    }
}
