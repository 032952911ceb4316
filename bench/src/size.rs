//! Memory of each role, and the binaries.

use std::fs;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::sleep;

use crate::group::{Group, Kind, REPLICAS, Stage};
use crate::memory::{Memory, same_program_below};

/// Since the first child's start.
const AGE: Duration = Duration::from_secs(10);

pub(crate) async fn measure(stage: &Stage<'_>, peer: bool) -> anyhow::Result<Value> {
    let soloist = of_soloist(stage).await?;
    let listening = of_listener(stage).await?;
    let peers = match peer {
        true => Some(of_peer(stage).await?),
        false => None,
    };
    println!("\nSize after {} s, KiB", AGE.as_secs());
    println!("                        RSS      PSS  private  threads   target");
    let binary = fs::metadata(&stage.programs.soloist)?.len();
    row("soloist standby", soloist.standby, "RSS < 8 MB");
    row("  with a listener", listening, "RSS < 8 MB");
    row("soloist leader", soloist.leader, "");
    row("soloist guard", soloist.guard, "private < 1 MB");
    if let Some((leader, standby)) = peers {
        row("client-go standby", standby, "");
        row("client-go leader", leader, "");
    }
    println!(
        "soloist binary    {:>9.2} MB   target < 9 MB",
        megabytes(binary)
    );
    let peer_binary = fs::metadata(&stage.plane.binaries().peer)?.len();
    println!("client-go binary  {:>9.2} MB", megabytes(peer_binary));
    Ok(json!({
        "soloist": {
            "standby": soloist.standby.json(),
            "leader": soloist.leader.json(),
            "guard": soloist.guard.json(),
            "listening_standby": listening.json(),
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

/// A standby that has answered everything that it is asked on its port.
async fn of_listener(stage: &Stage<'_>) -> anyhow::Result<Memory> {
    let group = Group::start(stage, Kind::Listening, REPLICAS).await?;
    sleep(AGE).await;
    let (_, standbys) = group.roles().await?;
    let standby = standbys.first().context("no standby")?;
    let log = group.log(&standby.name)?;
    let (_, address) = log.split_once("address=").context("no address of a port")?;
    let address = address.split_whitespace().next().unwrap_or_default();
    for path in ["/livez", "/readyz", "/leader", "/status", "/metrics", "/"] {
        ask(address, path)
            .await
            .with_context(|| format!("{path} of {address}"))?;
    }
    Memory::of(standby.pid())
}

async fn ask(address: &str, path: &str) -> anyhow::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    ensure!(answer.starts_with("HTTP/1.1 "), "no answer: {answer:?}");
    Ok(())
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
