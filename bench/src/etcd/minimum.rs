//! The least that a handover in etcd can take: the end of the child is noticed, one write releases, one watch event tells of it, one write takes over,
//! one child is started.
//!
//! Done by hand with soloist's own client, over connections that are open; nobody decides anything, and nobody else runs.

use std::process::Stdio;

use anyhow::Context;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use rustix::process::{Pid, Signal, kill_process};
use soloist_elector::core::election::Purpose;
use soloist_elector::core::ids::Identity;
use soloist_elector::core::orders::Orders;
use soloist_elector::core::record::Record;
use soloist_elector::etcd::{EtcdStore, Options};
use soloist_elector::{LeaseStore, Stored, WatchEnded};
use testbed::{EtcdCluster, Link};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::clock;
use crate::group::PATIENCE;
use crate::journal::{Journal, Life};
use crate::programs::Programs;

type State = Stored<<EtcdStore as LeaseStore>::Carried>;

/// One bare handover, in nanoseconds.
pub(super) struct Steps {
    /// From the old child's last word to its end being known.
    pub(super) end: i128,
    /// From there until the watch tells of the release.
    pub(super) release: i128,
    /// From there until the takeover is answered.
    pub(super) takeover: i128,
    /// From there to the next child's first word.
    pub(super) start: i128,
}

impl Steps {
    pub(super) const fn whole(&self) -> i128 {
        self.end + self.release + self.takeover + self.start
    }
}

pub(super) struct Minimum<'a> {
    programs: &'a Programs,
    holder: EtcdStore,
    waiting: EtcdStore,
    changes: BoxStream<'static, Result<State, WatchEnded>>,
    lease: State,
    child: Child,
    journal: Journal,
    _links: [Link; 2],
    _folder: tempfile::TempDir,
}

impl<'a> Minimum<'a> {
    pub(super) async fn start(programs: &'a Programs, etcd: &EtcdCluster) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("a folder")?;
        let journal = Journal::new(folder.path().join("journal"));
        let link = || Ok::<_, anyhow::Error>(Link::to(etcd.endpoint(0).parse()?)?);
        let links = [link()?, link()?];
        let store = |link: &Link| {
            let address = format!("{}/bench", link.address()).parse()?;
            anyhow::Ok(EtcdStore::new(Options::lease(address, "minimum")))
        };
        let (holder, waiting) = (store(&links[0])?, store(&links[1])?);
        let missing = holder.read().await?;
        let lease = holder
            .write(&missing, &held(true), Purpose::Acquire)
            .await?;
        let changes = prepared(&waiting).await?;
        let child = start_child(programs, &journal)?;
        let minimum = Self {
            programs,
            holder,
            waiting,
            changes,
            lease,
            child,
            journal,
            _links: links,
            _folder: folder,
        };
        minimum.life().await?;
        Ok(minimum)
    }

    pub(super) async fn hand_over(&mut self) -> anyhow::Result<Steps> {
        let old = self.life().await?;
        let pid = Pid::from_raw(i32::try_from(old.pid)?).context("a pid")?;
        kill_process(pid, Signal::TERM)?;
        timeout(PATIENCE, self.child.wait()).await??;
        let ended = clock::now();
        let free = held(false);
        let release = self.holder.write(&self.lease, &free, Purpose::Release);
        let takeover = async {
            let seen = loop {
                let seen = self.changes.next().await.context("the watch has ended")??;
                if seen.record.as_ref().is_some_and(|r| r.holder.is_none()) {
                    break seen;
                }
            };
            let told = clock::now();
            let ours = held(true);
            let taken = self.waiting.write(&seen, &ours, Purpose::Acquire);
            let taken = taken.await?;
            let answered = clock::now();
            let child = start_child(self.programs, &self.journal)?;
            Ok((taken, child, told, answered))
        };
        // The takeover does not wait for the answer to the release.
        let both = async {
            let (released, taken) = tokio::join!(release, takeover);
            released?;
            taken
        };
        let done: anyhow::Result<_> = timeout(PATIENCE, both).await.context("it does not end")?;
        let (told, answered);
        (self.lease, self.child, told, answered) = done?;
        let next = self.life().await?;
        let lives = self.journal.lives();
        let end = lives.iter().find(|life| life.pid == old.pid);
        let end = end.and_then(|life| life.end).context("no end")?;
        std::mem::swap(&mut self.holder, &mut self.waiting);
        self.changes = prepared(&self.waiting).await?;
        Ok(Steps {
            end: ended - end,
            release: told - ended,
            takeover: answered - told,
            start: next.start - answered,
        })
    }

    /// The present child's.
    async fn life(&self) -> anyhow::Result<Life> {
        let pid = self.child.id().context("the child has ended")?;
        let ours = |lives: &[Life]| lives.iter().find(|life| life.pid == pid).cloned();
        let there = |lives: &[Life]| ours(lives).is_some();
        let lives = self.journal.wait("the bare child", PATIENCE, there).await?;
        ours(&lives).context("no life")
    }
}

/// Opens the watch, and the connection for the next write.
async fn prepared(
    waiting: &EtcdStore,
) -> anyhow::Result<BoxStream<'static, Result<State, WatchEnded>>> {
    let seen = waiting.read().await?;
    let mut changes = waiting.watch(&seen).boxed();
    // It is opened when it is first asked.
    let nothing = timeout(std::time::Duration::from_millis(300), changes.next()).await;
    anyhow::ensure!(nothing.is_err(), "a change that nobody made: {nothing:?}");
    Ok(changes)
}

fn held(held: bool) -> Record {
    Record {
        holder: held.then(|| Identity::found("minimum")).flatten(),
        duration_seconds: Some(15),
        transitions: 0,
        signature: None,
        orders: Orders::NONE,
    }
}

fn start_child(programs: &Programs, journal: &Journal) -> anyhow::Result<Child> {
    Command::new(&programs.child)
        .arg(journal.path())
        .arg("minimum")
        .arg(std::process::id().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("starting the child")
}
