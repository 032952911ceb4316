//! A web Deployment under constant load through kube-proxy, while its Pods are replaced.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{AsyncBufReadExt, StreamExt};
use k8s_openapi::api::{
    core::v1::{Pod, Service},
    rbac::v1::PolicyRule,
};
use kube::Api;
use kube::api::{DeleteParams, ListParams, LogParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use testbed::Account;
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::group::{ACCOUNT, Group, pod_spec};
use crate::load::{Counts, Load};
use crate::{PATIENCE, images};

const REPLICAS: u8 = 3;
const LOOK: Duration = Duration::from_millis(50);
/// Of each variant that is compared.
const COMPARED: usize = 2;
/// Of soloist's own.
const UPDATES: usize = 10;

/// How a Pod ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    /// `soloist prestop`, then the SDK's drain.
    Soloist,
    /// Neither a hook nor a drain.
    Plain,
    /// A hook that sleeps 5 s, and no drain.
    Sleep,
}

impl Variant {
    const fn name(self) -> &'static str {
        match self {
            Self::Soloist => "soloist prestop, drain",
            Self::Plain => "no preStop, no drain",
            Self::Sleep => "sleep 5, no drain",
        }
    }

    fn spec(self) -> Value {
        let mut spec = pod_spec();
        spec["volumes"] = json!([]);
        let container = &mut spec["containers"][0];
        container["image"] = json!(images::WEB);
        container["volumeMounts"] = json!([]);
        container["readinessProbe"] = json!({ "tcpSocket": { "port": 8080 }, "periodSeconds": 2 });
        let server = ["/web", "0.0.0.0:8080"];
        match self {
            Self::Soloist => {
                let run = "/soloist run --store none --name web --ready notify --";
                let run: Vec<&str> = run.split(' ').collect();
                container["command"] = json!(run);
                container["args"] = json!(server);
                container["lifecycle"] =
                    json!({ "preStop": { "exec": { "command": ["/soloist", "prestop"] } } });
            }
            Self::Plain | Self::Sleep => {
                container["command"] = json!(server);
                container["args"] = json!([]);
                // As a server that ends when it is told to.
                let variables = container["env"].as_array_mut().unwrap();
                variables.push(json!({ "name": "SOLOIST_STOP_SECONDS", "value": "0.02" }));
                variables.push(json!({ "name": "SOLOIST_DRAIN_SECONDS", "value": "0.01" }));
            }
        }
        if self == Self::Sleep {
            container["lifecycle"] = json!({ "preStop": { "sleep": { "seconds": 5 } } });
        }
        spec
    }
}

/// A line of the table.
struct Outcome {
    variant: Variant,
    updates: usize,
    counts: Counts,
    /// From Terminating to gone, sorted.
    ends: Vec<Duration>,
    /// What the hooks have told.
    said: Vec<String>,
}

impl Outcome {
    fn median(&self) -> Duration {
        self.ends[self.ends.len() / 2]
    }

