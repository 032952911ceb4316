//! Memory of each role, and the binaries.

use std::fs;
use std::time::Duration;

use anyhow::Context;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::group::{Group, Kind, REPLICAS, Stage};
use crate::memory::{Memory, same_program_below};

/// Since the first child's start.
const AGE: Duration = Duration::from_secs(10);

pub(crate) async fn measure(stage: &Stage<'_>, peer: bool) -> anyhow::Result<Value> {
    let soloist = of_soloist(stage).await?;
    let peers = match peer {
        true => Some(of_peer(stage).await?),
        false => None,
    };
    println!("\nSize after {} s, KiB", AGE.as_secs());
    println!("                        RSS      PSS  private  threads   target");
    let binary = fs::metadata(&stage.programs.soloist)?.len();
    row("soloist standby", soloist.standby, "RSS < 8 MB");
    row("soloist leader", soloist.leader, "");
    row("soloist guard", soloist.guard, "private < 1 MB");
    if let Some((leader, standby)) = peers {
        row("client-go standby", standby, "");
        row("client-go leader", leader, "");
    }
    println!(
        "soloist binary    {:>9.2} MB   target < 8 MB",
        megabytes(binary)
    );
    let peer_binary = fs::metadata(&stage.plane.binaries().peer)?.len();
    println!("client-go binary  {:>9.2} MB", megabytes(peer_binary));
    Ok(json!({
        "soloist": {
            "standby": soloist.standby.json(),
            "leader": soloist.leader.json(),
            "guard": soloist.guard.json(),
            "binary_bytes": binary,
        },
        "client_go": peers.map(|(leader, standby)| json!({
            "standby": standby.json(),
            "leader": leader.json(),
            "binary_bytes": peer_binary,
        })),
    }))
}

struct Soloist {
    leader: Memory,
    guard: Memory,
    standby: Memory,
}

async fn of_soloist(stage: &Stage<'_>) -> anyhow::Result<Soloist> {
    let group = Group::start(stage, Kind::Soloist, REPLICAS).await?;
    sleep(AGE).await;
    let (leader, standbys) = group.roles().await?;
    let guards = same_program_below(leader.pid());
    let guard = guards.first().context("soloist has no guard")?;
    Ok(Soloist {
        leader: Memory::of(leader.pid())?,
        guard: Memory::of(*guard)?,
        standby: Memory::of(standbys.first().context("no standby")?.pid())?,
    })
}

/// The leader and a standby.
async fn of_peer(stage: &Stage<'_>) -> anyhow::Result<(Memory, Memory)> {
    let group = Group::start(stage, Kind::Peer, REPLICAS).await?;
    sleep(AGE).await;
    let (leader, standbys) = group.roles().await?;
    let standby = standbys.first().context("no standby")?;
    Ok((Memory::of(leader.pid())?, Memory::of(standby.pid())?))
}

fn row(who: &str, memory: Memory, target: &str) {
    let Memory {
        rss,
        pss,
        private,
        threads,
    } = memory;
    println!("{who:<18} {rss:>8} {pss:>8} {private:>8} {threads:>8}   {target}");
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
