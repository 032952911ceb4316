use kube::api::{DeleteParams, ListParams};
use testbed::{Account, shared};

use crate::{SUITE, leases};

#[tokio::test]
async fn the_minimal_role_allows_exactly_what_it_says() {
    let Some(plane) = shared(SUITE).await else {
        return;
    };
    let namespace = plane.namespace("rights").await.unwrap();
    plane
        .allow_lease(&namespace, "ours", Account::User("replica-20"))
        .await
        .unwrap();
    let admin = leases::api(plane.admin_client().await.unwrap(), &namespace);
    let api = leases::api(plane.client("replica-20", None).await.unwrap(), &namespace);
    let others = leases::create(&admin, "theirs").await.unwrap();

    let ours = leases::create(&api, "ours")
        .await
        .expect("create is allowed");
    leases::replace(&api, &ours, "next")
        .await
        .expect("update of the named Lease is allowed");
    api.get("ours")
        .await
        .expect("get of the named Lease is allowed");
    let one = ListParams::default().fields("metadata.name=ours");
    assert_eq!(
        api.list(&one)
            .await
            .expect("list of the named Lease is allowed")
            .items
            .len(),
        1
    );

    assert_eq!(
        leases::code(leases::replace(&api, &others, "me").await),
        403
    );
    assert_eq!(leases::code(api.get("theirs").await), 403);
    assert_eq!(leases::code(api.list(&ListParams::default()).await), 403);
    assert_eq!(
        leases::code(api.delete("ours", &DeleteParams::default()).await),
        403
    );
}

#[tokio::test]
async fn a_user_without_rights_may_nothing() {
    let Some(plane) = shared(SUITE).await else {
        return;
    };
    let api = leases::api(plane.client("nobody", None).await.unwrap(), "default");
    assert_eq!(leases::code(leases::create(&api, "mine").await), 403);
}

#[tokio::test]
async fn a_service_account_acts_with_a_token_of_its_own() {
    let Some(plane) = shared(SUITE).await else {
        return;
    };
    let namespace = plane.namespace("accounts").await.unwrap();
    plane.service_account(&namespace, "elector").await.unwrap();
    plane
        .allow_lease(&namespace, "ours", Account::ServiceAccount("elector"))
        .await
        .unwrap();
    let kubeconfig = plane
        .service_account_kubeconfig(&namespace, "elector", None)
        .await
        .unwrap();
    let api = leases::api(testbed::client(&kubeconfig).await.unwrap(), &namespace);

    leases::create(&api, "ours")
        .await
        .expect("create is allowed");
    let user = format!("system:serviceaccount:{namespace}:elector");
    let seen = |requests: &[testbed::Request]| requests.iter().any(|request| request.user == user);
    plane.wait_for_requests(crate::SOON, seen).await.unwrap();
}

#[tokio::test]
async fn a_user_that_was_not_named_has_no_kubeconfig() {
    let Some(plane) = shared(SUITE).await else {
        return;
    };
    let error = plane.kubeconfig("stranger", None).unwrap_err();
    assert!(
        matches!(&error, testbed::Error::UnknownUser(name) if name == "stranger"),
        "{error}"
    );
}
