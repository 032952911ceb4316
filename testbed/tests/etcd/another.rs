//! An etcd that was made anew from a backup, as another cluster.

use std::time::Duration;

use futures_util::StreamExt;
use soloist_elector::core::election::Purpose;
use soloist_elector::testing::{Fixture, absent, held_by, in_time};
use soloist_elector::{LeaseStore, StoreError, clock};

use crate::harness::Etcd;

#[tokio::test(flavor = "multi_thread")]
async fn another_cluster_is_believed_when_what_was_promised_in_the_former_one_is_over() {
    const PROMISE: Duration = Duration::from_secs(6);
    let Some(etcd) = Etcd::own(1) else { return };
    let store = etcd.store();
    let mut record = held_by("a", 1, 1);
    record.duration_seconds = Some(6);
    let missing = absent();
    let created = store.write(&missing, &record, Purpose::Acquire);
    let created = in_time(created).await.unwrap();
    let mut changes = store.watch(&created).boxed();
    etcd.cluster().save().unwrap();
    etcd.cluster().restore_as_another().unwrap();

    let begun = clock::now();
    let Err(StoreError::Unavailable(told)) = in_time(store.read()).await else {
        panic!("believed");
    };
    assert!(told.contains("belongs to the cluster"), "{told}");
    let ended = in_time(changes.next()).await.unwrap();
    assert!(ended.is_err(), "{ended:?}");
    let ended = in_time(store.watch(&created).boxed().next()).await.unwrap();
    assert!(
        ended
            .unwrap_err()
            .to_string()
            .contains("of another cluster")
    );
    let believed = async {
        loop {
            match store.read().await {
                Ok(found) => return found,
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    };
    let found = in_time(believed).await;
    assert!(clock::now() >= begun + PROMISE);
    assert_eq!(found.record, Some(record));
    // Who has never seen the former one has nothing to wait for.
    in_time(etcd.store().read()).await.unwrap();
}
