//! The story: what is done to the replicas, what they do about it, and what it cost.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal};
use soloist_core::time::Moment;
use soloist_elector::clock;
use tokio::time::sleep;

use super::faults::Fault;
use super::feed::{EVERY, Feed};
use super::journal::Reader;
use super::proof::{Current, Proof};
use super::replicas::{FEED, JOURNAL, NAMES, Replicas, Watched, guard_of, send};

/// Long enough for a loaded machine: whoever takes longer has failed.
const LIMIT: Duration = Duration::from_secs(30);
/// The times are those of the journal, however rarely it is looked at.
const LOOK: Duration = Duration::from_millis(5);
/// A child that has handled so many works.
const SETTLED: u64 = 10;

pub(super) struct Stage {
    begun: Moment,
    replicas: Replicas,
    feed: Feed,
    reader: Reader,
    proof: Proof,
    /// The fault that each switch came from, as far as there was one.
    causes: Vec<Option<Fault>>,
}

impl Stage {
    pub(super) fn open(folder: &Path) -> anyhow::Result<Self> {
        Ok(Self {
            begun: clock::now(),
            replicas: Replicas::new(folder)?,
            feed: Feed::serve(&folder.join(FEED))?,
            reader: Reader::open(&folder.join(JOURNAL)).context("the journal")?,
            proof: Proof::default(),
            causes: Vec::new(),
        })
    }

    pub(super) const fn begun(&self) -> Moment {
        self.begun
    }

    pub(super) fn tell(&self, what: &str) {
        self.tell_at(clock::now(), what);
    }

    fn tell_at(&self, at: Moment, what: &str) {
        let since = at.since(self.begun).as_secs_f64();
        say(&format!("{:>8}  {what}", format!("+{since:.1}s")));
    }

    pub(super) async fn begin(&mut self) -> anyhow::Result<()> {
        for name in NAMES {
            self.replicas.start(name)?;
        }
        let first = self.settled().await?;
        let Current { author, began, .. } = first;
        self.tell_at(
            began,
            &format!(
                "replicas {} run; {} leads, its child consumes the feed (token {})",
                NAMES.join(", "),
                author.replica,
                author.token
            ),
        );
        Ok(())
    }

    /// Does it, waits until a child works again, and restores what was hurt.
    pub(super) async fn hurt(&mut self, fault: Fault) -> anyhow::Result<()> {
        let before = self.settled().await?;
        let leader = name_of(&before.author.replica)?;
        let child = Pid::from_raw(before.author.pid.cast_signed()).context("a child's pid")?;
        let watched = Watched::open(child)?;
        // Whatever switched meanwhile did so by itself.
        self.causes.resize(self.proof.switches().len(), None);
        let at = clock::now();
        self.tell_at(at, &format!("{leader} {}", fault.told()));
        match fault {
            Fault::Kill => send(self.replicas.pid(leader)?, Signal::KILL),
            Fault::HandOver => {}
            Fault::CrashChild => send(child, Signal::KILL),
            Fault::Freeze => send(self.replicas.pid(leader)?, Signal::STOP),
            Fault::KillGuard => send(guard_of(child)?, Signal::KILL),
            Fault::Stop => send(self.replicas.pid(leader)?, Signal::TERM),
        }
        let ordered = async {
            match fault {
                Fault::HandOver => self.replicas.hand_over().await,
                _ => Ok(()),
            }
        };
        let (dead, ()) = tokio::try_join!(watched.end(LIMIT), ordered)?;
        let after = self.child_after(&before).await?;
        self.tell_at(after.began, &self.switch(&after, at, dead));
        self.restore(fault, leader).await?;
        self.settled().await?;
        self.causes.resize(self.proof.switches().len(), Some(fault));
        self.tell(&format!("so far {}", self.proof.so_far()));
        Ok(())
    }

    fn switch(&self, after: &Current, at: Moment, dead: Moment) -> String {
        let who = &after.author.replica;
        let silence = self.proof.switches().last().map(|switch| switch.silence);
        format!(
            "its child was dead after {}; {who} leads and its child began after {} (token {}); without a child for at most {}",
            shown(dead.since(at)),
            shown(after.began.since(at)),
            after.author.token,
            silence.map_or_else(|| "?".into(), shown),
        )
    }

