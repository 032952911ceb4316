//! Signals and the deadline, on a thread of their own: whatever blocks the runtime's threads does not keep this process.

use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::Duration;
use std::{io, process, thread};

use soloist_core::time::Human;
use tokio::runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use tracing::{error, info, warn};

use super::Worker;

/// After the process's time: for the end in order, which begins only then if the time was not enough.
const GRACE: Duration = Duration::from_secs(2);
/// A log that nobody reads keeps us no longer than this.
const TELLING: Duration = Duration::from_millis(100);
/// As [`Worker::finish`] has it for a shutdown that was cut.
const CUT: i32 = 1;

impl Worker {
    /// Begins to listen to SIGTERM and SIGINT, and to watch over the end.
    pub(super) fn obey_signals(&self) -> io::Result<()> {
        let worker = self.clone();
        let (tell, told) = mpsc::sync_channel(1);
        let thread = thread::Builder::new().name("soloist-signals".to_owned());
        thread.spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build();
            let listening = runtime.and_then(|runtime| {
                let signals = runtime.block_on(async { Signals::listen() })?;
                Ok((runtime, signals))
            });
            match listening {
                Ok((runtime, signals)) => {
                    let _ = tell.send(Ok(()));
                    let obey = worker.clone().obey(signals);
                    runtime.spawn(obey);
                    runtime.block_on(worker.end_at_the_deadline());
                    // Signals are heard for as long as the process lives.
                    runtime.block_on(std::future::pending::<()>());
                }
                Err(error) => {
                    let _ = tell.send(Err(error));
                }
            }
        })?;
        let gone = |_| Err(io::Error::other("its thread has ended"));
        told.recv().unwrap_or_else(gone)
    }

    async fn obey(self, mut signals: Signals) {
        while let Some(name) = signals.next().await {
            if self.process().is_begun() {
                self.process().hurry();
                tell(move || warn!("{name} once more: no more time for what is under way")).await;
                continue;
            }
            let (stop, drain) = (self.process().budget(), self.stream().budget());
            let worker = self.clone();
            tell(move || {
                info!(
                    "{name}: stopping within {}, streams within {}",
                    Human(stop),
                    Human(drain)
                );
                worker.inner.notices.stopping();
            })
            .await;
            self.process().begin();
        }
    }

    async fn end_at_the_deadline(&self) {
        self.process().over().await;
        sleep(GRACE).await;
        if self.inner.has_finished.load(Ordering::Relaxed) {
            return;
        }
        let worker = self.clone();
        tell(move || {
            error!(
                "the time is over and this process has not ended: it is ended now; does a handler block its thread? (see tokio::task::spawn_blocking)"
            );
            worker.status("failed: ended at the deadline, for something blocks a thread");
        })
        .await;
        process::exit(CUT)
    }
}

struct Signals {
    term: Signal,
    int: Signal,
}

impl Signals {
    fn listen() -> io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
        })
    }

    /// The name of the next one.
    async fn next(&mut self) -> Option<&'static str> {
        tokio::select! {
            Some(()) = self.term.recv() => Some("SIGTERM"),
            Some(()) = self.int.recv() => Some("SIGINT"),
            else => None,
        }
    }
}

/// Logs, in this order if the log is read.
async fn tell(log: impl FnOnce() + Send + 'static) {
    let _ = timeout(TELLING, spawn_blocking(log)).await;
}
