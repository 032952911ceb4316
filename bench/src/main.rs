//! soloist beside client-go on one real API server, and its consumer beside a bare loop, each in the same run.
//!
//! Figures are printed, never judged: what they mean depends on the machine. Compare the two columns.

mod clock;
mod crowd;
mod etcd;
mod group;
mod handover;
mod journal;
mod memory;
mod minimum;
mod programs;
mod requests;
mod size;
mod spread;
mod stream;

use std::path::PathBuf;

use anyhow::Context;
use clap::{Parser, ValueEnum};
use serde_json::{Map, Value};
use testbed::ControlPlane;
use tokio::signal::unix::{SignalKind, signal};

use crate::group::Stage;
use crate::programs::Programs;

/// Measures soloist and client-go's leader election on one real API server, and the consumer of streams. Prints tables
/// and, last, one line of JSON.
#[derive(Debug, Parser)]
#[command(name = "bench", max_term_width = 100)]
struct Cli {
    /// What is measured
    #[arg(default_value = "all")]
    what: What,
    /// Handovers of soloist
    #[arg(long, default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    handovers: u32,
    /// Handovers of client-go, which take longer
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    peer_handovers: u32,
    /// Replicas of the large group
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=1000))]
    replicas: u32,
    /// Readings of a stream of each kind
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Messages of each reading
    #[arg(long, default_value_t = 1_000_000, value_name = "N", value_parser = clap::value_parser!(u64).range(10..=10_000_000))]
    messages: u64,
    /// Another soloist than the one that this workspace builds
    #[arg(long, value_name = "PATH")]
    soloist: Option<PathBuf>,
    /// Measure soloist alone
    #[arg(long)]
    no_peer: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum What {
    /// From the old child's exit to the next child's start, after SIGTERM to the leading replica
    Handover,
    /// The same in a large group, and what each handover asks the API server
    Crowd,
    /// Memory and the size of the binary
    Size,
    /// What a healthy group of three asks the API server in a minute
    Requests,
    /// Handovers and overlaps on an etcd, beside `etcdctl lock`. Needs no API server
    Etcd,
    /// The consumer's messages a second and memory. Needs no API server
    Stream,
    /// All of these
    All,
}

impl What {
    fn includes(self, other: Self) -> bool {
        self == Self::All || self == other
    }
}

fn main() -> anyhow::Result<()> {
    match stream::Part::asked_for() {
        Some(part) => part.run(),
        None => run(&Cli::parse()),
    }
}

// One thread: the parent-death signal of what we start is tied to the thread that started it.
#[tokio::main(flavor = "current_thread")]
async fn run(cli: &Cli) -> anyhow::Result<()> {
    if cfg!(debug_assertions) {
        anyhow::bail!("unoptimised programs tell nothing: `cargo run --release -p bench`");
    }
    let mut terminated = signal(SignalKind::terminate())?;
    tokio::select! {
        measured = measure(cli) => {
            println!("{}", Value::Object(measured?));
            Ok(())
        }
        _ = tokio::signal::ctrl_c() => anyhow::bail!("interrupted"),
        _ = terminated.recv() => anyhow::bail!("terminated"),
    }
}

async fn measure(cli: &Cli) -> anyhow::Result<Map<String, Value>> {
    let mut figures = Map::new();
    if cli.what.includes(What::Stream) {
        let measured = stream::measure(cli.rounds, cli.messages).await?;
        figures.insert("stream".to_owned(), measured);
    }
    if cli.what == What::Stream {
        return Ok(figures);
    }
    let programs = Programs::find(cli.soloist.clone())?;
    if cli.what.includes(What::Etcd) {
        let measured = etcd::measure(&programs, cli.handovers).await?;
        figures.insert("etcd".to_owned(), measured);
    }
    if cli.what == What::Etcd {
        return Ok(figures);
    }
    let plane = ControlPlane::start().await.context("the control plane")?;
    let stage = Stage::new(&plane, programs)?;
    if cli.what.includes(What::Handover) {
        let peer = (!cli.no_peer).then_some(cli.peer_handovers);
        let measured = handover::measure(&stage, cli.handovers, peer).await?;
        figures.insert("handover".to_owned(), measured);
    }
    if cli.what.includes(What::Crowd) {
        let measured = crowd::measure(&stage, cli.replicas, cli.handovers).await?;
        figures.insert("crowd".to_owned(), measured);
    }
    if cli.what.includes(What::Size) {
        let measured = size::measure(&stage, !cli.no_peer).await?;
        figures.insert("size".to_owned(), measured);
    }
    if cli.what.includes(What::Requests) {
        let measured = requests::measure(&stage, !cli.no_peer).await?;
        figures.insert("requests".to_owned(), measured);
    }
    Ok(figures)
}
