//! What replicas in Pods do beside the lease: Events, the role as a label, an heir. And that nothing is lost without the rights.

use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::PATIENCE;
use super::group::{Group, QUICK, now};

const LOOK: Duration = Duration::from_millis(20);
const ROLE: &str = "soloist.dev/role";
const COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// `None` where the suite is skipped.
async fn group(name: &str) -> Option<Group> {
    let mut group = Group::of_three(name, QUICK).await?;
    group.in_pods = true;
    Some(group)
}

pub(crate) fn called(replica: usize) -> String {
    format!("r{replica}")
}

/// A Pod of a node that does not exist: nobody runs it, and it stays.
pub(crate) async fn create_pod_on(group: &Group, replica: usize, node: &str) {
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-aa", "uid": "uid-aa", "controller": true,
    });
    create_pod_of(group, replica, &owner, ("pod-template-hash", "aa"), node).await;
}

async fn create_pod(group: &Group, replica: usize, hash: &str) {
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("web-{hash}"), "uid": format!("uid-{hash}"), "controller": true,
    });
    create_pod_of(
        group,
        replica,
        &owner,
        ("pod-template-hash", hash),
        "nowhere",
    )
    .await;
}

/// One that no kubelet has started.
pub(crate) async fn create_pending_pod(group: &Group, replica: usize) {
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-aa", "uid": "uid-aa", "controller": true,
    });
    create_bare_pod(
        group,
        replica,
        &owner,
        ("pod-template-hash", "aa"),
        "nowhere",
    )
    .await;
}

async fn create_pod_of(
    group: &Group,
    replica: usize,
    owner: &Value,
    revision: (&str, &str),
    node: &str,
) {
    create_bare_pod(group, replica, owner, revision, node).await;
    let pods = group.api::<Pod>().await;
    let ready =
        json!({ "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z" });
    let status = json!({ "status": { "phase": "Running", "conditions": [ready] } });
    let how = PatchParams::default();
    pods.patch_status(&called(replica), &how, &Patch::Merge(status))
        .await
        .unwrap();
}

async fn create_bare_pod(
    group: &Group,
    replica: usize,
    owner: &Value,
    revision: (&str, &str),
    node: &str,
) {
    let pods = group.api::<Pod>().await;
    let name = called(replica);
    let pod = json!({
        "metadata": {
            "name": name,
            "labels": { "example.org/app": "web", revision.0: revision.1 },
            "ownerReferences": [owner],
        },
        "spec": { "nodeName": node, "containers": [{ "name": "web", "image": "none" }],
            "automountServiceAccountToken": false },
    });
    // The first one of a namespace may be early: there is no controller that makes it.
    let _ = group
        .plane()
        .service_account(group.namespace(), "default")
        .await;
    let pod = serde_json::from_value(pod).unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
}

async fn pod(group: &Group, replica: usize) -> Value {
    let pods = group.api::<Pod>().await;
    serde_json::to_value(pods.get(&called(replica)).await.unwrap()).unwrap()
}

async fn await_role(group: &Group, replica: usize, role: &str) -> Value {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let pod = pod(group, replica).await;
        if pod["metadata"]["labels"][ROLE] == role {
            return pod;
        }
        assert!(Instant::now() < deadline, "r{replica} is not {role}: {pod}");
        sleep(LOOK).await;
    }
}

