//! A web Deployment under constant load through kube-proxy, while its Pods are replaced.

mod leader;
mod shutdown;
mod stage;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::group::{Group, pod_spec};
use crate::load::Counts;
use crate::{PATIENCE, images};
use stage::{allow_prestop, await_gone, await_only, begin_load, deploy, time_ends, undeploy};

const REPLICAS: u8 = 3;
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

    /// How long the hooks took, as they have told soloist; sorted.
    fn hooks(&self) -> Vec<Duration> {
        let took = |line: &String| line.split("took=").nth(1).map(str::to_owned);
        let seconds = |text: String| match text.trim().strip_suffix("ms") {
            Some(millis) => millis.parse::<f64>().map(|millis| millis / 1000.0),
            None => text.trim().trim_end_matches('s').parse(),
        };
        let hooks = self.said.iter().filter_map(took);
        let mut hooks: Vec<Duration> = hooks
            .map(|text| Duration::from_secs_f64(seconds(text).unwrap()))
            .collect();
        hooks.sort_unstable();
        hooks
    }

    fn line(&self) -> String {
        let (median, worst) = (self.median(), self.ends.last().unwrap());
        format!(
            "{:<24} {:>7} {:>9} {:>7} {:>5} {:>8.2} s {:>7.2} s",
            self.variant.name(),
            self.updates,
            self.counts.answered,
            self.counts.grpc,
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
        "{:<24} {:>7} {:>9} {:>7} {:>5} {:>10} {:>9}\n",
        "variant", "updates", "answered", "by gRPC", "lost", "a Pod ends", "at most"
    );
    for outcome in &outcomes {
        let _ = writeln!(table, "{}", outcome.line());
    }
    eprintln!("{table}");
    for outcome in &outcomes {
        let (name, again) = (outcome.variant.name(), outcome.counts.asked_again);
        eprintln!("{name}: {again} calls of gRPC were never sent, and asked again");
    }
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
    assert!(soloist.counts.grpc > 100 * UPDATES as u64, "{table}");
    let hooks = soloist.hooks();
    let median = hooks[hooks.len() / 2];
    eprintln!(
        "soloist prestop, {} times: median {median:?}, at most {:?}",
        hooks.len(),
        hooks[hooks.len() - 1]
    );
    assert!(median < Duration::from_secs(5), "{:#?}", soloist.said);
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

#[tokio::test(flavor = "multi_thread")]
async fn scaling_down_and_draining_a_node_lose_no_request() {
    let Some(group) = Group::create("scaled").await else {
        return;
    };
    allow_prestop(&group).await;
    let address = deploy(&group, Variant::Soloist).await;
    let load = begin_load(&group, address).await;
    scale(&group, 1).await;
    scale(&group, REPLICAS).await;
    // Where the load comes from stays as it is.
    let node = &group.cluster.nodes()[1];
    group.cluster.drain(node, PATIENCE).await.unwrap();
    group.await_ready(REPLICAS.into()).await;
    group.cluster.cordon(node, false).await.unwrap();
    let counts = tokio::task::spawn_blocking(|| load.end()).await.unwrap();
    eprintln!(
        "scaled down to 1 and up, a node drained: {} answered, {} lost",
        counts.answered,
        counts.lost.len()
    );
    assert!(counts.lost.is_empty(), "{:#?}", counts.lost);
    undeploy(&group).await;
    group.end().await;
}

async fn scale(group: &Group, replicas: u8) {
    let (how, patch) = (
        PatchParams::default(),
        Patch::Merge(json!({ "spec": { "replicas": replicas } })),
    );
    let deployments = group.deployments();
    deployments.patch("demo", &how, &patch).await.unwrap();
    group.await_ready(replicas.into()).await;
    await_only(group, replicas.into()).await;
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
