//! What a healthy group asks in a minute, from the API server's audit log.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use testbed::Request;
use tokio::time::sleep;

use crate::group::{Group, Kind, REPLICAS, Stage};

/// Until everyone knows the leader and watches.
const SETTLE: Duration = Duration::from_secs(5);
const MINUTE: Duration = Duration::from_secs(60);

/// How often each verb was used.
type Counts = BTreeMap<String, u32>;

pub(crate) async fn measure(stage: &Stage<'_>, peer: bool) -> anyhow::Result<Value> {
    let soloist = Group::start(stage, Kind::Soloist, REPLICAS).await?;
    let peers = match peer {
        true => Some(Group::start(stage, Kind::Peer, REPLICAS).await?),
        false => None,
    };
    sleep(SETTLE).await;
    let before = stage.plane.requests()?.len();
    sleep(MINUTE).await;
    let all = stage.plane.requests()?;
    let minute = all.get(before..).unwrap_or_default();
    let soloist = counts(minute, &soloist.namespace);
    let peers = peers.map(|group| counts(minute, &group.namespace));
    println!("\nRequests in a quiet minute, a group of {REPLICAS}");
    row("soloist", &soloist);
    if let Some(peers) = &peers {
        row("client-go", peers);
    }
    Ok(json!({
        "soloist": {"total": total(&soloist), "verbs": soloist},
        "client_go": peers.map(|peers| json!({"total": total(&peers), "verbs": peers})),
    }))
}

/// A watch counts when it begins: it has a second line when it ends.
fn counts(requests: &[Request], namespace: &str) -> Counts {
    let mut counts = Counts::new();
    let begun = |request: &&Request| request.verb != "watch" || request.stage == "ResponseStarted";
    let ours = requests
        .iter()
        .filter(|request| request.namespace == namespace);
    for request in ours.filter(begun) {
        *counts.entry(request.verb.clone()).or_default() += 1;
    }
    counts
}

fn total(counts: &Counts) -> u32 {
    counts.values().sum()
}

fn row(who: &str, counts: &Counts) {
    let verbs: Vec<_> = counts
        .iter()
        .map(|(verb, count)| format!("{count} {verb}"))
        .collect();
    println!("{who:<10} {:>4}   ({})", total(counts), verbs.join(", "));
}
