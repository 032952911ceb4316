//! `soloist demo`: three replicas of this program on one machine, what can hurt them, and the proof that there was never a second child.

mod board;
mod child;
mod evidence;
mod faults;
mod feed;
mod folder;
mod journal;
mod keys;
mod proof;
mod replicas;
mod site;
mod story;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Subcommand};
use soloist_core::time::Moment;
use soloist_elector::clock;
use soloist_process::{HeldSignals, Signal};
use tokio::sync::mpsc;
use tokio::task::LocalSet;

use crate::duration::parse as duration;
use crate::signals::{self, Signalled};
use faults::Fault;
use folder::Folder;
use keys::Keys;
use site::{Door, Site, Wish};
use story::{Stage, say};

const DOES_NOT_HOLD: u8 = 1;

/// Between two faults, if there is time.
const PAUSE: Duration = Duration::from_millis(1500);
/// And if not: a round of them fits into so many parts.
const PARTS: u32 = 24;

/// Durations are written as 15s, 750ms or 1m30s.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// End by itself after this long; with --headless not before each fault has come once [default: until Ctrl-C]
    #[arg(long = "for", value_parser = some_time, value_name = "DURATION")]
    length: Option<Duration>,
    /// Hurt the replicas by itself, one fault after the other, instead of by buttons on a page and by keys on the terminal
    #[arg(long)]
    headless: bool,
    /// The page's port, on 127.0.0.1 [default: any that is free]
    #[arg(long, conflicts_with = "headless", value_name = "PORT")]
    port: Option<u16>,
}

fn some_time(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("in no time nothing can be shown: write it as 30s".into()),
        length => Ok(length),
    }
}

/// What the demo starts of this program.
#[derive(Debug, Args)]
pub(crate) struct DemoPartArgs {
    #[command(subcommand)]
    part: Part,
}

#[derive(Debug, Subcommand)]
enum Part {
    /// One of the replicas
    Replica { folder: PathBuf, name: String },
    /// The program that they run
    Child { folder: PathBuf },
}

impl DemoPartArgs {
    pub(crate) async fn run(self, held: HeldSignals) -> anyhow::Result<()> {
        match self.part {
            Part::Replica { folder, name } => {
                held.release([]);
                Err(replicas::become_replica(&folder, &name))
            }
            Part::Child { folder } => child::consume(&folder, held).await,
        }
    }
}

impl DemoArgs {
    /// The exit code. An error is that there was no demo.
    pub(crate) async fn run(&self, held: HeldSignals) -> anyhow::Result<u8> {
        LocalSet::new().run_until(self.show(held)).await
    }

    async fn show(&self, held: HeldSignals) -> anyhow::Result<u8> {
        let mut signals = signals::listen(Signal::TERM, held)?;
        let folder = Folder::make().with_context(|| {
            format!(
                "no temporary folder in {}: set TMPDIR to one that can be written to",
                std::env::temp_dir().display()
            )
        })?;
        let door = match self.headless {
            true => None,
            false => Some(Door::open(self.port.unwrap_or(0))?),
        };
        let mut stage = Stage::open(folder.path())?;
        let mut faults = Faults::new(self, door, &stage)?;
        let told = tokio::select! {
            told = tell(&mut stage, &mut faults) => told,
            signal = interruption(&mut signals) => {
                stage.tell(&format!("{signal}: everybody is stopped"));
                Ok(())
            }
        };
        let site = faults.end();
        let ended = stage.end().await;
        let holds = stage.sum_up();
        if let Some(site) = site {
            site.end().await;
        }
        drop(folder);
        let failures: Vec<_> = [told, ended].into_iter().filter_map(Result::err).collect();
        for failure in &failures {
            say(&format!("The demo failed: {failure:#}"));
        }
        Ok(match holds? && failures.is_empty() {
            true => 0,
            false => DOES_NOT_HOLD,
        })
    }
}

async fn tell(stage: &mut Stage, faults: &mut Faults) -> anyhow::Result<()> {
    stage.begin().await?;
    while let Some(fault) = faults.next(stage).await? {
        stage.hurt(fault).await?;
    }
    stage.tell("everybody is stopped");
    Ok(())
}

/// Where the faults come from.
enum Faults {
    Schedule {
        done: usize,
        pause: Duration,
        length: Option<Duration>,
    },
    People {
        /// If there is a terminal.
        keys: Option<Keys>,
        site: Site,
        length: Option<Duration>,
    },
}

impl Faults {
    fn new(args: &DemoArgs, door: Option<Door>, stage: &Stage) -> anyhow::Result<Self> {
        let length = args.length;
        let Some(door) = door else {
            return Ok(Self::Schedule {
                done: 0,
                pause: length.map_or(PAUSE, |length| PAUSE.min(length / PARTS)),
                length,
            });
        };
        say(&format!("page: {}", door.url()));
        let keys = Keys::open()?;
        if keys.is_some() {
            let choices = Fault::ALL.map(|fault| format!("{} {}", fault.key(), fault.name()));
            say(&format!("keys: {}, q quit", choices.join(", ")));
        }
        Ok(Self::People {
            keys,
            site: door.serve(stage.evidence.board.reader())?,
            length,
        })
    }

    /// The terminal is as it was; the page is still there.
    fn end(self) -> Option<Site> {
        match self {
            Self::Schedule { .. } => None,
            Self::People { site, .. } => Some(site),
        }
    }

    async fn next(&mut self, stage: &mut Stage) -> anyhow::Result<Option<Fault>> {
        match self {
            Self::Schedule {
                done,
                pause,
                length,
            } => {
                stage.pause(*pause).await?;
                let is_over = clock::now() >= end(stage, *length);
                if is_over && *done >= Fault::ALL.len() {
                    return Ok(None);
                }
                let fault = Fault::ALL[*done % Fault::ALL.len()];
                *done += 1;
                Ok(Some(fault))
            }
            Self::People { keys, site, length } => {
                let left = end(stage, *length).since(clock::now());
                let wish = tokio::select! {
                    wish = wish(keys, site) => wish,
                    () = tokio::time::sleep(left) => Wish::End,
                    failed = stage.evidence.keep_looking() => return failed.map(|never| match never {}),
                };
                Ok(match wish {
                    Wish::Hurt(fault) => Some(fault),
                    Wish::End => None,
                })
            }
        }
    }
}

async fn wish(keys: &mut Option<Keys>, site: &mut Site) -> Wish {
    loop {
        let key = async {
            match keys {
                Some(keys) => keys.next().await,
                None => std::future::pending().await,
            }
        };
        let key = tokio::select! {
            key = key => key,
            wish = site.next() => return wish.unwrap_or(Wish::End),
        };
        match key {
            None | Some('q') => return Wish::End,
            Some(key) => {
                if let Some(fault) = Fault::ALL.into_iter().find(|f| f.key() == key) {
                    return Wish::Hurt(fault);
                }
            }
        }
    }
}

fn end(stage: &Stage, length: Option<Duration>) -> Moment {
    length.map_or(Moment::NEVER, |length| stage.begun() + length)
}

/// The signal that asks to stop.
async fn interruption(signals: &mut mpsc::UnboundedReceiver<Signalled>) -> Signal {
    loop {
        match signals.recv().await {
            Some(Signalled::Stop(signal)) => return signal,
            Some(Signalled::PassOn(_)) => {}
            None => std::future::pending().await,
        }
    }
}
