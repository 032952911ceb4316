//! Whether a child is up and well: probes, and what it says itself.

use std::future::pending;
use std::time::Duration;

use soloist_core::node::TreeEvent;
use soloist_core::time::Moment;
use soloist_elector::clock;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tracing::{info, warn};

use crate::cli::{Health, Ready};
use crate::notify::Notice;
use crate::probe::Probe;
use crate::settings::Settings;
use crate::status_line::{self, StatusLine};

/// Between two looks at a child that is not up yet.
const UNTIL_READY: Duration = Duration::from_millis(100);

/// The checks of one child.
pub(crate) struct Checks {
    ready: Ready,
    health: Health,
    interval: Duration,
    timeout: Duration,
    task: Option<JoinHandle<()>>,
    seen: mpsc::UnboundedReceiver<TreeEvent>,
    see: mpsc::UnboundedSender<TreeEvent>,
    alive_at: Option<Moment>,
    status: StatusLine,
    /// People know that the child is stopping.
    stopping: bool,
}

impl Checks {
    pub(crate) fn new(settings: &Settings) -> Self {
        let (see, seen) = mpsc::unbounded_channel();
        Self {
            ready: settings.ready.clone(),
            health: settings.health.clone(),
            interval: settings.health_interval,
            timeout: settings.health_timeout,
            task: None,
            seen,
            see,
            alive_at: None,
            status: StatusLine::default(),
            stopping: false,
        }
    }

    /// The child has started; it may be up by that.
    pub(crate) fn started(&mut self) -> Option<TreeEvent> {
        match self.ready.clone() {
            Ready::Started => return Some(TreeEvent::Ready),
            Ready::Notify => {}
            Ready::Probe(probe) => self.watch_until_ready(probe),
        }
        None
    }

    /// The child says something.
    pub(crate) fn notice(&mut self, notice: Notice) -> Option<TreeEvent> {
        match notice {
            Notice::Ready => (self.ready == Ready::Notify).then_some(TreeEvent::Ready),
            Notice::Alive => {
                self.alive_at = Some(clock::now());
                (self.health == Health::Notify).then_some(TreeEvent::Healthy)
            }
            Notice::Stopping => {
                if !std::mem::replace(&mut self.stopping, true) {
                    info!("the child says that it is stopping");
                }
                None
            }
            Notice::Status(status) => {
                if let Some(status) = self.status.hear(clock::now(), &status) {
                    status_line::write(&status);
                }
                None
            }
            // The socket's.
            Notice::TellOfEnding => None,
        }
    }

    /// The child is up: its health is checked from now on.
    pub(crate) fn begin(&mut self) {
        let (see, interval, limit) = (self.see.clone(), self.interval, self.timeout);
        match self.health.clone() {
            Health::None => {}
            Health::Probe(probe) => self.run(async move {
                loop {
                    pause(interval).await;
                    let event = match probe.look(limit).await {
                        Ok(()) => TreeEvent::Healthy,
                        Err(reason) => {
                            warn!(%probe, reason, "the child's health check failed");
                            TreeEvent::Unhealthy
                        }
                    };
                    if see.send(event).is_err() {
                        return;
                    }
                }
            }),
            // Each interval without a word is a failed check; a word is a passed one.
            Health::Notify => self.run(async move {
                loop {
                    pause(interval).await;
                    if see.send(TreeEvent::Unhealthy).is_err() {
                        return;
                    }
                }
            }),
        }
    }

    pub(crate) fn end(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }

    /// What a check has shown that counts. May be cancelled.
    pub(crate) async fn next(&mut self) -> Option<TreeEvent> {
        loop {
            tokio::select! {
                seen = self.seen.recv() => match seen {
                    // A child that has been heard of within one interval has missed no beat.
                    Some(TreeEvent::Unhealthy) if self.is_heard() => {}
                    seen => return seen,
                },
                () = until(self.status.next()) => {
                    if let Some(status) = self.status.tell(clock::now()) {
                        status_line::write(&status);
                    }
                }
            }
        }
    }

    fn is_heard(&self) -> bool {
        self.health == Health::Notify
            && self
                .alive_at
                .is_some_and(|at| clock::now().since(at) < self.interval)
    }

    fn watch_until_ready(&mut self, probe: Probe) {
        let (see, limit) = (self.see.clone(), self.timeout);
        self.run(async move {
            let mut told = None;
            while let Err(reason) = probe.look(limit).await {
                // It is looked at often; each reason is told once.
                if told.as_ref() != Some(&reason) {
                    info!(%probe, reason, "the child is not ready yet");
                    told = Some(reason);
                }
                pause(UNTIL_READY).await;
            }
            let _ = see.send(TreeEvent::Ready);
        });
    }

    fn run(&mut self, checks: impl Future<Output = ()> + Send + 'static) {
        self.end();
        self.task = Some(tokio::spawn(checks));
    }
}

impl Drop for Checks {
    fn drop(&mut self) {
        self.end();
    }
}

async fn pause(length: Duration) {
    tokio::time::sleep(length).await;
}

async fn until(moment: Option<Moment>) {
    match moment {
        Some(moment) => pause(moment.since(clock::now())).await,
        None => pending().await,
    }
}
