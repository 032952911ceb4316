//! What the parts of a child say of themselves, and what becomes of it: the child's readiness, status and heartbeats.

use std::convert::Infallible;
use std::fmt::Write;
use std::future::{Future, pending};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
#[cfg(feature = "source")]
use tokio::sync::watch;
use tokio::time::Instant;

#[cfg(feature = "source")]
use crate::delivery::{Progress, State};
use crate::shutdown::Shutdown;
use crate::worker::Worker;

/// All parts of a child. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Reports {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    parts: Mutex<Vec<Report>>,
    changed: Notify,
}

#[derive(Debug)]
struct Report {
    name: String,
    is_ready: bool,
    state: String,
    work: Work,
}

/// What the watchdog looks at.
#[derive(Debug)]
enum Work {
    /// It has nothing to do, or does not say.
    Idle,
    /// It has been at the same thing since then.
    Busy(Instant),
    /// It counts what it does.
    #[cfg(feature = "source")]
    Counted {
        progress: Arc<Progress>,
        /// How many were done when we last saw a change, or nothing to do, and when that was.
        handled: u64,
        since: Instant,
    },
}

impl Work {
    /// Whether it goes on. Has to be asked now and then: what is counted is only seen here.
    fn is_well(&mut self, now: Instant, limit: Duration) -> bool {
        match self {
            Self::Idle => true,
            Self::Busy(since) => now - *since < limit,
            #[cfg(feature = "source")]
            Self::Counted {
                progress,
                handled,
                since,
            } => {
                let (received, done) = (progress.received(), progress.handled());
                if done != *handled || received <= done {
                    (*handled, *since) = (done, now);
                }
                now - *since < limit
            }
        }
    }
}

impl Reports {
    pub(crate) fn new(names: impl Iterator<Item = String>) -> Self {
        let report = |name| Report {
            name,
            is_ready: false,
            state: "starting".to_owned(),
            work: Work::Idle,
        };
        Self {
            shared: Arc::new(Shared {
                parts: Mutex::new(names.map(report).collect()),
                changed: Notify::new(),
            }),
        }
    }

    pub(crate) fn reporter(&self, number: usize) -> Reporter {
        Reporter {
            reports: self.clone(),
            number,
        }
    }

    /// Whether no part has been stuck for so long.
    pub(crate) fn are_well(&self, limit: Duration) -> bool {
        let now = Instant::now();
        let mut parts = self.lock();
        // All of them are asked.
        let mut are_well = true;
        for part in parts.iter_mut() {
            are_well &= part.work.is_well(now, limit);
        }
        are_well
    }

    /// Says it to soloist as it changes: ready when all are, and a status that names each.
    pub(crate) async fn tell(&self, worker: &Worker) -> Infallible {
        let mut is_told = false;
        loop {
            let changed = self.shared.changed.notified();
            let (is_ready, status) = self.summary();
            if is_ready && !is_told {
                is_told = true;
                worker.ready();
            }
            worker.status(&status);
            changed.await;
        }
    }

    fn summary(&self) -> (bool, String) {
        let parts = self.lock();
        let mut status = String::new();
        for part in parts.iter() {
            let comma = if status.is_empty() { "" } else { ", " };
            let _ = write!(status, "{comma}{}: {}", part.name, part.state);
        }
        (parts.iter().all(|part| part.is_ready), status)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Report>> {
        let parts = self.shared.parts.lock();
        parts.unwrap_or_else(PoisonError::into_inner)
    }
}

/// One part's way to say something.
#[derive(Clone, Debug)]
pub(crate) struct Reporter {
    reports: Reports,
    number: usize,
}

impl Reporter {
    pub(crate) fn name(&self) -> String {
        self.reports.lock()[self.number].name.clone()
    }

    pub(crate) fn ready(&self) {
        self.change(|part| part.is_ready = true);
    }

    /// How it is, in a few words.
    pub(crate) fn state(&self, text: impl Into<String>) {
        self.change(|part| part.state = text.into());
    }

    /// It has ended, and keeps neither readiness nor heartbeats from the others.
    pub(crate) fn ended(&self) {
        self.change(|part| {
            part.is_ready = true;
            part.state = "ended".to_owned();
            part.work = Work::Idle;
        });
    }

    pub(crate) fn idle(&self) {
        self.reports.lock()[self.number].work = Work::Idle;
    }

    pub(crate) fn busy(&self) {
        self.reports.lock()[self.number].work = Work::Busy(Instant::now());
    }

    #[cfg(feature = "source")]
    pub(crate) fn watch_progress(&self, progress: Arc<Progress>) {
        self.reports.lock()[self.number].work = Work::Counted {
            handled: progress.handled(),
            progress,
            since: Instant::now(),
        };
    }

    /// Says the states of a stream, for as long as it is asked.
    #[cfg(feature = "source")]
    pub(crate) async fn follow(&self, mut states: watch::Receiver<State>) -> Infallible {
        loop {
            let state = states.borrow_and_update().clone();
            if state == State::Streaming {
                self.ready();
            }
            self.state(state.to_string());
            if states.changed().await.is_err() {
                pending::<()>().await;
            }
        }
    }

    /// Waits for the work's end, and says when it has come to its drain.
    pub(crate) async fn draining<T>(
        &self,
        shutdown: &Shutdown,
        work: impl Future<Output = T>,
    ) -> T {
        let tell = async {
            shutdown.begun().await;
            self.state("draining");
            pending::<Infallible>().await
        };
        let mut work = pin!(work);
        tokio::select! {
            biased;
            done = &mut work => done,
            never = tell => match never {},
        }
    }

    fn change(&self, change: impl FnOnce(&mut Report)) {
        change(&mut self.reports.lock()[self.number]);
        self.reports.shared.changed.notify_one();
    }
}
