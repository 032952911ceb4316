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

use super::board::Condition;
use super::evidence::Evidence;
use super::faults::Fault;
use super::feed::EVERY;
use super::proof::{Current, Proof};
use super::replicas::{NAMES, Replicas, Watched, guard_of, send};

/// Long enough for a loaded machine: whoever takes longer has failed.
const LIMIT: Duration = Duration::from_secs(30);
/// The times are those of the journal, however rarely it is looked at.
const LOOK: Duration = Duration::from_millis(5);
/// A child that has handled so many works.
const SETTLED: u64 = 10;

pub(super) struct Stage {
    begun: Moment,
    replicas: Replicas,
    pub(super) evidence: Evidence,
}

impl Stage {
    pub(super) fn open(folder: &Path) -> anyhow::Result<Self> {
        let begun = clock::now();
        Ok(Self {
            begun,
            replicas: Replicas::new(folder)?,
            evidence: Evidence::open(folder, begun)?,
        })
    }

    pub(super) const fn begun(&self) -> Moment {
        self.begun
    }

    pub(super) fn tell(&mut self, what: &str) {
        self.tell_at(clock::now(), what);
    }

    fn tell_at(&mut self, at: Moment, what: &str) {
        let since = format!("+{:.1}s", at.since(self.begun).as_secs_f64());
        say(&format!("{since:>8}  {what}"));
        self.evidence.board.tell(&since, what);
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
        self.evidence.board.is_under_way(Some(fault));
        let done = self.hurt_and_restore(fault).await;
        self.evidence.board.is_under_way(None);
        done
    }

    async fn hurt_and_restore(&mut self, fault: Fault) -> anyhow::Result<()> {
        let before = self.settled().await?;
        let leader = name_of(&before.author.replica)?;
        let child = Pid::from_raw(before.author.pid.cast_signed()).context("a child's pid")?;
        let watched = Watched::open(child)?;
        // Whatever switched meanwhile did so by itself.
        self.evidence.attribute(None);
        let at = clock::now();
        self.tell_at(at, &format!("{leader} {}", fault.told()));
        let condition = match fault {
            Fault::Kill | Fault::Stop => Condition::Dead,
            Fault::Freeze => Condition::Frozen,
            Fault::CutOff => Condition::CutOff,
            Fault::HandOver | Fault::CrashChild | Fault::KillGuard => Condition::Well,
        };
        self.evidence.set_condition(leader, condition);
        match fault {
            Fault::Kill => send(self.replicas.pid(leader)?, Signal::KILL),
            Fault::HandOver => {}
            Fault::CrashChild => send(child, Signal::KILL),
            Fault::Freeze => send(self.replicas.pid(leader)?, Signal::STOP),
            Fault::CutOff => self.replicas.cut_off(leader)?,
            Fault::KillGuard => send(guard_of(child)?, Signal::KILL),
            Fault::Stop => send(self.replicas.pid(leader)?, Signal::TERM),
        }
        let (replicas, evidence) = (&mut self.replicas, &mut self.evidence);
        let ordered = async {
            match fault {
                Fault::HandOver => replicas.hand_over().await,
                _ => Ok(()),
            }
        };
        let done = async { tokio::try_join!(watched.end(LIMIT), ordered) };
        let (dead, ()) = tokio::select! {
            done = done => done?,
            failed = evidence.keep_looking() => return failed.map(|never| match never {}),
        };
        let after = self.child_after(&before).await?;
        self.tell_at(after.began, &self.switch(&after, at, dead));
        self.restore(fault, leader).await?;
        self.evidence.set_condition(leader, Condition::Well);
        self.settled().await?;
        self.evidence.attribute(Some(fault));
        self.tell(&format!("so far {}", self.evidence.proof().so_far()));
        Ok(())
    }

    fn switch(&self, after: &Current, at: Moment, dead: Moment) -> String {
        let who = &after.author.replica;
        let silence = self
            .evidence
            .proof()
            .switches()
            .last()
            .map(|switch| switch.silence);
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
            Fault::CutOff => {
                self.replicas.reconnect(leader)?;
                self.tell(&format!("{leader} reaches the lease again"));
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

    /// Nothing is done for a while, and nothing may happen.
    pub(super) async fn pause(&mut self, length: Duration) -> anyhow::Result<()> {
        tokio::select! {
            () = sleep(length) => {}
            failed = self.evidence.keep_looking() => return failed.map(|never| match never {}),
        }
        self.evidence.look()?;
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
            self.evidence.look()?;
            if let Some(current) = self
                .evidence
                .proof()
                .current()
                .filter(|current| fits(current))
            {
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
        self.evidence.look()?;
        let proof = self.evidence.proof();
        say("");
        say(proof.summary().trim_end());
        say(&format!(
            "  The feed refused {} consumers for an old token.",
            self.evidence.refused()
        ));
        say("");
        say(table(proof, self.evidence.causes()).trim_end());
        let holds = proof.holds();
        self.evidence.close();
        Ok(holds)
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
