//! The lease and its holder.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::patient::{Findings, LEASE, Patient};

const LONG_AGO: &str = "2020-01-01T00:00:00.000000Z";

/// Examines a lease that is renewed meanwhile, each time with the next of these specs.
async fn examine_while_renewed(patient: Arc<Patient>, specs: Vec<Value>) -> Findings {
    let done = Arc::new(AtomicBool::new(false));
    let renewing = {
        let (patient, done) = (Arc::clone(&patient), Arc::clone(&done));
        tokio::spawn(async move {
            let mut number = 0;
            while !done.load(Ordering::Relaxed) {
                number += 1;
                let mut spec = specs[number % specs.len()].clone();
                spec["renewTime"] = json!(format!("2020-01-01T00:00:{:02}.000000Z", number % 60));
                patient.patch_lease(spec).await;
                sleep(Duration::from_millis(100)).await;
            }
        })
    };
    let found = tokio::task::spawn_blocking(move || patient.examine_as_admin(&[]))
        .await
        .unwrap();
    done.store(true, Ordering::Relaxed);
    renewing.await.unwrap();
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_whose_holder_is_gone_and_that_nobody_takes_over_is_told() {
    let Some(patient) = Patient::new("gone").await else {
        return;
    };
    let spec = json!({"holderIdentity": "ghost", "leaseDurationSeconds": 2, "leaseTransitions": 1, "acquireTime": LONG_AGO, "renewTime": LONG_AGO});
    patient.foreign_lease(spec).await;
    let found = patient.examine_as_admin(&[]);
    assert_eq!(found.code, 1);
    found.assert_says("✓ it is held", &["by ghost, term 1"]);
    found.assert_says(
        "× it is renewed",
        &["ghost has not renewed it within 2 s", "start replicas"],
    );
    found.assert_says(
        "‼ its holder is there",
        &["there is no Pod ghost", "POD_NAME"],
    );
    found.assert_says(
        "‼ nobody else writes it",
        &["its spec was also written by: somebody"],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_nobody_has_is_a_warning_and_a_failure_for_who_waits() {
    let Some(patient) = Patient::new("nobody").await else {
        return;
    };
    let found = patient.examine_as_admin(&[]);
    assert_eq!(found.code, 0, "{}", found.text);
    found.assert_says(
        "‼ it is held",
        &[
            "there is no lease demo, or nobody holds it",
            "Is a replica running?",
        ],
    );
    let found = patient.examine_as_admin(&["--wait", "1s"]);
    assert_eq!(found.code, 1);
    found.assert_says("× it is held", &["after 1s"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_changes_again_and_again_is_told_with_what_to_look_for() {
    let Some(patient) = Patient::new("flaps").await else {
        return;
    };
    let spec = json!({"holderIdentity": "a", "leaseDurationSeconds": 15, "leaseTransitions": 500});
    patient.foreign_lease(spec).await;
    let specs = ["a", "b"].map(|holder| json!({"holderIdentity": holder}));
    let found = examine_while_renewed(Arc::new(patient), specs.to_vec()).await;
    found.assert_says(
        "‼ the leader seldom changes",
        &[
            "500 times in",
            "RenewDeadline",
            "--preset low-load",
            "Taken",
        ],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_long_explains_a_slow_failover() {
    let Some(patient) = Patient::new("long").await else {
        return;
    };
    patient
        .foreign_lease(json!({"holderIdentity": "a", "leaseDurationSeconds": 60}))
        .await;
    let found = examine_while_renewed(Arc::new(patient), vec![json!({})]).await;
    assert_eq!(found.code, 0, "{}", found.text);
    found.assert_says(
        "‼ a takeover after a crash is quick",
        &["up to 60 s", "high-availability"],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn clocks_that_differ_are_information_and_nothing_else() {
    let Some(patient) = Patient::new("clock").await else {
        return;
    };
    patient
        .foreign_lease(json!({"holderIdentity": "a", "leaseDurationSeconds": 15}))
        .await;
    let found = examine_while_renewed(Arc::new(patient), vec![json!({})]).await;
    assert_eq!(found.code, 0, "{}", found.text);
    found.assert_says(
        "✓ its times beside this clock",
        &[
            "the holder's clock is",
            "behind this one",
            "no decision reads it",
        ],
    );
}

/// Patches the lease once the doctor has seen it, which is in the API server's log.
fn after_the_first_look(patient: Arc<Patient>, patch: Value) -> JoinHandle<()> {
    tokio::spawn(async move {
        let namespace = patient.namespace.clone();
        let seen = |requests: &[testbed::Request]| {
            requests
                .iter()
                .any(|r| r.verb == "get" && r.namespace == namespace && r.name == LEASE)
        };
        patient
            .plane
            .wait_for_requests(Duration::from_secs(30), seen)
            .await
            .unwrap();
        let place = format!("apis/coordination.k8s.io/v1//leases/{LEASE}");
        patient.patch(&place, &patch).await;
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_of_one_name_are_told() {
    let Some(patient) = Patient::new("twins").await else {
        return;
    };
    patient
        .foreign_lease(json!({"holderIdentity": "twin", "leaseDurationSeconds": 15}))
        .await;
    let signed = |instance: &str| {
        let signature = format!(
            "v1 instance={instance} term=0 lease=15 write=1 base=1 released=no holder=twin"
        );
        json!({"metadata": {"annotations": {"soloist.dev/signature": signature}}})
    };
    let place = format!("apis/coordination.k8s.io/v1//leases/{LEASE}");
    let patient = Arc::new(patient);
    patient
        .patch(&place, &signed("0123456789abcdef0123456789abcdef"))
        .await;
    let next = signed("ffffffffffffffffffffffffffffffff");
    let other = after_the_first_look(Arc::clone(&patient), next);
    let found = tokio::task::spawn_blocking(move || patient.examine_as_admin(&[]))
        .await
        .unwrap();
    other.await.unwrap();
    found.assert_says(
        "‼ its holder's name is used once",
        &["two processes called twin"],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_of_a_former_pod_of_the_same_name_is_told() {
    let Some(patient) = Patient::new("former").await else {
        return;
    };
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "feed-0"},
        "spec": {"containers": [{"name": "feed", "image": "feed"}]},
    });
    patient.create("api/v1//pods", &pod).await;
    let signature = "v1 instance=0123456789abcdef0123456789abcdef term=0 lease=15 write=1 base=1 released=no \
                     pod=6a4d2d55-0000-4000-8000-000000000000 holder=feed-0";
    patient
        .foreign_lease(json!({"holderIdentity": "feed-0", "leaseDurationSeconds": 2}))
        .await;
    let place = format!("apis/coordination.k8s.io/v1//leases/{LEASE}");
    let signed = json!({"metadata": {"annotations": {"soloist.dev/signature": signature}}});
    patient.patch(&place, &signed).await;
    let found = patient.examine_as_admin(&[]);
    found.assert_says(
        "‼ its holder is there",
        &["another Pod of the name feed-0", "StatefulSets do this"],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_lasts_longer_than_these_settings_say_is_told() {
    let Some(patient) = Patient::new("longer").await else {
        return;
    };
    patient
        .foreign_lease(json!({"holderIdentity": "a", "leaseDurationSeconds": 20}))
        .await;
    let found = examine_while_renewed(Arc::new(patient), vec![json!({})]).await;
    found.assert_says(
        "‼ a takeover after a crash is quick",
        &["20 s, longer than the 15 s", "the same timings"],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_somebody_filled_with_oddities_is_told_and_does_nothing_to_the_terminal() {
    let Some(patient) = Patient::new("odd").await else {
        return;
    };
    let holder = "x\n✓ all is well\u{1b}[31m";
    patient
        .foreign_lease(json!({"holderIdentity": holder, "leaseTransitions": i32::MAX}))
        .await;
    let quick = crate::patient::QUICK;
    let found = patient.examine_as_admin(&quick);
    assert_eq!(found.code, 1, "{}", found.text);
    assert!(!found.text.contains('\u{1b}'), "{}", found.text);
    assert!(!found.text.contains("\n✓ all is well"), "{}", found.text);
    found.assert_says("✓ it is held: by x\\n", &["term 2147483647"]);
    // Candidates count by their own settings.
    found.assert_says("× it is renewed", &["within 4 s"]);
    found.assert_says(
        "‼ a takeover after a crash is quick",
        &["does not say how long it lasts", "4 s"],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_taken_while_we_look_is_told() {
    let Some(patient) = Patient::new("taken").await else {
        return;
    };
    patient
        .foreign_lease(json!({"holderIdentity": "z", "leaseDurationSeconds": 15}))
        .await;
    let patient = Arc::new(patient);
    let taken = json!({"spec": {"holderIdentity": "a"}});
    let other = after_the_first_look(Arc::clone(&patient), taken);
    let found = tokio::task::spawn_blocking(move || patient.examine_as_admin(&[]))
        .await
        .unwrap();
    other.await.unwrap();
    found.assert_says(
        "‼ it is renewed",
        &["a took it over from z while we looked"],
    );
}
