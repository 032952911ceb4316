//! A leader behind a Service that selects it by its role, while its Pod is replaced.

use std::time::Instant;

use kube::ResourceExt;
use kube::api::{ListParams, LogParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::REPLICAS;
use super::stage::{LOOK, allow_prestop, await_only, begin_load, deploy_behind, undeploy};
use crate::group::{Group, pod_spec};
use crate::{PATIENCE, images};

const UPDATES: usize = 5;

fn spec(with_hook: bool) -> Value {
    let mut spec = pod_spec();
    spec["volumes"] = json!([]);
    let container = &mut spec["containers"][0];
    container["image"] = json!(images::WEB);
    container["volumeMounts"] = json!([]);
    let run = "/soloist run --name demo --label-role --ready notify --listen :9808 --";
    let run: Vec<&str> = run.split(' ').collect();
    container["command"] = json!(run);
    container["args"] = json!(["/web", "0.0.0.0:8080"]);
    // A standby is ready.
    container["readinessProbe"] =
        json!({ "httpGet": { "path": "/readyz", "port": 9808 }, "periodSeconds": 1 });
    if with_hook {
        container["lifecycle"] =
            json!({ "preStop": { "exec": { "command": ["/soloist", "prestop"] } } });
    }
    spec
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_behind_a_service_finishes_its_requests_and_new_ones_wait_for_the_handover() {
    let Some(group) = Group::create("service").await else {
        return;
    };
    allow_prestop(&group).await;
    group.allow("", "pods", &["get", "list", "patch"]).await;
    group.allow("apps", "replicasets", &["list"]).await;
    for with_hook in [false, true] {
        roll(&group, with_hook).await;
    }
    group.end().await;
}

async fn roll(group: &Group, with_hook: bool) {
    let labels = json!({ "app": "demo", "soloist.dev/role": "leader" });
    let address = deploy_behind(group, spec(with_hook), &labels).await;
    let load = begin_load(group, address).await;
    let mut gaps = Vec::new();
    for update in 0..UPDATES {
        let leader = leader(group).await;
        let log = tokio::spawn(log_to_its_end(group.pods(), leader.clone()));
        load.longest_gap();
        let change = json!({ "spec": { "template": { "metadata": { "annotations": {
            "update": format!("{with_hook}-{update}") } } } } });
        let (how, patch) = (PatchParams::default(), Patch::Merge(change));
        let deployments = group.deployments();
        deployments.patch("demo", &how, &patch).await.unwrap();
        group.await_ready(REPLICAS.into()).await;
        await_only(group, REPLICAS.into()).await;
        let answered = load.answered();
        let deadline = Instant::now() + PATIENCE;
        while load.answered() < answered + 100 {
            assert!(Instant::now() < deadline, "the next leader does not answer");
            sleep(LOOK).await;
        }
        gaps.push(load.longest_gap());
        check_order(&log.await.unwrap(), with_hook);
    }
    let counts = tokio::task::spawn_blocking(|| load.end()).await.unwrap();
    let (cut, kept_out): (Vec<_>, Vec<_>) = counts
        .lost
        .into_iter()
        .partition(|lost| lost.had_a_connection);
    gaps.sort_unstable();
    eprintln!(
        "leader behind a Service, {}, {UPDATES} rolling updates: {} answered ({} by gRPC), {} cut, {} could not connect meanwhile; \
         without an answer to new ones: median {:.2} s, at most {:.2} s",
        if with_hook {
            "soloist prestop"
        } else {
            "no hook"
        },
        counts.answered,
        counts.grpc,
        cut.len(),
        kept_out.len(),
        gaps[UPDATES / 2].as_secs_f64(),
        gaps[UPDATES - 1].as_secs_f64(),
    );
    assert!(cut.is_empty(), "{cut:#?}");
    undeploy(group).await;
}

/// The Pod that has the label.
async fn leader(group: &Group) -> String {
    let those = ListParams::default().labels("soloist.dev/role=leader");
    let deadline = Instant::now() + PATIENCE;
    loop {
        let pods = group.pods().list(&those).await.unwrap().items;
        if let [pod] = &pods[..] {
            return pod.name_any();
        }
        assert!(Instant::now() < deadline, "{} are leaders", pods.len());
        sleep(LOOK).await;
    }
}

async fn log_to_its_end(pods: kube::Api<k8s_openapi::api::core::v1::Pod>, pod: String) -> String {
    use futures_util::AsyncReadExt;

    let follow = LogParams {
        follow: true,
        ..LogParams::default()
    };
    let mut log = String::new();
    let mut stream = Box::pin(pods.log_stream(&pod, &follow).await.unwrap());
    stream.read_to_string(&mut log).await.unwrap();
    log
}

/// First nobody is sent here any more, then the child is asked to stop, and it drains in order.
fn check_order(log: &str, with_hook: bool) {
    let at = |text: &str| {
        let found = log.rfind(text);
        found.unwrap_or_else(|| panic!("no {text:?} in {log}"))
    };
    let stop = at("asking the child to stop");
    assert!(at("labelled role=standby") < stop, "{log}");
    assert!(
        at("the child is told that the Pod's end is near") < stop,
        "{log}"
    );
    if with_hook {
        // When it looks, the label may have worked already.
        let hook = log.lines().find(|line| line.contains("took=")).unwrap();
        let is_out = ["out of its EndpointSlices", "in no EndpointSlice;"];
        assert!(is_out.iter().any(|out| hook.contains(out)), "{hook}");
        assert!(at(hook) < stop, "{log}");
    }
    let exited = at("exiting ");
    assert!(exited > stop && log[exited..].contains("code=0"), "{log}");
}
