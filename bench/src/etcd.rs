//! Leases in etcd: soloist beside `etcdctl lock`, on one etcd, in turns.

mod minimum;

use std::ffi::OsString;
use std::fs;
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Map, Value, json};
use testbed::{EtcdCluster, EtcdTransport, Link};
use tokio::time::{Instant, sleep};

use crate::clock;
use crate::group::{PATIENCE, REPLICAS, guarded};
use crate::journal::{Journal, Life};
use crate::programs::Programs;
use crate::spread::Spread;
use minimum::{Minimum, Steps};

/// Before each handover: the new one waits for its turn by then.
const SETTLE: Duration = Duration::from_millis(1500);
/// A child that has not ended so long after the next one's start counts as that much overlap.
const LONG_ENOUGH: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(1);
/// As long for both.
const LEASE_SECONDS: &str = "15";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Soloist,
    EtcdctlLock,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Soloist => "soloist",
            Self::EtcdctlLock => "etcdctl lock",
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    Killed,
    Frozen,
    CutOff,
}

impl Fault {
    const ALL: [Self; 3] = [Self::Killed, Self::Frozen, Self::CutOff];

    const fn name(self) -> &'static str {
        match self {
            Self::Killed => "killed",
            Self::Frozen => "frozen",
            Self::CutOff => "cut off",
        }
    }
}

pub(crate) async fn measure(programs: &Programs, handovers: u32) -> anyhow::Result<Value> {
    let etcd = EtcdCluster::start(1, EtcdTransport::Plain).context("an etcd")?;
    let mut groups = Vec::new();
    for kind in [Kind::Soloist, Kind::EtcdctlLock] {
        groups.push(Group::start(programs, &etcd, kind).await?);
    }
    let mut bare = Minimum::start(programs, &etcd).await?;
    let mut steps = Vec::new();
    let mut gaps = [Vec::new(), Vec::new()];
    for round in 0..handovers {
        // Who comes first changes.
        let mut order = [0, 1];
        order.rotate_left(round as usize % 2);
        for n in order {
            sleep(SETTLE).await;
            gaps[n].push(groups[n].hand_over().await?);
        }
        sleep(SETTLE).await;
        steps.push(bare.hand_over().await?);
    }
    drop(bare);
    println!("\nIn etcd, three replicas: old child's exit -> next child's start, ms");
    println!("                     n   median      p95    worst   overlaps");
    let mut figures = Map::new();
    for (group, gaps) in groups.iter().zip(&gaps) {
        let (name, spread) = (group.kind.name(), Spread::of(gaps.iter().copied()));
        let overlaps = gaps.iter().filter(|gap| **gap < 0).count();
        println!("{} {overlaps:>10}", spread.row(name, gaps.len()));
        figures.insert(
            name.to_owned(),
            json!({"handover_ms": spread.json(), "overlaps": overlaps}),
        );
    }
    let whole = Spread::of(steps.iter().map(Steps::whole));
    println!("{} {:>10}", whole.row("bare minimum", steps.len()), 0);
    figures.insert("minimum".into(), json!({"handover_ms": whole.json()}));
    let medians = [
        Spread::of(steps.iter().map(|s| s.end)),
        Spread::of(steps.iter().map(|s| s.release)),
        Spread::of(steps.iter().map(|s| s.takeover)),
        Spread::of(steps.iter().map(|s| s.start)),
    ];
    let [end, release, takeover, start] = medians.map(|spread| spread.median);
    println!(
        "of the bare minimum: the end is known {end:.2}, the release is told {release:.2}, the takeover is answered {takeover:.2}, the child runs {start:.2}"
    );
    drop(groups);
    println!(
        "\nOld and new child at once after a fault of the leading replica, s (lease and TTL {LEASE_SECONDS} s)"
    );
    println!(
        "                     {}",
        Fault::ALL.map(|f| format!("{:>10}", f.name())).concat()
    );
    for kind in [Kind::Soloist, Kind::EtcdctlLock] {
        let mut seconds = Vec::new();
        for fault in Fault::ALL {
            let mut group = Group::start(programs, &etcd, kind).await?;
            sleep(SETTLE).await;
            seconds.push(group.suffer(fault).await?);
        }
        let row: String = seconds.iter().map(|s| format!("{s:>10.1}")).collect();
        println!("{:<20} {row}", kind.name());
        let by_fault = Fault::ALL.iter().zip(&seconds);
        let by_fault: Map<_, _> = by_fault
            .map(|(f, s)| (f.name().to_owned(), json!(s)))
            .collect();
        figures[kind.name()]["overlap_s"] = by_fault.into();
    }
    println!(
        "{:.0} and more: the old child had not ended by then",
        LONG_ENOUGH.as_secs_f64()
    );
    Ok(figures.into())
}

/// Replicas of one kind with a lock of their own.
struct Group<'a> {
    programs: &'a Programs,
    etcd: &'a EtcdCluster,
    kind: Kind,
    replicas: Vec<Replica>,
    journal: Journal,
    folder: tempfile::TempDir,
    started: usize,
}

struct Replica {
    name: String,
    process: Child,
    link: Link,
}

