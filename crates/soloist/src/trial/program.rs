//! The program under trial: one run of it, and what is seen of it.

use std::time::Duration;

use anyhow::Context;
use soloist_core::ids::Identity;
use soloist_core::node::TreeEvent;
use soloist_core::time::Moment;
use soloist_elector::clock;
use soloist_process::{Exit, Signal, SpawnError, Supervisor, Tree, TreeEvent as Happening};
use tokio::time::{sleep, timeout};

use super::survivors::{Disposition, Process, below, disposition};
use super::verdicts;
use crate::cli::Health;
use crate::command::command;
use crate::health::Checks;
use crate::notify::{Notice, NotifySocket};
use crate::report::Report;
use crate::settings::Settings;

/// Who is there for so long after the child itself has ended was left behind; who got the signal with it is about to end.
const STILL_THERE: Duration = Duration::from_millis(500);

/// What a killed tree may take, disks and debuggers aside.
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// Nobody decides about this run but the trial.
const UNTIL_TOLD: Duration = Duration::from_secs(24 * 60 * 60);

/// A run.
pub(super) struct Program {
    tree: Tree,
    notify: NotifySocket,
    checks: Checks,
    stop_signal: Signal,
    begun: Moment,
    said: Said,
}

/// What it has said itself.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Said {
    pub(super) ready: bool,
    pub(super) alive: bool,
    pub(super) stopping: bool,
}

/// How a start went.
#[derive(Debug)]
pub(super) enum Start {
    CannotRun(SpawnError),
    Ended { exit: Exit, after: Duration },
    NotUp { waited: Duration },
    Up(Up),
}

#[derive(Debug)]
pub(super) struct Up {
    pub(super) after: Duration,
    /// Though nobody had asked for it.
    pub(super) said_ready: bool,
}

/// How it is to end.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    /// The stop signal, and then so long.
    Stop(Duration),
    /// The stop signal, and so long until the guard's deadline.
    Loss(Duration),
    Kill,
}

/// How it did end.
#[derive(Debug)]
pub(super) struct Ending {
    /// Of the child itself.
    pub(super) exit: Option<Exit>,
    /// Until the child itself had ended, or was killed.
    pub(super) took: Duration,
    pub(super) killed: bool,
    /// What it meant to do about the stop signal.
    pub(super) disposition: Disposition,
    /// Who was there after the child itself had ended.
    pub(super) left: Vec<Process>,
    /// Who was there after the kill.
    pub(super) immortal: Vec<Process>,
    pub(super) said_stopping: bool,
}

enum Seen {
    Tree(Option<Happening>),
    Check(TreeEvent),
    Nothing,
}

impl Program {
    pub(super) fn start(
        supervisor: &Supervisor,
        settings: &Settings,
        identity: &Identity,
    ) -> anyhow::Result<Self> {
        let notify = NotifySocket::open().context("no socket for the program's notices")?;
        let command = command(settings, identity, Some(&notify))
            .env("SOLOIST_TERM", "1")
            .env("SOLOIST_TOKEN", "1");
        let tree = supervisor.spawn(&command, clock::now() + UNTIL_TOLD)?;
        Ok(Self {
            tree,
            notify,
            checks: Checks::new(settings),
            stop_signal: settings.stop_signal,
            begun: clock::now(),
            said: Said::default(),
        })
    }

    /// Until it is up, and has stayed so for a while.
    pub(super) async fn until_up(&mut self, settings: &Settings, settle: Duration) -> Start {
        let limit = settings.policy.start_limit;
        let up = match timeout(limit, self.until(Until::Up)).await {
            Err(_) => return Start::NotUp { waited: limit },
            Ok(Err(start)) => return start,
            Ok(Ok(())) => clock::now().since(self.begun),
        };
        match timeout(settle, self.until(Until::End)).await {
            Ok(Err(start)) => start,
            Ok(Ok(())) | Err(_) => Start::Up(Up {
                after: up,
                said_ready: self.said.ready,
            }),
        }
    }

    async fn until(&mut self, until: Until) -> Result<(), Start> {
        loop {
            match self.next().await {
                Seen::Tree(Some(Happening::Started { .. })) => {
                    if self.checks.started().is_some() && matches!(until, Until::Up) {
                        return Ok(());
                    }
                }
                Seen::Tree(Some(Happening::SpawnFailed(error))) => {
                    return Err(Start::CannotRun(error));
                }
                Seen::Tree(Some(Happening::Exited(exit))) => {
                    let after = clock::now().since(self.begun);
                    self.tree.kill();
                    self.until_empty().await;
                    return Err(Start::Ended { exit, after });
                }
                Seen::Check(TreeEvent::Ready) if matches!(until, Until::Up) => return Ok(()),
                Seen::Tree(_) | Seen::Check(_) | Seen::Nothing => {}
            }
        }
    }

