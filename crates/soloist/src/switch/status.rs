//! `soloist status`: who leads, since when, and who stands by.

use std::fmt::Write as _;

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use serde_json::{Value, json};
use soloist_core::ids::Identity;
use soloist_core::record::Record;
use soloist_elector::orders;
use tokio::time::timeout;

use super::follow::Follow;
use super::lease::{Lease, Times, is_paused};
use super::live;
use super::pods::{self, LOOK, Pod};
use super::{LeaseArgs, NotDone, is_heard, say};

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    /// Print it again whenever it changes; on a terminal, a view with a timeline, until Ctrl-C
    #[arg(long)]
    pub(crate) watch: bool,
    /// How it is written; with --watch a JSON object is one line
    #[arg(long, short, default_value = "table", value_name = "FORMAT")]
    pub(crate) output: Output,

    #[command(flatten)]
    pub(crate) lease: LeaseArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people
    Table,
    /// One JSON object
    Json,
}

impl StatusArgs {
    pub(crate) async fn show(&self) -> anyhow::Result<()> {
        let lease = self.lease.open().await?;
        let record = lease.read().await?;
        if self.watch && self.output == Output::Table && live::is_possible() {
            return live::show(&lease, record).await;
        }
        let mut shown = self.told(&lease, &record).await;
        say(&shown);
        if !self.watch {
            return Ok(());
        }
        let mut follow = Follow::new(&lease);
        let mut last = record;
        loop {
            // Pods change, too.
            if let Ok(found) = timeout(LOOK, follow.next()).await {
                last = found.ok_or_else(|| NotDone::NoLease(lease.describe()))?;
            }
            if !is_heard() {
                return Ok(());
            }
            let now = self.told(&lease, &last).await;
            if now != shown {
                say(&now);
                shown = now;
            }
        }
    }

    async fn told(&self, lease: &Lease, record: &Record) -> String {
        let seen = Seen::look(lease, record).await;
        match (self.output, self.watch) {
            (Output::Table, _) => seen.table(),
            (Output::Json, false) => format!("{:#}", seen.json()),
            (Output::Json, true) => seen.json().to_string(),
        }
    }
}

/// What can be said of a lease and its replicas.
pub(super) struct Seen {
    lease: String,
    leader: Option<String>,
    term: u64,
    duration_seconds: Option<i64>,
    pause: Option<String>,
    handover: Option<String>,
    times: Times,
    /// The replicas, or why they cannot be told.
    replicas: Result<Vec<Pod>, String>,
}

impl Seen {
    pub(super) async fn look(lease: &Lease, record: &Record) -> Self {
        let leader = record.holder.as_ref().map(Identity::to_string);
        // After a release the last holder's Pod still shows which workload it is.
        let last = record.signature.as_ref().map(|s| s.holder.to_string());
        let replicas = match (lease.cluster(), leader.as_ref().or(last.as_ref())) {
            (Some(store), Some(one)) => {
                let pods = pods::of_leader(store, one).await;
                pods.map_err(|failure| format!("the Pods cannot be read: {failure}"))
            }
            (Some(_), None) => Err("nobody has led yet".into()),
            (None, _) if matches!(lease, Lease::Etcd(_)) => {
                Err("etcd does not tell who stands by".into())
            }
            (None, _) => Err("a file does not tell who stands by".into()),
        };
        let pause = record.orders.pause.filter(|_| is_paused(record)).map(|p| {
            let kind = if p.stop {
                "stopped"
            } else {
                "nobody takes over"
            };
            let until = p.until.and_then(orders::timestamp);
            match until {
                Some(until) => format!("{kind} until {until}"),
                None => format!("{kind} until it is resumed"),
            }
        });
        let handover = record.orders.handover.as_ref().map(|order| {
            let to = order.to.as_ref().map_or("anyone", Identity::as_str);
            format!("ordered to {to} for term {}", order.term)
        });
        Self {
            lease: lease.describe(),
            leader,
            term: record.transitions,
            duration_seconds: record.duration_seconds,
            pause,
            handover,
            times: lease.times().await,
            replicas,
        }
    }

    pub(super) fn table(&self) -> String {
        let mut text = format!("{}\n", self.lease);
        let leader = self.leader.as_deref().unwrap_or("nobody");
        let _ = writeln!(text, "  leader    {leader}");
        let _ = writeln!(text, "  term      {}", self.term);
        if let Some(since) = self.times.acquired {
            let since = since.strftime("%Y-%m-%dT%H:%M:%SZ");
            let word = if self.leader.is_some() {
                "since"
            } else {
                "free since"
            };
            let _ = writeln!(text, "  {word:<9} {since}");
        }
        if let Some(pause) = &self.pause {
            let _ = writeln!(text, "  PAUSED    {pause}");
        }
        if let Some(handover) = &self.handover {
            let _ = writeln!(text, "  handover  {handover}");
        }
        match &self.replicas {
            Ok(pods) => text.push_str(&self.rows(pods)),
            Err(reason) => {
                let _ = write!(text, "  replicas  not known: {reason}");
            }
        }
        text
    }

    fn rows(&self, pods: &[Pod]) -> String {
        let head = ["REPLICA", "ROLE", "STATE", "RESTARTS", "REVISION", "NODE"];
        let mut rows = vec![head.map(str::to_owned)];
        for pod in pods {
            rows.push([
                pod.name.clone(),
                self.role(pod).into(),
                pod.state().into(),
                pod.restarts.to_string(),
                pod.revision.clone(),
                pod.node.clone(),
            ]);
        }
        let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let widths: Vec<_> = (0..head.len()).map(width).collect();
        let line = |row: &[String; 6]| {
            let cells = row
                .iter()
                .zip(&widths)
                .map(|(cell, width)| format!("{cell:<width$}"));
            let line: Vec<_> = cells.collect();
            line.join("  ").trim_end().to_owned()
        };
        let lines: Vec<_> = rows.iter().map(line).collect();
        lines.join("\n")
    }

    fn role(&self, pod: &Pod) -> &'static str {
        match self.leader.as_ref() == Some(&pod.name) {
            true => "leader",
            false => "standby",
        }
    }

    fn json(&self) -> Value {
        let time = |at: Option<Timestamp>| at.map(|at| at.to_string());
        let replicas = self.replicas.as_ref().ok().map(|pods| {
            let pods = pods.iter().map(|pod| {
                json!({
                    "name": pod.name, "role": self.role(pod), "state": pod.state(),
                    "restarts": pod.restarts, "revision": pod.revision, "node": pod.node,
                })
            });
            pods.collect::<Vec<_>>()
        });
        json!({
            "lease": self.lease, "leader": self.leader, "term": self.term,
            "leaseDurationSeconds": self.duration_seconds,
            "acquired": time(self.times.acquired), "renewed": time(self.times.renewed),
            "paused": self.pause, "handover": self.handover, "replicas": replicas,
        })
    }
}
