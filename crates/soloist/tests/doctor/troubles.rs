//! The troubles that people have with leader elections, each provoked with real replicas: the doctor names it and what helps.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use testbed::{Account, Link};
use tokio::time::{Instant, sleep};

use crate::patient::{LEASE, Patient, QUICK};
use crate::rights::rule_of;

const LONG: Duration = Duration::from_secs(60);

/// A replica's way to the API server, with the rights to lead and to write Events.
async fn way(patient: &Patient, user: &str) -> (Link, PathBuf) {
    let plane = patient.plane;
    let rules = vec![
        rule_of(
            "coordination.k8s.io",
            "leases",
            &["create", "get", "list", "watch", "update"],
        ),
        rule_of("events.k8s.io", "events", &["create"]),
    ];
    let allowed = plane.allow(&patient.namespace, Account::User(user), rules);
    allowed.await.unwrap();
    let link = plane.link().unwrap();
    let kubeconfig = plane.kubeconfig(user, Some(&link)).unwrap();
    (link, kubeconfig)
}

async fn wait_for_holder(patient: &Patient, is_it: impl Fn(&str) -> bool) -> String {
    let until = Instant::now() + LONG;
    loop {
        let lease = patient.lease().await.unwrap_or_default();
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
        if is_it(holder) {
            return holder.to_owned();
        }
        assert!(Instant::now() < until, "{holder:?} holds it");
        sleep(Duration::from_millis(50)).await;
    }
}

async fn wait_for_events(patient: &Patient, reason: &str, count: usize) -> Vec<Value> {
    let until = Instant::now() + LONG;
    loop {
        let events = patient.list("apis/events.k8s.io/v1//events").await;
        let found: Vec<Value> = events
            .into_iter()
            .filter(|event| event["reason"] == reason)
            .collect();
        if found.len() >= count {
            return found;
        }
        assert!(
            Instant::now() < until,
            "{} {reason}: {found:?}",
            found.len()
        );
        sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_changes_because_the_api_server_is_slow_is_explained_by_events_and_latency() {
    let Some(patient) = Patient::new("slow-flaps").await else {
        return;
    };
    let users = ["replica-0", "replica-1"];
    let ways = [way(&patient, users[0]).await, way(&patient, users[1]).await];
    let replicas = [0, 1].map(|n| patient.replica(&ways[n].1, users[n]));
    let mut leader = wait_for_holder(&patient, |holder| users.contains(&holder)).await;
    for _ in 0..4 {
        let slow = users.iter().position(|user| *user == leader).unwrap();
        ways[slow].0.delay(Duration::from_millis(600)).unwrap();
        let next = wait_for_holder(&patient, |holder| holder == users[1 - slow]);
        leader = next.await;
        ways[slow].0.delay(Duration::ZERO).unwrap();
    }
    wait_for_events(&patient, "StoppedLeading", 4).await;
    wait_for_events(&patient, "BecameLeader", 5).await;
    let found = patient.examine_as_admin(&QUICK);
    let line = "‼ the leader seldom changes";
    let cause = "renewals did not get through in time (4)";
    found.assert_says(
        line,
        &[
            "5 times in the last 15 minutes",
            cause,
            "look at the leader's own way to it",
        ],
    );

    // From behind a slow link the doctor sees it itself.
    let slow = patient.plane.link().unwrap();
    let kubeconfig = patient.plane.kubeconfig("admin", Some(&slow)).unwrap();
    slow.delay(Duration::from_millis(500)).unwrap();
    let found = patient.examine(&kubeconfig, &QUICK);
    found.assert_says(
        line,
        &[cause, "The API server took", "with --preset", "a try has"],
    );
    drop(replicas);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_killed_again_and_again_is_told_from_one_that_is_slow() {
    let Some(patient) = Patient::new("killed").await else {
        return;
    };
    let (_link, kubeconfig) = way(&patient, "replica-0").await;
    for term in 1..=4 {
        let identity = format!("r{term}");
        let _replica = patient.replica(&kubeconfig, &identity);
        wait_for_holder(&patient, |holder| holder == identity).await;
        wait_for_events(&patient, "BecameLeader", term).await;
        // Dropped: killed.
    }
    let found = patient.examine_as_admin(&QUICK);
    found.assert_says(
        "‼ the leader seldom changes",
        &[
            "4 times in the last 15 minutes",
            "the leader went without a word",
            "OOMKilled",
        ],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_that_a_long_lease_makes_slow_is_named_with_the_presets_that_help() {
    let Some(patient) = Patient::new("slow-failover").await else {
        return;
    };
    let (_link, kubeconfig) = way(&patient, "replica-0").await;
    let _replica = patient.replica_with(&kubeconfig, "r0", &["--preset", "low-load"]);
    wait_for_holder(&patient, |holder| holder == "r0").await;
    let found = patient.examine_as_admin(&["--preset", "low-load"]);
    found.assert_says(
        "‼ a takeover after a crash is quick",
        &[
            "up to 60 s",
            "--preset standard (15 s) or --preset high-availability (10 s)",
        ],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_that_was_slow_because_nobody_stood_by_is_measured_by_its_events() {
    let Some(patient) = Patient::new("no-standby").await else {
        return;
    };
    let (_link, kubeconfig) = way(&patient, "replica-0").await;
    let alone = patient.replica(&kubeconfig, "r0");
    wait_for_holder(&patient, |holder| holder == "r0").await;
    wait_for_events(&patient, "BecameLeader", 1).await;
    alone.stop();
    wait_for_events(&patient, "HandedOver", 1).await;
    // So long nobody is there.
    sleep(Duration::from_millis(3500)).await;
    let _next = patient.replica(&kubeconfig, "r1");
    wait_for_events(&patient, "BecameLeader", 2).await;
    let found = patient.examine_as_admin(&QUICK);
    found.assert_says(
        "‼ takeovers were quick",
        &[
            "after a release of the lease nobody led for",
            "run 2 replicas or more",
        ],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_read_events_is_told_so() {
    let Some(patient) = Patient::new("no-events").await else {
        return;
    };
    let (_link, kubeconfig) = way(&patient, "replica-0").await;
    let _replica = patient.replica(&kubeconfig, "r0");
    wait_for_holder(&patient, |holder| holder == "r0").await;
    let found = patient.examine(&kubeconfig, &QUICK);
    found.assert_says(
        "? takeovers were quick",
        &["cannot list resource \"events\""],
    );
    assert_eq!(found.code, 0, "{}", found.text);
    assert!(
        found.text.contains(&format!("the lease {LEASE}")),
        "{}",
        found.text
    );
}
