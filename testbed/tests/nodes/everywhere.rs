//! `--store none` in Pods: every replica runs its child, and the kubelet asks soloist how that is.

use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, Pod};
use kube::ResourceExt;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::PATIENCE;
use crate::group::{Group, pod_spec};

const GRACE_SECONDS: u32 = 8;

/// A Pod without any rights and with a folder of its own, whose child has these words.
fn spec(words: &[&str]) -> Value {
    let mut spec = pod_spec();
    spec["serviceAccountName"] = json!("without-rights");
    spec["automountServiceAccountToken"] = json!(false);
    spec["terminationGracePeriodSeconds"] = json!(GRACE_SECONDS);
    spec["volumes"] = json!([{ "name": "journal", "emptyDir": {} }]);
    let container = &mut spec["containers"][0];
    let grace = format!("{GRACE_SECONDS}s");
    container["command"] = json!([
        "/soloist",
        "run",
        "--store=none",
        "--ready=notify",
        "--listen=:9808",
        "--grace-period",
        grace,
        "--"
    ]);
    let arguments = [&["/child", "/journal"], words].concat();
    container["args"] = json!(arguments);
    let probe =
        |path: &str| json!({ "httpGet": { "path": path, "port": 9808 }, "periodSeconds": 1 });
    container["readinessProbe"] = probe("/readyz");
    container["livenessProbe"] = probe("/livez");
    spec
}

async fn pods(group: &Group) -> Vec<Pod> {
    let listed = group.pods().list(&ListParams::default()).await;
    listed.unwrap().items
}

#[tokio::test(flavor = "multi_thread")]
async fn every_pod_runs_its_child_and_is_ready_when_that_is_and_a_rolling_update_ends() {
    let Some(group) = Group::create("everywhere").await else {
        return;
    };
    group.deploy(3, spec(&["ready", "drain=500"])).await;
    group.await_ready(3).await;
    let first = pods(&group).await;
    assert_eq!(first.len(), 3);
    for pod in &first {
        let name = pod.name_any();
        let log = group.await_log(&name, "from=Starting to=Running").await;
        assert!(log.contains("every replica runs the program"), "{log}");
    }
    let change =
        json!({ "spec": { "template": { "metadata": { "annotations": { "version": "2" } } } } });
    let patched = group
        .deployments()
        .patch("demo", &PatchParams::default(), &Patch::Merge(change))
        .await;
    patched.unwrap();
    group.await_ready(3).await;
    group.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_never_says_that_it_is_ready_keeps_its_pod_unready() {
    let Some(group) = Group::create("unready").await else {
        return;
    };
    group.deploy(1, spec(&[])).await;
    let deadline = Instant::now() + PATIENCE;
    let pod = loop {
        if let [pod] = &pods(&group).await[..]
            && is_running(pod)
        {
            break pod.clone();
        }
        assert!(Instant::now() < deadline, "the container does not run");
        sleep(Duration::from_millis(100)).await;
    };
    let name = pod.name_any();
    group.await_log(&name, "the child has started").await;
    let pod = group.pods().get(&name).await.unwrap();
    assert!(is_running(&pod) && !is_ready(&pod), "{:?}", pod.status);
    group.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_ignores_sigterm_is_killed_before_the_kubelet_would_and_the_pods_status_says_1()
 {
    let Some(group) = Group::create("deaf").await else {
        return;
    };
    group.deploy(1, spec(&["ready", "deaf"])).await;
    group.await_ready(1).await;
    let name = pods(&group).await[0].name_any();
    // Else nobody could read how it ended.
    finalizers(&group, &name, &["soloist.dev/test"]).await;
    let asked = Instant::now();
    let deleted = group.pods().delete(&name, &DeleteParams::default()).await;
    deleted.unwrap();
    let ended = loop {
        let pod = group.pods().get(&name).await.unwrap();
        if let Some(ended) = terminated(&pod) {
            break ended;
        }
        let took = asked.elapsed();
        assert!(took < PATIENCE, "it does not end: {:?}", pod.status);
        sleep(Duration::from_millis(50)).await;
    };
    eprintln!(
        "deaf child: exit code {} after {:.1} s of {GRACE_SECONDS}",
        ended.exit_code,
        asked.elapsed().as_secs_f64()
    );
    assert_eq!(ended.exit_code, 1, "{ended:?}");
    finalizers(&group, &name, &[]).await;
    group.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_ladder_that_does_not_fit_is_refused_at_start_and_the_pods_log_has_the_sum() {
    let Some(group) = Group::create("refused").await else {
        return;
    };
    let mut spec = spec(&["ready"]);
    spec["containers"][0]["env"] = json!([{ "name": "SOLOIST_STOP_TIMEOUT", "value": "20s" }]);
    group.deploy(1, spec).await;
    let deadline = Instant::now() + PATIENCE;
    let (name, ended) = loop {
        if let [pod] = &pods(&group).await[..]
            && let Some(ended) = terminated(pod)
        {
            break (pod.name_any(), ended);
        }
        assert!(Instant::now() < deadline, "the container does not end");
        sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(ended.exit_code, 2, "{ended:?}");
    let sum = format!("stop 20s + margin 2s = 22s, but grace {GRACE_SECONDS}s - preStop 0s");
    group.await_log(&name, &sum).await;
    group.end().await;
}

async fn finalizers(group: &Group, pod: &str, names: &[&str]) {
    let change = Patch::Merge(json!({ "metadata": { "finalizers": names } }));
    let patched = group
        .pods()
        .patch(pod, &PatchParams::default(), &change)
        .await;
    patched.unwrap();
}

fn is_running(pod: &Pod) -> bool {
    let statuses = pod
        .status
        .as_ref()
        .and_then(|s| s.container_statuses.as_ref());
    let state = statuses.and_then(|all| all.first()?.state.as_ref());
    state.is_some_and(|state| state.running.is_some())
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_ref());
    let ready = conditions.and_then(|all| all.iter().find(|one| one.type_ == "Ready"));
    ready.is_some_and(|condition| condition.status == "True")
}

fn terminated(pod: &Pod) -> Option<ContainerStateTerminated> {
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    let status = statuses.first()?;
    let of = |state: &Option<ContainerState>| state.as_ref()?.terminated.clone();
    of(&status.state).or_else(|| of(&status.last_state))
}
