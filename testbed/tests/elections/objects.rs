//! What stands in the Lease.

use std::time::Duration;

use futures_util::StreamExt;
use serde_json::json;
use soloist_elector::core::election::Purpose;
use soloist_elector::kubernetes::KubernetesStore;
use soloist_elector::testing::{Fixture, absent, held_by, in_time};
use soloist_elector::{LeaseStore, StoreError, Stored, clock};

use crate::harness::{Cluster, Standby, USER, lead};

type Lease = Stored<serde_json::Value>;

async fn create(store: &KubernetesStore) -> Lease {
    let record = held_by("a", 1, 1);
    let missing = absent();
    let write = store.write(&missing, &record, Purpose::Acquire);
    in_time(write).await.unwrap()
}

async fn renew(store: &KubernetesStore, base: &Lease, write: u64) -> Result<Lease, StoreError> {
    let record = held_by("a", 1, write);
    in_time(store.write(base, &record, Purpose::Renew)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_put_into_the_lease_is_kept() {
    let Some(cluster) = Cluster::shared().await else {
        return;
    };
    let store = cluster.store_as(USER).await;
    create(&store).await;
    let theirs = json!({"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}});
    cluster.patch(theirs).await;
    let before = cluster.lease().await;
    let found = store.read().await.unwrap();
    renew(&store, &found, 2).await.unwrap();
    let after = cluster.lease().await;
    assert_eq!(after.metadata.labels, before.metadata.labels);
    assert_eq!(after.metadata.annotations.unwrap()["c"], "d");
    assert_eq!(after.metadata.uid, before.metadata.uid);
    let (before, after) = (before.spec.unwrap(), after.spec.unwrap());
    assert_eq!(after.acquire_time, before.acquire_time);
    assert!(after.renew_time.unwrap().0 > before.renew_time.unwrap().0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_leaves_what_client_go_leaves() {
    let Some(cluster) = Cluster::shared().await else {
        return;
    };
    let first = cluster.elector("first").await;
    let term = lead(&first).await;
    let standby = Standby::beside(cluster.elector("second").await, "first").await;
    term.finish();
    let (term, second) = standby.leads().await;
    let held = cluster.lease().await.spec.unwrap();
    assert_eq!(held.holder_identity.as_deref(), Some("second"));
    assert_eq!(held.lease_duration_seconds, Some(4));
    assert_eq!(held.lease_transitions, Some(1));
    term.finish();
    in_time(second.shutdown()).await.unwrap();
    let released = cluster.lease().await.spec.unwrap();
    assert_eq!(released.holder_identity.as_deref().unwrap_or_default(), "");
    assert_eq!(released.lease_duration_seconds, Some(1));
    assert_eq!(released.lease_transitions, Some(1));
    in_time(first.shutdown()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_of_a_deleted_lease_does_not_bring_it_back() {
    let Some(cluster) = Cluster::shared().await else {
        return;
    };
    let store = cluster.store_as(USER).await;
    let created = create(&store).await;
    cluster.delete().await;
    let outcome = renew(&store, &created, 2).await;
    assert!(
        matches!(outcome, Err(StoreError::LostRace(_))),
        "{outcome:?}"
    );
    assert_eq!(store.read().await.unwrap().record, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_the_server_ends_is_resumed_without_a_gap() {
    let Some(cluster) = Cluster::shared().await else {
        return;
    };
    let options = cluster.options(USER, None).watch_seconds(2);
    let watcher = KubernetesStore::connect(options).await.unwrap();
    let store = cluster.store_as(USER).await;
    let mut last = create(&store).await;
    let mut changes = Box::pin(watcher.watch(&last));
    for round in 0..3 {
        for n in 0..5 {
            last = renew(&store, &last, round * 5 + n).await.unwrap();
            let seen = in_time(changes.next()).await.unwrap().unwrap();
            assert_eq!(seen.version, last.version);
        }
        // Quiet for longer than a watch lasts; whoever does not listen is not told.
        let quiet = clock::sleep(Duration::from_millis(2500));
        tokio::select! {
            change = changes.next() => panic!("nothing had changed: {change:?}"),
            slept = quiet => slept.unwrap(),
        }
    }
    let resumed = |requests: &[testbed::Request]| {
        let of_ours = |r: &&testbed::Request| r.namespace == cluster.namespace;
        let watches = requests.iter().filter(of_ours);
        let begun = watches.filter(|r| r.verb == "watch" && r.stage == "ResponseStarted");
        begun.count() >= 3
    };
    let patience = Duration::from_secs(5);
    cluster
        .plane
        .wait_for_requests(patience, resumed)
        .await
        .unwrap();
}