/// Waits for an Event about this object; what it says.
pub(crate) async fn await_told(
    group: &Group,
    (kind, name): (&str, &str),
    reason: &str,
    by: &str,
) -> String {
    let events = group.api::<Event>().await;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let listed = events.list(&ListParams::default()).await.unwrap();
        let found = listed.items.iter().find(|event| {
            let regarding = event.regarding.clone().unwrap_or_default();
            (regarding.kind.as_deref(), regarding.name.as_deref()) == (Some(kind), Some(name))
                && event.reason.as_deref() == Some(reason)
                && event.reporting_instance.as_deref() == Some(by)
        });
        if let Some(event) = found {
            if kind == "Lease" {
                let regarding = event.regarding.clone().unwrap_or_default();
                assert!(regarding.uid.is_some_and(|uid| !uid.is_empty()));
            }
            return event.note.clone().unwrap_or_default();
        }
        let told: Vec<_> = listed.items.iter().map(|e| (&e.reason, &e.note)).collect();
        assert!(
            Instant::now() < deadline,
            "no {reason} of {name}: {told:?}\n{}",
            (0..3).map(|r| group.log(r)).collect::<String>()
        );
        sleep(LOOK).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_on_the_lease_and_the_pod_tell_who_leads_why_it_stopped_and_what_became_of_the_child()
 {
    let Some(mut group) = group("events").await else {
        return;
    };
    group
        .allow_also("events.k8s.io", "events", &["create"])
        .await;
    let (leader, first) = group.start_all().await;
    let name = called(leader);
    group.signal_pid(first.pid, "KILL");
    let again = group
        .await_event(PATIENCE, |e| e.is_start() && e.pid != first.pid)
        .await;
    assert_eq!(again.token, first.token, "it was restarted in place");
    group.annotate("soloist.dev/pause", "keep").await;
    let lease = ("Lease", "demo");
    let told = await_told(&group, lease, "Paused", &name).await;
    assert_eq!(told, "paused: nobody takes over until it is resumed");
    let soloist = Path::new(env!("CARGO_BIN_EXE_soloist"));
    let (code, text) = group.command(soloist, &["resume"], false);
    assert_eq!(code, 0, "{text}");
    await_told(&group, lease, "Resumed", &name).await;
    group.signal(leader, "TERM");
    let second = group
        .await_event(PATIENCE, |e| e.is_start_after(&first))
        .await;
    assert_eq!(group.exit_code(leader, PATIENCE).await, 0);
    for object in [("Lease", "demo"), ("Pod", name.as_str())] {
        let told = await_told(&group, object, "BecameLeader", &name).await;
        assert_eq!(
            told,
            format!("{name} leads in term 0 (token {})", first.token)
        );
        let told = await_told(&group, object, "ChildCrashed", &name).await;
        assert!(told.ends_with("has ended by itself, by signal 9"), "{told}");
        let told = await_told(&group, object, "StoppedLeading", &name).await;
        assert!(told.contains("it was asked to stop"), "{told}");
        let told = await_told(&group, object, "HandedOver", &name).await;
        assert_eq!(told, format!("{name} has released the lease"));
    }
    let next = (0..3).find(|r| group.log(*r).contains("elected term=1"));
    let next = called(next.unwrap());
    let told = await_told(&group, ("Lease", "demo"), "BecameLeader", &next).await;
    assert!(told.contains(&format!("token {}", second.token)), "{told}");
    group.assert_never_two();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leaders_pod_is_labelled_standby_before_its_child_is_asked_to_stop() {
    let Some(mut group) = group("labelled").await else {
        return;
    };
    group.flags = vec!["--label-role"];
    group.allow_also("", "pods", &["patch"]).await;
    for replica in 0..3 {
        create_pod(&group, replica, "aa").await;
    }
    let (leader, first) = group.start_all().await;
    let labelled = await_role(&group, leader, "leader").await;
    assert_eq!(labelled["metadata"]["annotations"][COST], "1000");
    for replica in (0..3).filter(|r| *r != leader) {
        await_role(&group, replica, "standby").await;
    }
    let asked = now();
    group.signal(leader, "TERM");
    let stop = group.await_event(PATIENCE, |e| e.is_stop_of(&first)).await;
    let labelled = pod(&group, leader).await;
    assert_eq!(labelled["metadata"]["labels"][ROLE], "standby");
    assert!(labelled["metadata"]["annotations"][COST].is_null());
    let log = group.log(leader);
    let at = |text: &str| log.rfind(text).expect("it is in the log");
    assert!(at("labelled role=standby") > at("labelled role=leader"));
    assert!(at("labelled role=standby") < at("asking the child to stop"));
    let patched = group
        .plane()
        .requests()
        .unwrap()
        .into_iter()
        .any(|request| {
            let at = request.received.duration_since(jiff::Timestamp::UNIX_EPOCH);
            let at = Duration::try_from(at).unwrap();
            (request.namespace.as_str(), request.verb.as_str()) == (group.namespace(), "patch")
                && request.name == called(leader)
                && at >= asked
                && at <= stop.at
        });
    assert!(patched, "the server was asked before the child");
    group
        .await_event(PATIENCE, |e| e.is_start_after(&first))
        .await;
    let next = (0..3).find(|r| group.log(*r).contains("elected term=1"));
    await_role(&group, next.unwrap(), "leader").await;
    group.assert_never_two();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_planned_stop_does_not_wait_long_for_a_server_that_does_not_answer() {
    let Some(mut group) = group("label-silence").await else {
        return;
    };
    group.flags = vec!["--label-role"];
    group
        .allow_also("", "pods", &["patch", "get", "list"])
        .await;
    for replica in 0..3 {
        create_pod(&group, replica, "aa").await;
    }
    let (leader, first) = group.start_all().await;
    await_role(&group, leader, "leader").await;
    group.links[leader].stall().unwrap();
    let asked = now();
    group.signal(leader, "TERM");
    let stop = group.await_event(PATIENCE, |e| e.is_stop_of(&first)).await;
    let waited = stop.at - asked;
    assert!(waited < Duration::from_secs(2), "{waited:?}");
    group
        .await_event(PATIENCE, |e| e.is_start_after(&first))
        .await;
    group.assert_never_two();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_rights_all_goes_on_and_each_missing_rule_is_said_once() {
    let Some(mut group) = group("no-rights").await else {
        return;
    };
    group.flags = vec!["--label-role"];
    for replica in 0..3 {
        create_pod(&group, replica, "aa").await;
    }
    let (leader, first) = group.start_all().await;
    group.signal(leader, "TERM");
    group
        .await_event(PATIENCE, |e| e.is_start_after(&first))
        .await;
    assert_eq!(group.exit_code(leader, PATIENCE).await, 0);
    let log = group.log(leader);
    for rule in [
        r#"{apiGroups: ["events.k8s.io"], resources: ["events"], verbs: [create]}"#,
        r#"{apiGroups: [""], resources: ["pods"], verbs: [patch]}"#,
        r#"{apiGroups: [""], resources: ["pods"], verbs: [get, list]}"#,
    ] {
        assert_eq!(log.matches(rule).count(), 1, "{rule}: {log}");
    }
    group.assert_never_two();
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_rollout_the_release_names_a_ready_pod_of_the_newest_template() {
    let Some(mut group) = group("heir").await else {
        return;
    };
    group.allow_also("", "pods", &["get", "list"]).await;
    let (leader, first) = group.start_all().await;
    let (old, heir) = ((leader + 1) % 3, (leader + 2) % 3);
    create_pod(&group, leader, "aa").await;
    create_pod(&group, old, "aa").await;
    create_pod(&group, heir, "bb").await;
    group.signal(leader, "TERM");
    group
        .await_event(PATIENCE, |e| e.is_start_after(&first))
        .await;
    assert!(group.log(heir).contains("elected term=1"));
    let said = format!("the release will name its heir heir={}", called(heir));
    assert!(group.log(leader).contains(&said), "{}", group.log(leader));
    assert_eq!(group.exit_code(leader, PATIENCE).await, 0);
    group.assert_never_two();
}

/// A rollback: the revision that the StatefulSet goes to is not that of the youngest Pod.
#[tokio::test(flavor = "multi_thread")]
async fn in_a_rollout_of_a_stateful_set_the_heir_is_of_the_revision_that_it_goes_to() {
    let Some(mut group) = group("stateful").await else {
        return;
    };
    group.allow_also("", "pods", &["get", "list"]).await;
    group.allow_also("apps", "statefulsets", &["get"]).await;
    let (leader, first) = group.start_all().await;
    let (heir, youngest) = ((leader + 1) % 3, (leader + 2) % 3);
    let sets = group.api::<StatefulSet>().await;
    let labels = json!({ "example.org/app": "web" });
    let set = json!({
        "metadata": { "name": "web" },
        "spec": {
            "serviceName": "web", "selector": { "matchLabels": labels },
            "template": {
                "metadata": { "labels": labels },
                "spec": { "containers": [{ "name": "web", "image": "none" }] },
            },
        },
    });
    let set = serde_json::from_value(set).unwrap();
    let set = sets.create(&PostParams::default(), &set).await.unwrap();
    let status = json!({ "status": {
        "replicas": 3, "currentRevision": "web-bb", "updateRevision": "web-aa",
    } });
    let patch = Patch::Merge(status);
    let params = PatchParams::default();
    sets.patch_status("web", &params, &patch).await.unwrap();
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": set.metadata.uid, "controller": true,
    });
    for (replica, revision) in [(leader, "web-aa"), (heir, "web-aa"), (youngest, "web-bb")] {
        let revision = ("controller-revision-hash", revision);
        create_pod_of(&group, replica, &owner, revision, "nowhere").await;
    }
    group.signal(leader, "TERM");
    group
        .await_event(PATIENCE, |e| e.is_start_after(&first))
        .await;
    let said = format!("the release will name its heir heir={}", called(heir));
    assert!(group.log(leader).contains(&said), "{}", group.log(leader));
    assert!(group.log(heir).contains("elected term=1"));
    assert_eq!(group.exit_code(leader, PATIENCE).await, 0);
    group.assert_never_two();
}
