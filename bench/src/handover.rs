//! From the old child's exit to the next child's start, and the least that it can take.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::clock;
use crate::group::{Group, Kind, PATIENCE, REPLICAS, Stage};
use crate::journal::Life;
use crate::minimum::{Minimum, Steps};
use crate::spread::Spread;

/// Before each SIGTERM: the new standby has seen the lease by then.
const SETTLE: Duration = Duration::from_millis(1500);
/// SIGTERMs are spread over client-go's period of 2 s, evenly: no other phase of its polling is better or worse.
const PERIOD_MILLIS: u64 = 2000;
const STEP_MILLIS: u64 = 763;

/// In nanoseconds.
pub(crate) struct Handover {
    /// From the old child's exit to the next child's start; negative if both ran at once.
    pub(crate) gap: i128,
    /// From SIGTERM to the next child's start.
    whole: i128,
}

pub(crate) async fn measure(
    stage: &Stage<'_>,
    soloist: u32,
    peer: Option<u32>,
) -> anyhow::Result<Value> {
    let (ours, bare) = beside_minimum(stage, soloist).await?;
    let ours = Summary::of(&ours);
    let least = Spread::of(bare.iter().map(Steps::whole));
    let [release, takeover, start] = [
        |steps: &Steps| steps.release,
        |steps: &Steps| steps.takeover,
        |steps: &Steps| steps.start,
    ]
    .map(|step| Spread::of(bare.iter().map(step)).median);
    let peers = match peer {
        Some(times) => Some(Summary::of(&of_peer(stage, times).await?)),
        None => None,
    };
    println!(
        "\nHandover after SIGTERM, three replicas, 15/10/2 s: old child's exit -> next child's start, ms"
    );
    println!(
        "                     n   median      p95    worst   overlaps   SIGTERM -> start, median"
    );
    ours.print("soloist");
    println!(
        "{}   release {release:.1}, takeover {takeover:.1}, start {start:.1}",
        least.row("bare minimum", bare.len())
    );
    if let Some(peers) = &peers {
        peers.print("client-go");
    }
    let of_minimum = ours.gap.median / least.median;
    println!("soloist's median is {of_minimum:.2} times the bare minimum");
    let of_ours = peers.as_ref().map(|it| it.gap.median / ours.gap.median);
    if let Some(ratio) = of_ours {
        println!("client-go's median is {ratio:.0} times soloist's");
    }
    Ok(json!({
        "soloist": ours.json(),
        "bare_minimum": {
            "n": bare.len(),
            "release_to_start_ms": least.json(),
            "median_steps_ms": {"release": release, "takeover": takeover, "start": start},
        },
        "client_go": peers.as_ref().map(Summary::json),
        "minimum_ratio": of_minimum,
        "median_ratio": of_ours,
    }))
}

/// Handovers of soloist and the bare minimum in turns, so that both see the machine in the same state.
async fn beside_minimum(
    stage: &Stage<'_>,
    times: u32,
) -> anyhow::Result<(Vec<Handover>, Vec<Steps>)> {
    let mut group = Group::start(stage, Kind::Soloist, REPLICAS).await?;
    let mut minimum = Minimum::start(stage).await?;
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for turn in 0..times {
        sleep(SETTLE + phase(turn)).await;
        ours.push(hand_over(&mut group).await?);
        group.add()?;
        sleep(SETTLE).await;
        bare.push(minimum.hand_over().await?);
    }
    Ok((ours, bare))
}

async fn of_peer(stage: &Stage<'_>, times: u32) -> anyhow::Result<Vec<Handover>> {
    let mut group = Group::start(stage, Kind::Peer, REPLICAS).await?;
    let mut handovers = Vec::new();
    for turn in 0..times {
        sleep(SETTLE + phase(turn)).await;
        handovers.push(hand_over(&mut group).await?);
        group.add()?;
    }
    Ok(handovers)
}

fn phase(turn: u32) -> Duration {
    Duration::from_millis(u64::from(turn) * STEP_MILLIS % PERIOD_MILLIS)
}

/// Stops the leading replica and waits for the next child.
pub(crate) async fn hand_over(group: &mut Group<'_>) -> anyhow::Result<Handover> {
    let old = group.led().await?;
    let mut leader = group.take(&old.replica)?;
    let asked = clock::now();
    leader.terminate()?;
    let of_old = |lives: &[Life]| lives.iter().position(|life| life.pid == old.pid);
    let done = |lives: &[Life]| {
        of_old(lives).is_some_and(|at| lives[at].end.is_some() && lives.len() > at + 1)
    };
    let lives = group.journal.wait("the next child", PATIENCE, done).await?;
    leader.exited().await?;
    let at = of_old(&lives).unwrap_or_default();
    let start = lives[at + 1].start;
    Ok(Handover {
        gap: start - lives[at].end.unwrap_or(start),
        whole: start - asked,
    })
}

struct Summary {
    count: usize,
    overlaps: usize,
    gap: Spread,
    whole: Spread,
}

impl Summary {
    fn of(handovers: &[Handover]) -> Self {
        Self {
            count: handovers.len(),
            overlaps: handovers.iter().filter(|handover| handover.gap < 0).count(),
            gap: Spread::of(handovers.iter().map(|handover| handover.gap)),
            whole: Spread::of(handovers.iter().map(|handover| handover.whole)),
        }
    }

    fn print(&self, who: &str) {
        let gap = self.gap.row(who, self.count);
        println!("{gap} {:>10} {:>26.1}", self.overlaps, self.whole.median);
    }

    fn json(&self) -> Value {
        json!({
            "n": self.count,
            "overlaps": self.overlaps,
            "exit_to_start_ms": self.gap.json(),
            "sigterm_to_start_ms": self.whole.json(),
        })
    }
}