    async fn restore(&mut self, fault: Fault, leader: &'static str) -> anyhow::Result<()> {
        match fault {
            Fault::HandOver | Fault::CrashChild | Fault::KillGuard => {}
            Fault::Freeze => {
                send(self.replicas.pid(leader)?, Signal::CONT);
                self.tell(&format!("{leader} is thawed (SIGCONT)"));
            }
            Fault::Kill => {
                self.replicas.wait_end(leader).await?;
                self.replicas.start(leader)?;
                self.tell(&format!("{leader} is started again"));
            }
            Fault::Stop => {
                let status = self.replicas.wait_end(leader).await?;
                let how = match status.exit_status() {
                    Some(code) => format!("exited with {code}"),
                    None => "was killed".into(),
                };
                self.replicas.start(leader)?;
                self.tell(&format!("{leader} {how} and is started again"));
            }
        }
        Ok(())
    }

    pub(super) fn look(&mut self) -> anyhow::Result<()> {
        for line in self.reader.lines().context("the journal")? {
            self.proof.add(line);
        }
        Ok(())
    }

    /// Nothing is done for a while, and nothing may happen.
    pub(super) async fn pause(&mut self, length: Duration) -> anyhow::Result<()> {
        sleep(length).await;
        self.look()?;
        self.replicas.check()
    }

    /// The child that works.
    async fn settled(&mut self) -> anyhow::Result<Current> {
        self.child("a child that works", |current| current.handled >= SETTLED)
            .await
    }

    async fn child_after(&mut self, before: &Current) -> anyhow::Result<Current> {
        let began = before.began;
        self.child("the next child", |current| current.began > began)
            .await
    }

    async fn child(
        &mut self,
        what: &str,
        fits: impl Fn(&Current) -> bool,
    ) -> anyhow::Result<Current> {
        let deadline = clock::now() + LIMIT;
        loop {
            self.look()?;
            if let Some(current) = self.proof.current().filter(|current| fits(current)) {
                return Ok(current.clone());
            }
            if clock::now() > deadline {
                let logs = NAMES.map(|name| format!("{name}: {}", self.replicas.log(name)));
                bail!("{what} has not come in {LIMIT:?}\n{}", logs.join("\n"));
            }
            sleep(LOOK).await;
        }
    }

    pub(super) async fn end(&mut self) -> anyhow::Result<()> {
        self.replicas.end().await
    }

    /// The proof and the table; whether it holds.
    pub(super) fn sum_up(&mut self) -> anyhow::Result<bool> {
        self.look()?;
        say("");
        say(self.proof.summary().trim_end());
        say(&format!(
            "  The feed refused {} consumers for an old token.",
            self.feed.refused()
        ));
        say("");
        say(table(&self.proof, &self.causes).trim_end());
        Ok(self.proof.holds())
    }
}

fn table(proof: &Proof, causes: &[Option<Fault>]) -> String {
    let mut text = format!(
        "{:<16}{:<6}{:<6}{:<15}without a child, at most (messages come every {})\n",
        "switch",
        "from",
        "to",
        "token",
        shown(EVERY)
    );
    let causes = causes.iter().copied().chain(std::iter::repeat(None));
    for (switch, cause) in proof.switches().iter().zip(causes) {
        let _ = writeln!(
            text,
            "{:<16}{:<6}{:<6}{:<15}{}",
            cause.map_or("-", Fault::name),
            switch.from,
            switch.to,
            switch.token,
            shown(switch.silence)
        );
    }
    text
}

fn name_of(replica: &str) -> anyhow::Result<&'static str> {
    let name = NAMES.into_iter().find(|name| *name == replica);
    name.with_context(|| format!("there is no replica {replica:?}"))
}

fn shown(length: Duration) -> String {
    match length.as_secs() {
        0 => format!("{} ms", length.as_millis()),
        _ => format!("{:.2} s", length.as_secs_f64()),
    }
}

/// Whoever closes it early, as `head` does, has enough.
pub(super) fn say(line: &str) {
    let _ = writeln!(std::io::stdout(), "{line}");
}