impl<'a> Group<'a> {
    async fn start(
        programs: &'a Programs,
        etcd: &'a EtcdCluster,
        kind: Kind,
    ) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("a folder")?;
        let mut group = Self {
            programs,
            etcd,
            kind,
            replicas: Vec::new(),
            journal: Journal::new(folder.path().join("journal")),
            folder,
            started: 0,
        };
        for _ in 0..REPLICAS {
            group.add()?;
        }
        group.led().await?;
        Ok(group)
    }

    fn add(&mut self) -> anyhow::Result<()> {
        self.started += 1;
        let name = format!("replica-{}", self.started);
        let link = Link::to(self.etcd.endpoint(0).parse()?)?;
        let way = link.address().to_string();
        // A lock of this group's alone.
        let lock = self
            .folder
            .path()
            .file_name()
            .context("a name")?
            .to_string_lossy()
            .into_owned();
        let words: Vec<OsString> = match self.kind {
            Kind::Soloist => {
                let store = format!("etcd:{way}/bench");
                let words = [
                    "run",
                    "--store",
                    &store,
                    "--name",
                    &lock,
                    "--identity",
                    &name,
                    "--",
                ];
                words.map(OsString::from).into()
            }
            Kind::EtcdctlLock => {
                let endpoints = format!("--endpoints={way}");
                let ttl = format!("--ttl={LEASE_SECONDS}");
                [&endpoints, "lock", &ttl, &lock].map(OsString::from).into()
            }
        };
        let mut command = match self.kind {
            Kind::Soloist => guarded(&self.programs.soloist),
            Kind::EtcdctlLock => guarded("etcdctl".as_ref()),
        };
        let process = command
            .args(words)
            .arg(&self.programs.child)
            .arg(self.journal.path())
            .arg(&name)
            .env("ETCDCTL_API", "3")
            .env("TMPDIR", self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("starting a replica")?;
        self.replicas.push(Replica {
            name,
            process,
            link,
        });
        Ok(())
    }

    /// The child that runs now.
    async fn led(&self) -> anyhow::Result<Life> {
        let runs = |lives: &[Life]| lives.last().is_some_and(|life| life.end.is_none());
        let lives = self.journal.wait("a leader", PATIENCE, runs).await?;
        lives.last().cloned().context("no life")
    }

    fn leader(&self, life: &Life) -> anyhow::Result<usize> {
        let found = self
            .replicas
            .iter()
            .position(|replica| replica.name == life.replica);
        found.context("the leader is not ours")
    }

    /// Ends the leader in order; from its child's exit to the next one's start. `etcdctl lock` unlocks when its child ends,
    /// and leaves that behind when it is asked to end itself.
    async fn hand_over(&mut self) -> anyhow::Result<i128> {
        let old = self.led().await?;
        let leader = self.leader(&old)?;
        let mut replica = self.replicas.swap_remove(leader);
        let asked = match self.kind {
            Kind::Soloist => replica.process.id(),
            Kind::EtcdctlLock => old.pid,
        };
        signal(asked, Signal::TERM)?;
        let next = self.next_after(&old).await?;
        let lives = self.journal.lives();
        let ended = lives.iter().find(|life| life.pid == old.pid);
        let end = ended
            .and_then(|life| life.end)
            .context("it did not end in order")?;
        let deadline = Instant::now() + PATIENCE;
        while replica.process.try_wait()?.is_none() {
            anyhow::ensure!(Instant::now() < deadline, "{} does not end", replica.name);
            sleep(LOOK).await;
        }
        self.add()?;
        Ok(next.start - end)
    }

    async fn next_after(&self, old: &Life) -> anyhow::Result<Life> {
        let is_next = |life: &&Life| life.pid != old.pid && life.start > old.start;
        let there = |lives: &[Life]| lives.iter().any(|life| is_next(&life));
        let lives = self.journal.wait("the next child", PATIENCE, there).await?;
        lives.iter().find(is_next).cloned().context("no next life")
    }

    /// For how many seconds two children run.
    async fn suffer(&mut self, fault: Fault) -> anyhow::Result<f64> {
        let old = self.led().await?;
        let leader = self.leader(&old)?;
        let replica = &self.replicas[leader];
        match fault {
            Fault::Killed => signal(replica.process.id(), Signal::KILL)?,
            Fault::Frozen => signal(replica.process.id(), Signal::STOP)?,
            Fault::CutOff => replica.link.cut()?,
        }
        let died = async {
            while is_alive(old.pid) {
                sleep(LOOK).await;
            }
            clock::now()
        };
        let next = async {
            let next = self.next_after(&old).await?;
            sleep(LONG_ENOUGH).await;
            anyhow::Ok(next)
        };
        tokio::pin!(died);
        let mut dead = None;
        tokio::pin!(next);
        let next = loop {
            tokio::select! {
                at = &mut died, if dead.is_none() => dead = Some(at),
                next = &mut next => break next?,
            }
        };
        let end = dead.unwrap_or_else(clock::now);
        Ok((end - next.start).max(0) as f64 / 1e9)
    }
}

fn signal(pid: u32, signal: Signal) -> anyhow::Result<()> {
    let pid = i32::try_from(pid)
        .ok()
        .and_then(Pid::from_raw)
        .context("a pid")?;
    Ok(kill_process(pid, signal)?)
}

fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

impl Drop for Group<'_> {
    fn drop(&mut self) {
        for replica in &mut self.replicas {
            let _ = replica.process.kill();
            let _ = replica.process.wait();
        }
        // etcdctl leaves its child behind.
        let ours = self.journal.path().to_string_lossy().into_owned();
        for life in self.journal.lives() {
            let command = fs::read_to_string(format!("/proc/{}/cmdline", life.pid));
            if command.is_ok_and(|command| command.contains(&ours)) {
                let _ = signal(life.pid, Signal::KILL);
            }
        }
    }
}
