//! The way to the API server.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use crate::patient::{LEASE, Patient, QUICK, doctor};

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_that_does_not_answer_is_told_within_seconds() {
    let Some(patient) = Patient::new("dead").await else {
        return;
    };
    let link = patient.plane.link().unwrap();
    let kubeconfig = patient.plane.kubeconfig("replica-0", Some(&link)).unwrap();
    link.cut().unwrap();
    let found = patient.examine(&kubeconfig, &[]);
    assert_eq!(found.code, 1);
    found.assert_says(
        "× it answers in time",
        &["cannot reach it", "NetworkPolicy"],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_api_server_is_measured_and_the_preset_that_helps_is_named() {
    let Some(patient) = Patient::new("slow").await else {
        return;
    };
    let link = patient.plane.link().unwrap();
    let kubeconfig = patient.plane.kubeconfig("admin", Some(&link)).unwrap();
    link.delay(Duration::from_millis(600)).unwrap();
    let found = patient.examine(&kubeconfig, &QUICK);
    found.assert_says(
        "‼ it answers in time",
        &["the slowest of 5 answers took", "--preset low-load"],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_the_server_does_not_know_is_told() {
    let Some(patient) = Patient::new("token").await else {
        return;
    };
    let good = patient.plane.kubeconfig("replica-0", None).unwrap();
    let text = fs::read_to_string(good).unwrap();
    let (rest, _) = text.rsplit_once("token: ").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let bad = folder.path().join("kubeconfig");
    fs::write(&bad, format!("{rest}token: wrong\n")).unwrap();
    let found = patient.examine(&bad, &[]);
    assert_eq!(found.code, 1);
    found.assert_says("× it knows who we are", &["401", "log in again"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_that_is_not_there_is_told() {
    let Some(patient) = Patient::new("home").await else {
        return;
    };
    let kubeconfig = patient.plane.admin_kubeconfig().unwrap();
    let found = doctor(&[
        "--kubeconfig",
        kubeconfig.to_str().unwrap(),
        "--namespace",
        "nowhere",
        "--name",
        LEASE,
    ]);
    assert_eq!(found.code, 1);
    found.assert_says(
        "× the namespace takes a lease",
        &[
            "there is no namespace nowhere",
            "kubectl create namespace nowhere",
        ],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_is_told_apart_from_a_missing_right() {
    let Some(patient) = Patient::new("quota").await else {
        return;
    };
    let quota = json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none"},
        "spec": {"hard": {"count/leases.coordination.k8s.io": "0"}},
    });
    patient.create("api/v1//resourcequotas", &quota).await;
    let status = json!({"status": {"hard": {"count/leases.coordination.k8s.io": "0"}, "used": {"count/leases.coordination.k8s.io": "0"}}});
    patient
        .patch("api/v1//resourcequotas/none/status", &status)
        .await;
    let found = patient.examine_as_admin(&[]);
    assert_eq!(found.code, 1);
    found.assert_says(
        "× the namespace takes a lease",
        &["exceeded quota", "No right is missing"],
    );
}

/// A kubeconfig of this plane with something else in the place of its user's name or token.
fn spoiled(patient: &Patient, from: &str, to: &str) -> (tempfile::TempDir, std::path::PathBuf) {
    let good = patient.plane.kubeconfig("replica-0", None).unwrap();
    let text = fs::read_to_string(good).unwrap();
    assert!(text.contains(from), "{text}");
    let folder = tempfile::tempdir().unwrap();
    let bad = folder.path().join("kubeconfig");
    fs::write(&bad, text.replacen(from, to, 1)).unwrap();
    (folder, bad)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubeconfig_that_is_only_half_there_is_told() {
    let Some(patient) = Patient::new("half").await else {
        return;
    };
    for (from, to, line, parts) in [
        (
            "    user: ",
            "    user: nobody-",
            "× it knows who we are",
            &[
                "takes us for nobody",
                "a user that the kubeconfig does not have",
            ][..],
        ),
        (
            "current-context: ",
            "current-context: no-",
            "× it is configured",
            &["no-"],
        ),
        (
            "token: ",
            "as: ",
            "× it knows who we are",
            &["log in again"],
        ),
        ("apiVersion", "\tapiVersion", "× it is configured", &[]),
    ] {
        let (_folder, kubeconfig) = spoiled(&patient, from, to);
        let found = patient.examine(&kubeconfig, &[]);
        assert_eq!(found.code, 1, "{to}: {}", found.text);
        found.assert_says(line, parts);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_context_that_is_not_there_is_told() {
    let Some(patient) = Patient::new("context").await else {
        return;
    };
    let found = patient.examine_as_admin(&["--context", "elsewhere"]);
    assert_eq!(found.code, 1, "{}", found.text);
    found.assert_says("× it is configured", &["elsewhere"]);
}

#[test]
fn no_cluster_at_all_is_told() {
    let found = doctor(&[
        "--store",
        "kubernetes",
        "--name",
        LEASE,
        "--kubeconfig",
        "/nonexistent",
    ]);
    assert_eq!(found.code, 1);
    found.assert_says("× it is configured", &["/nonexistent", "Give --kubeconfig"]);
}

#[test]
fn settings_that_do_not_fit_are_told() {
    let found = doctor(&[
        "--store",
        "kubernetes",
        "--name",
        LEASE,
        "--kubeconfig",
        "/nonexistent",
        "--renew-deadline",
        "20s",
        "--prestop",
        "28s",
        "--stop-timeout",
        "25s",
    ]);
    found.assert_says("× the timings fit together", &["too late"]);
    found.assert_says("× the timeouts fit into the grace period", &["25s"]);
}

#[test]
fn the_findings_can_be_read_by_programs() {
    let found = doctor(&[
        "--store",
        "kubernetes",
        "--name",
        LEASE,
        "--kubeconfig",
        "/nonexistent",
        "--output",
        "json",
    ]);
    assert_eq!(found.code, 1);
    let report: Value = serde_json::from_str(&found.text).unwrap();
    assert_eq!(report["healthy"], false);
    let bad = |check: &&Value| check["result"] == "bad";
    let check = report["checks"]
        .as_array()
        .unwrap()
        .iter()
        .find(bad)
        .unwrap();
    assert_eq!(check["check"], "it is configured");
    assert!(check["advice"].as_str().unwrap().contains("--kubeconfig"));
}

#[test]
fn without_a_name_it_asks_for_one() {
    let found = doctor(&["--store", "kubernetes"]);
    assert_eq!(found.code, 2);
    assert!(
        found.text.contains("which lease? Give --name"),
        "{}",
        found.text
    );
}