    fn line(&self) -> String {
        let (median, worst) = (self.median(), self.ends.last().unwrap());
        format!(
            "{:<24} {:>7} {:>9} {:>5} {:>8.2} s {:>7.2} s",
            self.variant.name(),
            self.updates,
            self.counts.answered,
            self.counts.lost.len(),
            median.as_secs_f64(),
            worst.as_secs_f64()
        )
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rolling_updates_with_prestop_and_drain_lose_no_request_and_others_do() {
    let Some(group) = Group::create("web").await else {
        return;
    };
    allow_prestop(&group).await;
    let mut outcomes = Vec::new();
    for (variant, updates) in [
        (Variant::Plain, COMPARED),
        (Variant::Sleep, COMPARED),
        (Variant::Soloist, UPDATES),
    ] {
        outcomes.push(roll(&group, variant, updates).await);
    }
    let mut table = format!(
        "{:<24} {:>7} {:>9} {:>5} {:>10} {:>9}\n",
        "variant", "updates", "answered", "lost", "a Pod ends", "at most"
    );
    for outcome in &outcomes {
        let _ = writeln!(table, "{}", outcome.line());
    }
    eprintln!("{table}");
    let [plain, sleeping, soloist] = &outcomes[..] else {
        panic!("three variants");
    };
    assert!(
        soloist.counts.lost.is_empty(),
        "{:#?} {:#?}",
        soloist.counts.lost,
        soloist.said
    );
    assert!(soloist.counts.answered > 1000 * UPDATES as u64, "{table}");
    assert!(
        !plain.counts.lost.is_empty(),
        "the load does not see what is lost"
    );
    assert!(
        !sleeping.counts.lost.is_empty() || sleeping.median() > soloist.median(),
        "sleeping is as good: {table}"
    );
    group.end().await;
}

/// Two Services' worth of waiting: the first loses what its sleep does not cover.
#[tokio::test(flavor = "multi_thread")]
async fn a_kube_proxy_that_is_held_back_is_waited_for() {
    let Some(group) = Group::create("held").await else {
        return;
    };
    allow_prestop(&group).await;
    let mut lost = BTreeMap::new();
    for variant in [Variant::Sleep, Variant::Soloist] {
        let address = deploy(&group, variant).await;
        let load = begin_load(&group, address).await;
        for node in group.cluster.nodes() {
            node.hold_kube_proxy().unwrap();
        }
        let held = Instant::now();
        let pods = group.pods().list(&ListParams::default()).await.unwrap();
        let pod = pods.items[0].metadata.name.clone().unwrap();
        group
            .pods()
            .delete(&pod, &DeleteParams::default())
            .await
            .unwrap();
        // The time for which it is held is the fault itself.
        sleep(Duration::from_secs(8).saturating_sub(held.elapsed())).await;
        for node in group.cluster.nodes() {
            node.release_kube_proxy().unwrap();
        }
        await_gone(&group, &pod).await;
        let took = held.elapsed();
        group.await_ready(REPLICAS.into()).await;
        let counts = load.end();
        eprintln!(
            "kube-proxy held for 8 s, {}: {} answered, {} lost, the Pod ended after {:.2} s",
            variant.name(),
            counts.answered,
            counts.lost.len(),
            took.as_secs_f64()
        );
        lost.insert(variant.name(), counts.lost);
        undeploy(&group).await;
    }
    assert!(lost[Variant::Soloist.name()].is_empty(), "{lost:#?}");
    assert!(
        !lost[Variant::Sleep.name()].is_empty(),
        "a sleep of 5 s covers 8 s?"
    );
    group.end().await;
}

/// The rights of `soloist prestop`.
async fn allow_prestop(group: &Group) {
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
/// Of one address for all: a connection whose server was killed stays in the nodes' tables for days, and whoever gets its port again is sent to
/// that server.
async fn deploy(group: &Group, variant: Variant) -> SocketAddr {
    group.deploy(REPLICAS, variant.spec()).await;
    let service = json!({
        "metadata": { "generateName": "web-" },
        "spec": { "selector": { "app": "demo" }, "ports": [{ "port": 80, "targetPort": 8080 }] },
    });
    let services: Api<Service> = Api::namespaced(group.client.clone(), &group.namespace);
    let service = serde_json::from_value(service).unwrap();
    let how = PostParams::default();
    let service = services.create(&how, &service).await.unwrap();
    group.await_ready(REPLICAS.into()).await;
    let address = service.spec.unwrap().cluster_ip.unwrap();
    SocketAddr::new(address.parse().unwrap(), 80)
}

async fn undeploy(group: &Group) {
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
async fn begin_load(group: &Group, address: SocketAddr) -> Load {
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

async fn roll(group: &Group, variant: Variant, updates: usize) -> Outcome {
    let address = deploy(group, variant).await;
    let load = begin_load(group, address).await;
    let over = Arc::new(Notify::new());
    let timing = tokio::spawn(time_ends(group.pods(), over.clone()));
    for update in 0..updates {
        let change = json!({ "spec": { "template": { "metadata": { "annotations": {
            "update": update.to_string() } } } } });
        let (how, patch) = (PatchParams::default(), Patch::Merge(change));
        group
            .deployments()
            .patch("demo", &how, &patch)
            .await
            .unwrap();
        group.await_ready(REPLICAS.into()).await;
        await_only(group, REPLICAS.into()).await;
    }
    over.notify_one();
    let (mut ends, said) = timing.await.unwrap();
    ends.sort_unstable();
    let counts = tokio::task::spawn_blocking(|| load.end()).await.unwrap();
    undeploy(group).await;
    assert_eq!(
        ends.len(),
        updates * usize::from(REPLICAS),
        "Pods that ended"
    );
    Outcome {
        variant,
        updates,
        counts,
        ends,
        said,
    }
}

/// Those that end are gone.
async fn await_only(group: &Group, many: usize) {
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

async fn await_gone(group: &Group, pod: &str) {
    let deadline = Instant::now() + PATIENCE;
    while group.pods().get_opt(pod).await.unwrap().is_some() {
        assert!(Instant::now() < deadline, "{pod} does not end");
        sleep(LOOK).await;
    }
}

/// How long each Pod was seen as Terminating, until it is told to end; and what the hooks have told.
async fn time_ends(pods: Api<Pod>, over: Arc<Notify>) -> (Vec<Duration>, Vec<String>) {
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
        let is_told = line.contains("preStop:")
            || line.contains("asked to stop")
            || line.contains("exiting")
            || line.contains("drain");
        is_told.then(|| format!("{name}: {line}"))
    });
    lines.collect().await
}
