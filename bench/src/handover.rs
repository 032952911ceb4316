//! From the old child's exit to the next child's start.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::clock;
use crate::group::{Group, Kind, PATIENCE, Stage};
use crate::journal::Life;

/// Before each SIGTERM: the new standby has seen the lease by then.
const SETTLE: Duration = Duration::from_millis(1500);
/// SIGTERMs are spread over client-go's period of 2 s, evenly: no other phase of its polling is better or worse.
const PERIOD_MILLIS: u64 = 2000;
const STEP_MILLIS: u64 = 763;

/// In nanoseconds.
struct Handover {
    /// From the old child's exit to the next child's start; negative if both ran at once.
    gap: i128,
    /// From SIGTERM to the next child's start.
    whole: i128,
}

pub(crate) async fn measure(
    stage: &Stage<'_>,
    soloist: u32,
    peer: Option<u32>,
) -> anyhow::Result<Value> {
    let ours = Summary::of(&repeat(stage, Kind::Soloist, soloist).await?);
    let peers = match peer {
        Some(times) => Some(Summary::of(&repeat(stage, Kind::Peer, times).await?)),
        None => None,
    };
    println!(
        "\nHandover after SIGTERM, three replicas, 15/10/2 s: old child's exit -> next child's start, ms"
    );
    println!("             n   median      p95    worst   overlaps   SIGTERM -> start, median");
    ours.print("soloist");
    if let Some(peers) = &peers {
        peers.print("client-go");
        println!(
            "client-go's median is {:.0} times ours",
            peers.gap.median / ours.gap.median
        );
    }
    Ok(json!({
        "soloist": ours.json(),
        "client_go": peers.as_ref().map(Summary::json),
        "median_ratio": peers.as_ref().map(|peers| peers.gap.median / ours.gap.median),
    }))
}

async fn repeat(stage: &Stage<'_>, kind: Kind, times: u32) -> anyhow::Result<Vec<Handover>> {
    let mut group = Group::start(stage, kind).await?;
    let mut handovers = Vec::new();
    for turn in 0..u64::from(times) {
        let phase = Duration::from_millis(turn * STEP_MILLIS % PERIOD_MILLIS);
        sleep(SETTLE + phase).await;
        handovers.push(hand_over(&mut group).await?);
    }
    Ok(handovers)
}

async fn hand_over(group: &mut Group<'_>) -> anyhow::Result<Handover> {
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
    group.add()?;
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
        let Spread { median, p95, worst } = self.gap;
        println!(
            "{who:<10} {:>3} {median:>8.1} {p95:>8.1} {worst:>8.1} {:>10} {:>26.1}",
            self.count, self.overlaps, self.whole.median
        );
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

/// In milliseconds.
#[derive(Debug, PartialEq)]
struct Spread {
    median: f64,
    p95: f64,
    worst: f64,
}

impl Spread {
    fn of(nanoseconds: impl Iterator<Item = i128>) -> Self {
        let mut sorted: Vec<f64> = nanoseconds.map(|time| time as f64 / 1e6).collect();
        sorted.sort_by(f64::total_cmp);
        // The nearest rank: a value that was measured.
        let at = |part: f64| {
            let rank = (part * sorted.len() as f64).ceil() as usize;
            sorted
                .get(rank.saturating_sub(1))
                .copied()
                .unwrap_or(f64::NAN)
        };
        Self {
            median: at(0.5),
            p95: at(0.95),
            worst: at(1.0),
        }
    }

    fn json(&self) -> Value {
        json!({"median": self.median, "p95": self.p95, "worst": self.worst})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_values_that_were_measured() {
        let spread = Spread::of((1..=20).rev().map(|millis| millis * 1_000_000));
        let expected = Spread {
            median: 10.0,
            p95: 19.0,
            worst: 20.0,
        };
        assert_eq!(spread, expected);
    }
}
