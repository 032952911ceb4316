//! Deployment, Service, load, and how long Pods take to end.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{AsyncBufReadExt, StreamExt};
use k8s_openapi::api::{
    core::v1::{Pod, Service},
    rbac::v1::PolicyRule,
};
use kube::Api;
use kube::api::{DeleteParams, ListParams, LogParams, PostParams};
use serde_json::{Value, json};
use testbed::Account;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::{REPLICAS, Variant};
use crate::PATIENCE;
use crate::group::{ACCOUNT, Group};
use crate::load::Load;

pub(super) const LOOK: Duration = Duration::from_millis(50);

/// The rights of `soloist prestop`.
pub(super) async fn allow_prestop(group: &Group) {
    let rule = |api: &str, resource: &str, verbs: &[&str]| PolicyRule {
        api_groups: Some(vec![api.to_owned()]),
        resources: Some(vec![resource.to_owned()]),
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        ..PolicyRule::default()
    };
    let rules = vec![
        rule(
            "discovery.k8s.io",
            "endpointslices",
            &["get", "list", "watch"],
        ),
        rule("", "pods", &["get"]),
    ];
    let plane = group.cluster.plane();
    let to = Account::ServiceAccount(ACCOUNT);
    plane.allow(&group.namespace, to, rules).await.unwrap();
}

/// Three Pods behind a Service of its own; its address.
///
/// With one for all, who loses some would lose some of the next one's too: an attempt to connect that nobody answered stays in the
/// node's table of connections for two minutes, and whoever gets its port again is sent to the same Pod, which is gone.
pub(super) async fn deploy(group: &Group, variant: Variant) -> SocketAddr {
    deploy_behind(group, variant.spec(), &json!({ "app": "demo" })).await
}

/// Three Pods like this, and a Service of those of them that have these labels.
pub(super) async fn deploy_behind(group: &Group, spec: Value, labels: &Value) -> SocketAddr {
    group.deploy(REPLICAS, spec).await;
    let service = json!({
        "metadata": { "generateName": "web-" },
        "spec": { "selector": labels, "ports": [{ "port": 80, "targetPort": 8080 }] },
    });
    let services: Api<Service> = Api::namespaced(group.client.clone(), &group.namespace);
    let service = serde_json::from_value(service).unwrap();
    let how = PostParams::default();
    let service = services.create(&how, &service).await.unwrap();
    group.await_ready(REPLICAS.into()).await;
    let address = service.spec.unwrap().cluster_ip.unwrap();
    SocketAddr::new(address.parse().unwrap(), 80)
}

pub(super) async fn undeploy(group: &Group) {
    let background = DeleteParams::background();
    group
        .deployments()
        .delete("demo", &background)
        .await
        .unwrap();
    let deadline = Instant::now() + PATIENCE;
    while !group
        .pods()
        .list(&ListParams::default())
        .await
        .unwrap()
        .items
        .is_empty()
    {
        assert!(Instant::now() < deadline, "the Pods do not end");
        sleep(LOOK).await;
    }
}

/// It has had answers when this returns.
pub(super) async fn begin_load(group: &Group, address: SocketAddr) -> Load {
    let network = group.cluster.nodes()[0].network();
    // Until kube-proxy knows the Service nobody answers, and nothing of that is lost by an update.
    let deadline = Instant::now() + PATIENCE;
    loop {
        let trial = Load::begin(&network, address);
        sleep(Duration::from_millis(500)).await;
        let trial = tokio::task::spawn_blocking(|| trial.end()).await.unwrap();
        if trial.lost.is_empty() && trial.answered > 0 {
            break;
        }
        assert!(
            Instant::now() < deadline,
            "nobody answers: {:?}",
            trial.lost
        );
    }
    let load = Load::begin(&network, address);
    while load.answered() < 200 {
        assert!(Instant::now() < deadline, "nobody answers");
        sleep(LOOK).await;
    }
    load
}

/// Those that end are gone.
pub(super) async fn await_only(group: &Group, many: usize) {
    let deadline = Instant::now() + PATIENCE;
    while group
        .pods()
        .list(&ListParams::default())
        .await
        .unwrap()
        .items
        .len()
        != many
    {
        assert!(Instant::now() < deadline, "old Pods do not end");
        sleep(LOOK).await;
    }
}

pub(super) async fn await_gone(group: &Group, pod: &str) {
    let deadline = Instant::now() + PATIENCE;
    while group.pods().get_opt(pod).await.unwrap().is_some() {
        assert!(Instant::now() < deadline, "{pod} does not end");
        sleep(LOOK).await;
    }
}

/// How long each Pod was seen as Terminating, until it is told to end; and what the hooks have told.
pub(super) async fn time_ends(pods: Api<Pod>, over: Arc<Notify>) -> (Vec<Duration>, Vec<String>) {
    let mut logs = Vec::new();
    let mut ending: BTreeMap<String, Instant> = BTreeMap::new();
    let mut ends = Vec::new();
    let mut is_over = false;
    while !is_over || !ending.is_empty() {
        let seen = pods.list(&ListParams::default()).await.unwrap();
        let terminating = seen
            .items
            .iter()
            .filter(|pod| pod.metadata.deletion_timestamp.is_some());
        let names: Vec<String> = terminating
            .filter_map(|pod| pod.metadata.name.clone())
            .collect();
        ending.retain(|name, since| {
            let is_there = names.contains(name);
            if !is_there {
                ends.push(since.elapsed());
            }
            is_there
        });
        for name in names {
            ending.entry(name.clone()).or_insert_with(|| {
                logs.push(tokio::spawn(told_by_hook(pods.clone(), name)));
                Instant::now()
            });
        }
        if !is_over {
            is_over = tokio::time::timeout(LOOK, over.notified()).await.is_ok();
        }
    }
    let mut said = Vec::new();
    for log in logs {
        said.extend(log.await.unwrap());
    }
    (ends, said)
}

/// The log of a Pod that ends, to its end.
async fn told_by_hook(pods: Api<Pod>, name: String) -> Vec<String> {
    let follow = LogParams {
        follow: true,
        ..LogParams::default()
    };
    let Ok(log) = pods.log_stream(&name, &follow).await else {
        return Vec::new();
    };
    let lines = log.lines().filter_map(async |line| {
        let line = line.ok()?;
        line.contains("preStop:").then(|| format!("{name}: {line}"))
    });
    lines.collect().await
}
