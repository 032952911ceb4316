//! Orders as annotations on the Lease, and who may give them.

use std::os::unix::fs::symlink;
use std::path::Path;

use super::PATIENCE;
use super::group::{Group, QUICK};
use super::in_pods::{called, create_pending_pod};

const HANDOVER: &str = "soloist.dev/handover";
const PAUSE: &str = "soloist.dev/pause";

fn soloist() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_soloist"))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_annotation_on_the_lease_hands_over_to_the_replica_that_it_names() {
    let Some(mut group) = Group::of_three("annotated", QUICK).await else {
        return;
    };
    let (leader, first) = group.start_all().await;
    let heir = (leader + 2) % 3;
    group
        .annotate(HANDOVER, &format!("term=7 to=r{heir}"))
        .await;
    let refused = "a handover was ordered for term 7, but this is term 0";
    group.await_log(leader, refused, PATIENCE).await;
    group.annotate(HANDOVER, "at once, please").await;
    let unreadable = "write term=N or term=N to=REPLICA";
    group.await_log(leader, unreadable, PATIENCE).await;
    assert!(group.is_alive(first.pid));
    group
        .annotate(HANDOVER, &format!("term=0 to=r{heir}"))
        .await;
    group
        .await_event(PATIENCE, |e| e.is_start_after(&first))
        .await;
    assert!(group.log(heir).contains("elected term=1"));
    // It is over with its term.
    assert!(!group.annotations().await.contains_key(HANDOVER));
    group.assert_never_two();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_by_annotation_lasts_until_it_is_taken_away() {
    let Some(mut group) = Group::of_three("paused", QUICK).await else {
        return;
    };
    let (leader, first) = group.start_all().await;
    group.annotate(PAUSE, "stop").await;
    group
        .await_log(leader, "the lease is released", PATIENCE)
        .await;
    let status = group.command(soloist(), &["status"], true);
    assert_eq!(status.0, 0, "{}", status.1);
    assert!(
        status.1.contains("PAUSED    stopped until it is resumed"),
        "{}",
        status.1
    );
    let resumed = group.command(soloist(), &["resume"], false);
    assert_eq!(resumed, (0, "resumed\n".into()));
    group
        .await_event(PATIENCE, |e| e.is_start_after(&first))
        .await;
    assert!(!group.annotations().await.contains_key(PAUSE));
    group.assert_never_two();
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_without_the_right_and_for_a_pod_that_is_not_there_are_refused_and_nothing_happens()
{
    let Some(mut group) = Group::of_three("refused-orders", QUICK).await else {
        return;
    };
    let (leader, first) = group.start_all().await;
    let other = format!("r{}", (leader + 1) % 3);
    let (code, text) = group.command(soloist(), &["handover", "--to", &other], true);
    assert_eq!(code, 1, "{text}");
    assert!(
        text.contains(&format!("there is no replica {other} (namespace ")),
        "{text}"
    );
    group.forbid().await;
    for command in [&["handover"][..], &["pause"], &["status"]] {
        let (code, text) = group.command(soloist(), command, false);
        assert_eq!(code, 3, "{command:?}: {text}");
        assert!(text.contains("replica-0 may not \"list\" leases"), "{text}");
    }
    // Who may look may not order.
    let verbs = ["get", "list", "watch"];
    group
        .allow_also("coordination.k8s.io", "leases", &verbs)
        .await;
    for command in [&["handover"][..], &["pause"]] {
        let (code, text) = group.command(soloist(), command, false);
        assert_eq!(code, 3, "{command:?}: {text}");
        assert!(
            text.contains("replica-0 may not \"update\" leases"),
            "{text}"
        );
    }
    group.allow().await;
    assert!(group.is_alive(first.pid));
    let annotations = group.annotations().await;
    assert!(!annotations.contains_key(HANDOVER) && !annotations.contains_key(PAUSE));
    group.assert_never_two();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_heir_whose_pod_has_not_started_is_refused_and_nothing_happens() {
    let Some(mut group) = Group::of_three("unfit-heir", QUICK).await else {
        return;
    };
    let (leader, first) = group.start_all().await;
    let other = (leader + 1) % 3;
    create_pending_pod(&group, other).await;
    let heir = called(other);
    let (code, text) = group.command(soloist(), &["handover", "--to", &heir], true);
    assert_eq!(code, 1, "{text}");
    let why = format!("the replica {heir} cannot take over: its Pod has not started yet");
    assert!(text.contains(&why), "{text}");
    assert!(group.is_alive(first.pid));
    assert!(!group.annotations().await.contains_key(HANDOVER));
}

/// As `kubectl soloist status`.
#[tokio::test(flavor = "multi_thread")]
async fn linked_as_a_plugin_of_kubectl_it_looks_into_the_cluster() {
    let Some(mut group) = Group::of_three("plugin-of-kubectl", QUICK).await else {
        return;
    };
    let (leader, _) = group.start_all().await;
    let plugin = group.folder().join("kubectl-soloist");
    symlink(soloist(), &plugin).unwrap();
    let (code, text) = group.command(&plugin, &["status", "--output", "json"], false);
    assert_eq!(code, 0, "{text}");
    let status: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(status["leader"], format!("r{leader}"));
    // Without rights on Pods, and without Pods: nobody can tell.
    assert!(status["replicas"].is_null());
}
