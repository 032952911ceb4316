use futures_util::StreamExt;
use kube::api::WatchParams;
use testbed::{Account, Request, shared};

use crate::{SOON, SUITE, leases};

#[tokio::test]
async fn the_audit_log_counts_requests_per_user_and_verb() {
    let Some(plane) = shared(SUITE).await else {
        return;
    };
    let namespace = plane.namespace("audit").await.unwrap();
    plane
        .allow_lease(&namespace, "counted", Account::User("replica-30"))
        .await
        .unwrap();
    let api = leases::api(plane.client("replica-30", None).await.unwrap(), &namespace);

    let mut lease = leases::create(&api, "counted").await.unwrap();
    for _ in 0..3 {
        lease = leases::replace(&api, &lease, "me").await.unwrap();
    }
    for _ in 0..2 {
        api.get("counted").await.unwrap();
    }
    leases::code(api.get("another").await);

    let ours = |request: &&Request| request.user == "replica-30" && request.namespace == namespace;
    let requests = plane
        .wait_for_requests(SOON, |all| all.iter().filter(ours).count() >= 7)
        .await
        .unwrap();
    let count = |verb: &str, name: &str, code: u16| {
        let same = |request: &&Request| {
            (request.verb == verb) && (request.name == name) && request.code == code
        };
        requests.iter().filter(ours).filter(same).count()
    };
    assert_eq!(count("create", "counted", 201), 1);
    assert_eq!(count("update", "counted", 200), 3);
    assert_eq!(count("get", "counted", 200), 2);
    assert_eq!(count("get", "another", 403), 1);
    assert!(
        requests
            .iter()
            .filter(ours)
            .all(|request| request.resource == "leases")
    );
}

#[tokio::test]
async fn a_watch_is_counted_when_it_begins_and_when_it_ends() {
    let Some(plane) = shared(SUITE).await else {
        return;
    };
    let namespace = plane.namespace("audit").await.unwrap();
    plane
        .allow_lease(&namespace, "watched", Account::User("replica-31"))
        .await
        .unwrap();
    let api = leases::api(plane.client("replica-31", None).await.unwrap(), &namespace);
    leases::create(&api, "watched").await.unwrap();

    let stage = |stage: &'static str| {
        move |requests: &[Request]| {
            requests.iter().any(|request| {
                request.user == "replica-31" && request.verb == "watch" && request.stage == stage
            })
        }
    };
    let parameters = WatchParams::default().fields("metadata.name=watched");
    let mut stream = api.watch(&parameters, "0").await.unwrap().boxed();
    let first = stream.next().await.unwrap().unwrap();
    assert!(
        matches!(first, kube::api::WatchEvent::Added(_)),
        "{first:?}"
    );
    let begun = plane
        .wait_for_requests(SOON, stage("ResponseStarted"))
        .await
        .unwrap();
    assert!(!stage("ResponseComplete")(&begun));
    drop((stream, api));
    plane
        .wait_for_requests(SOON, stage("ResponseComplete"))
        .await
        .unwrap();
}