    /// Its health check, once.
    pub(super) async fn checks(&mut self, settings: &Settings, report: &mut Report) {
        let passed = match &settings.health {
            Health::None => return,
            Health::Probe(probe) => probe.look(settings.health_timeout).await,
            Health::Notify => {
                let said = async {
                    while !self.said.alive {
                        self.next().await;
                    }
                };
                let interval = settings.health_interval;
                timeout(interval, said).await.map_err(|_| {
                    format!(
                        "it did not say WATCHDOG=1 within {}",
                        verdicts::rounded(interval)
                    )
                })
            }
        };
        verdicts::health(passed, report);
    }

    pub(super) async fn end(&mut self, end: End) -> Ending {
        let disposition = disposition(self.tree.child_pid(), self.stop_signal);
        let begun = clock::now();
        let mut patience = None;
        match end {
            End::Stop(limit) => {
                self.tree.stop(self.stop_signal);
                patience = Some(begun + limit);
            }
            End::Loss(grace) => {
                self.tree.set_deadline(begun + grace);
                self.tree.stop(self.stop_signal);
            }
            End::Kill => self.tree.kill(),
        }
        let mut ending = Ending {
            exit: None,
            took: Duration::ZERO,
            killed: matches!(end, End::Kill),
            disposition,
            left: Vec::new(),
            immortal: Vec::new(),
            said_stopping: false,
        };
        let mut look_at = None;
        let mut kill_limit = matches!(end, End::Kill).then_some(begun + KILL_LIMIT);
        loop {
            tokio::select! {
                seen = self.next() => match seen {
                    Seen::Tree(Some(Happening::Exited(exit))) => {
                        ending.exit = Some(exit);
                        ending.took = clock::now().since(begun);
                        look_at = Some(clock::now() + STILL_THERE);
                    }
                    Seen::Tree(Some(Happening::Empty) | None) => break,
                    Seen::Tree(_) | Seen::Check(_) | Seen::Nothing => {}
                },
                () = until(look_at) => {
                    look_at = None;
                    ending.left = below(self.tree.guard_pid());
                }
                () = until(patience) => {
                    patience = None;
                    ending.killed = true;
                    ending.took = clock::now().since(begun);
                    self.tree.kill();
                    kill_limit = Some(clock::now() + KILL_LIMIT);
                }
                () = until(kill_limit) => {
                    ending.immortal = below(self.tree.guard_pid());
                    break;
                }
            }
        }
        // The guard kills at its deadline, and does not say so.
        if let (End::Loss(_), Some(Exit::Signal(signal))) = (end, ending.exit) {
            ending.killed = i32::from(signal) == Signal::KILL.number();
        }
        ending.said_stopping = self.said.stopping;
        ending
    }

    async fn until_empty(&mut self) {
        let empty = async {
            while !matches!(self.next().await, Seen::Tree(Some(Happening::Empty) | None)) {}
        };
        let _ = timeout(KILL_LIMIT, empty).await;
    }

    async fn next(&mut self) -> Seen {
        let guard = self.tree.guard_pid();
        tokio::select! {
            happening = self.tree.next_event() => Seen::Tree(happening),
            Some(event) = self.checks.next() => Seen::Check(event),
            notices = self.notify.next(guard) => self.noticed(notices.unwrap_or_default()),
        }
    }

    fn noticed(&mut self, notices: Vec<Notice>) -> Seen {
        let mut seen = Seen::Nothing;
        for notice in notices {
            match notice {
                Notice::Ready => self.said.ready = true,
                Notice::Alive => self.said.alive = true,
                Notice::Stopping => self.said.stopping = true,
                Notice::Status(_) | Notice::TellOfEnding => continue,
            }
            if let Some(event) = self.checks.notice(notice) {
                seen = Seen::Check(event);
            }
        }
        seen
    }
}

#[derive(Clone, Copy)]
enum Until {
    Up,
    End,
}

async fn until(moment: Option<Moment>) {
    match moment {
        Some(moment) => sleep(moment.since(clock::now())).await,
        None => std::future::pending().await,
    }
}
