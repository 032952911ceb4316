//! Handovers of a large group: the time, and what they ask the API server.

mod tally;

use std::time::Duration;

use anyhow::ensure;
use serde_json::{Value, json};
use testbed::Request;
use tokio::time::{Instant, sleep};

use crate::group::{Group, Kind, Stage};
use crate::handover::{self, Handover};
use crate::journal::overlaps;
use crate::spread::Spread;
use tally::{Tally, may_be_renewal, open_watches};

/// Longer than the pauses between the tries of a replica (2 s).
const QUIET: Duration = Duration::from_secs(3);
/// Reading the audit log is work for the machine that is measured: seldom, and never during a handover.
const POLL: Duration = Duration::from_millis(300);
const SETTLING: Duration = Duration::from_secs(60);
/// Each replica's start is a few hundredths of a second of processor time, its own and the API server's.
const START_OF_EACH: Duration = Duration::from_secs(1);

/// One handover in a large group.
struct Measured {
    handover: Handover,
    requests: Tally,
    /// What the replica asked that replaced the stopped one.
    newcomer: Tally,
}

pub(crate) async fn measure(
    stage: &Stage<'_>,
    replicas: u32,
    handovers: u32,
) -> anyhow::Result<Value> {
    let group = Group::start(stage, Kind::Soloist, replicas as usize).await?;
    let mut crowd = Crowd {
        stage,
        group,
        replicas: replicas as usize,
        seen: 0,
    };
    crowd.quiet(START_OF_EACH * replicas + SETTLING).await?;
    let mut all = Vec::new();
    for _ in 0..handovers {
        all.push(crowd.hand_over().await?);
    }
    Ok(print(
        replicas,
        &all,
        overlaps(&crowd.group.journal.lives()),
    ))
}

struct Crowd<'a> {
    stage: &'a Stage<'a>,
    group: Group<'a>,
    replicas: usize,
    /// The group's lines of the audit log up to the last time that it was quiet.
    seen: usize,
}

impl Crowd<'_> {
    /// From one quiet group to the next, which has a new replica in the place of the stopped one.
    async fn hand_over(&mut self) -> anyhow::Result<Measured> {
        let before = self.group.journal.lives().len();
        let handover = handover::hand_over(&mut self.group).await?;
        self.replicas -= 1;
        let asked = self.quiet(SETTLING).await?;
        let takeovers = self.group.journal.lives().len() - before;
        let requests = Tally::of(&asked, 1 + takeovers);
        self.group.add()?;
        self.replicas += 1;
        let asked = self.quiet(SETTLING).await?;
        Ok(Measured {
            handover,
            requests,
            newcomer: Tally::of(&asked, 0),
        })
    }

    /// Waits until every standby watches and nobody has asked anything for a while but to renew; what was asked since the
    /// last time.
    async fn quiet(&mut self, patience: Duration) -> anyhow::Result<Vec<Request>> {
        let deadline = Instant::now() + patience;
        let (mut asked, mut since) = (0, Instant::now());
        loop {
            sleep(POLL).await;
            let mut log = self.stage.plane.requests()?;
            let namespace = &self.group.namespace;
            log.retain(|line| line.namespace == *namespace && line.resource == "leases");
            let now_asked = log.iter().filter(|line| !may_be_renewal(line)).count();
            if now_asked != asked {
                (asked, since) = (now_asked, Instant::now());
            }
            let watching = open_watches(&log);
            // A leader need not watch.
            if watching + 1 >= self.replicas && since.elapsed() >= QUIET {
                let new = log.split_off(self.seen.min(log.len()));
                self.seen += new.len();
                return Ok(new);
            }
            ensure!(
                Instant::now() < deadline,
                "the group is not quiet within {patience:?}: {watching} of {} watch",
                self.replicas
            );
        }
    }
}

fn print(replicas: u32, all: &[Measured], overlaps: usize) -> Value {
    let gap = Spread::of(all.iter().map(|one| one.handover.gap));
    let totals = Spread::of_values(all.iter().map(|one| one.requests.total() as f64));
    let handovers = Tally::sum(all.iter().map(|one| &one.requests));
    let newcomers = Tally::sum(all.iter().map(|one| &one.newcomer));
    let renewals = handovers.renewals + newcomers.renewals;
    let expired = handovers.expired_watches + newcomers.expired_watches;
    println!("\nHandover after SIGTERM, {replicas} replicas of soloist, 15/10/2 s");
    println!("                     n   median      p95    worst   overlaps");
    println!("{} {overlaps:>10}", gap.row("exit -> start, ms", all.len()));
    println!("{}", totals.row("requests", all.len()));
    println!("requests, mean          {}", handovers.mean(all.len()));
    println!("a new replica's, apart  {}", newcomers.mean(all.len()));
    println!(
        "not counted: {renewals} renewals and {expired} watches that were opened again because their time was over"
    );
    json!({
        "replicas": replicas,
        "n": all.len(),
        "overlaps": overlaps,
        "exit_to_start_ms": gap.json(),
        "requests": totals.json(),
        "requests_by_verb": handovers.json(all.len()),
        "requests_of_a_new_replica": newcomers.json(all.len()),
        "renewals_not_counted": renewals,
        "expired_watches_not_counted": expired,
    })
}
