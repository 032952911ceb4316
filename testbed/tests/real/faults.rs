use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, pin_mut};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{WatchEvent, WatchParams},
};
use testbed::{ControlPlane, skip};
use tokio::time::timeout;

use crate::{SOON, SUITE, leases};

#[tokio::test]
async fn a_frozen_etcd_makes_writes_hang_until_it_is_thawed() {
    if skip(SUITE) {
        return;
    }
    let plane = ControlPlane::start().await.unwrap();
    let api = leases::api(plane.admin_client().await.unwrap(), "default");
    leases::create(&api, "before").await.unwrap();

    plane.freeze_etcd().unwrap();
    let write = leases::create(&api, "during");
    pin_mut!(write);
    let early = timeout(Duration::from_secs(2), &mut write).await;
    assert!(early.is_err(), "a frozen etcd answered: {early:?}");
    plane.thaw_etcd().unwrap();
    timeout(SOON, write)
        .await
        .expect("the write goes on")
        .unwrap();
}

#[tokio::test]
async fn a_frozen_api_server_answers_once_it_is_thawed() {
    if skip(SUITE) {
        return;
    }
    let plane = ControlPlane::start().await.unwrap();
    let client = plane.admin_client().await.unwrap();
    plane.freeze_apiserver().unwrap();
    let read = client.apiserver_version();
    pin_mut!(read);
    assert!(
        timeout(Duration::from_secs(1), &mut read).await.is_err(),
        "a frozen API server answered"
    );
    plane.thaw_apiserver().unwrap();
    timeout(SOON, read)
        .await
        .expect("the request goes on")
        .unwrap();
}

#[tokio::test]
async fn a_watch_from_a_compacted_revision_gets_410_once_the_api_server_has_forgotten_too() {
    if skip(SUITE) {
        return;
    }
    let plane = ControlPlane::start().await.unwrap();
    let api = leases::api(plane.admin_client().await.unwrap(), "default");
    let old = leases::create(&api, "watched").await.unwrap();
    let next = leases::replace(&api, &old, "next").await.unwrap();
    let version = old.metadata.resource_version.clone().unwrap();

    let revision = plane.compact_etcd().await.unwrap();
    let next_version: i64 = next.metadata.resource_version.unwrap().parse().unwrap();
    assert!(
        revision >= next_version,
        "compacted to {revision}, before {next_version}"
    );
    let served = first_event(&api, &version).await;
    assert!(
        matches!(served, Ok(WatchEvent::Modified(_))),
        "the API server's cache forgot: {served:?}"
    );

    plane.expire_watches().await.unwrap();
    let api = leases::api(plane.admin_client().await.unwrap(), "default");
    let refused = first_event(&api, &version).await;
    assert_eq!(watch_code(refused), 410);
}

async fn first_event(api: &Api<Lease>, version: &str) -> Result<WatchEvent<Lease>, kube::Error> {
    let stream = api.watch(&WatchParams::default(), version).await?.boxed();
    pin_mut!(stream);
    let first = timeout(SOON, stream.try_next())
        .await
        .expect("an event comes");
    first.map(|event| event.expect("the watch does not end without an event"))
}

fn watch_code(outcome: Result<WatchEvent<Lease>, kube::Error>) -> u16 {
    match outcome {
        Ok(WatchEvent::Error(status)) => status.code,
        Err(kube::Error::Api(status)) => status.code,
        other => panic!("not refused: {other:?}"),
    }
}
