//! The child: how it is started, what it is told, what is heard of it.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use soloist_core::ids::{Identity, Term, Token};
use soloist_core::ladder::Ladder;
use soloist_core::replica::{Event, SpawnFailure};
use soloist_core::time::Moment;
use soloist_elector::clock;
use soloist_process::{Command, Supervisor, Tree, TreeEvent};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tracing::{info, warn};

use crate::cli::{Health, Ready};
use crate::notify::{Notice, NotifySocket};
use crate::probe::Probe;
use crate::settings::Settings;

/// A child that was started, with its guard.
pub(crate) struct Child {
    pub(crate) tree: Tree,
    program: PathBuf,
    notify: NotifySocket,
    ready: Ready,
    health: Health,
    interval: Duration,
    timeout: Duration,
    checks: Option<JoinHandle<()>>,
    seen: mpsc::UnboundedReceiver<Event>,
    see: mpsc::UnboundedSender<Event>,
    alive_at: Option<Moment>,
}

/// For whom the child runs.
pub(crate) struct Role<'a> {
    pub(crate) identity: &'a Identity,
    pub(crate) term: Term,
    pub(crate) token: Token,
}

impl Child {
    /// Starts a guard that waits for its first deadline; the child starts when it has one.
    pub(crate) fn prepare(
        supervisor: &Supervisor,
        settings: &Settings,
        role: &Role<'_>,
    ) -> Result<Self, SpawnFailure> {
        let notify = NotifySocket::open().map_err(|error| {
            warn!(%error, "no socket for the child's notices");
            SpawnFailure::System
        })?;
        let command = command(settings, role, &notify);
        let tree = supervisor.prepare(&command).map_err(|error| {
            warn!(%error, "the child's guard cannot be started");
            error.failure()
        })?;
        let (see, seen) = mpsc::unbounded_channel();
        Ok(Self {
            tree,
            program: PathBuf::from(&settings.command[0]),
            notify,
            ready: settings.ready.clone(),
            health: settings.health.clone(),
            interval: settings.health_interval,
            timeout: settings.health_timeout,
            checks: None,
            seen,
            see,
            alive_at: None,
        })
    }

    /// What happens next that the replica should know. May be cancelled.
    pub(crate) async fn next(&mut self) -> Event {
        loop {
            tokio::select! {
                event = self.tree.next_event() => {
                    // After the last event there is nothing more to hear; the owner has dropped us by then.
                    let event = event.unwrap_or(TreeEvent::Empty);
                    if let Some(event) = self.tree_event(event) {
                        return event;
                    }
                }
                Some(event) = self.seen.recv() => return event,
                Ok(notices) = self.notify.next() => {
                    for notice in notices {
                        self.notice(notice);
                    }
                }
            }
        }
    }

    fn tree_event(&mut self, event: TreeEvent) -> Option<Event> {
        match event {
            TreeEvent::Started { pid } => {
                info!(pid, guard = self.tree.guard_pid(), "the child has started");
                match self.ready.clone() {
                    Ready::Started => return Some(Event::Ready),
                    Ready::Notify => {}
                    Ready::Probe(probe) => self.watch_until_ready(probe),
                }
                None
            }
            TreeEvent::SpawnFailed(error) => {
                let cause = std::io::Error::from_raw_os_error(error.errno);
                let program = self.program.display();
                warn!(
                    "the child {program} cannot be started: {}: {cause}",
                    error.step
                );
                Some(Event::SpawnFailed(error.failure))
            }
            TreeEvent::Exited(exit) => {
                info!(?exit, "the child has ended");
                Some(Event::Exited(exit))
            }
            TreeEvent::GuardLost => {
                warn!("the guard is gone; killing what is left of the child");
                Some(Event::GuardLost)
            }
            TreeEvent::Empty => {
                info!("nothing is left of the child");
                Some(Event::TreeEmpty)
            }
        }
    }

    fn notice(&mut self, notice: Notice) {
        match notice {
            Notice::Ready if self.ready == Ready::Notify => self.tell(Event::Ready),
            Notice::Ready => {}
            Notice::Alive => {
                self.alive_at = Some(clock::now());
                if self.health == Health::Notify {
                    self.tell(Event::Healthy);
                }
            }
            Notice::Stopping => info!("the child says that it is stopping"),
            Notice::Status(status) => info!(status, "the child says"),
        }
    }

    fn tell(&self, event: Event) {
        let _ = self.see.send(event);
    }

    fn watch_until_ready(&mut self, probe: Probe) {
        let (see, limit) = (self.see.clone(), self.timeout);
        self.check(async move {
            while probe.look(limit).await.is_err() {
                pause(Duration::from_millis(100)).await;
            }
            let _ = see.send(Event::Ready);
        });
    }

    /// The child is up: its health is checked from now on.
    pub(crate) fn begin_checks(&mut self) {
        let (see, interval, limit) = (self.see.clone(), self.interval, self.timeout);
        match self.health.clone() {
            Health::None => {}
            Health::Probe(probe) => self.check(async move {
                loop {
                    pause(interval).await;
                    let event = match probe.look(limit).await {
                        Ok(()) => Event::Healthy,
                        Err(reason) => {
                            warn!(%probe, reason, "the child's health check failed");
                            Event::Unhealthy
                        }
                    };
                    if see.send(event).is_err() {
                        return;
                    }
                }
            }),
            // Each interval without a word is a failed check; a word is a passed one.
            Health::Notify => self.check(async move {
                loop {
                    pause(interval).await;
                    if see.send(Event::Unhealthy).is_err() {
                        return;
                    }
                }
            }),
        }
    }

    /// Whether the child has been heard of within one interval: then a missed beat is none.
    pub(crate) fn is_heard(&self) -> bool {
        self.health == Health::Notify
            && self
                .alive_at
                .is_some_and(|at| clock::now().since(at) < self.interval)
    }

    pub(crate) fn end_checks(&mut self) {
        if let Some(checks) = self.checks.take() {
            checks.abort();
        }
    }

    fn check(&mut self, checks: impl Future<Output = ()> + Send + 'static) {
        self.end_checks();
        self.checks = Some(tokio::spawn(checks));
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.end_checks();
    }
}

async fn pause(length: Duration) {
    tokio::time::sleep(length).await;
}

fn command(settings: &Settings, role: &Role<'_>, notify: &NotifySocket) -> Command {
    let ladder: &Ladder = &settings.policy.ladder;
    let [program, arguments @ ..] = &settings.command[..] else {
        unreachable!("the command line has a program");
    };
    let seconds = |length: Duration| format!("{}", length.as_secs_f64());
    let mut command = Command::new(program)
        .args(arguments)
        .env("SOLOIST_NAME", &settings.name)
        .env("SOLOIST_IDENTITY", role.identity.as_str())
        .env("SOLOIST_TERM", role.term.to_string())
        .env("SOLOIST_TOKEN", role.token.to_string())
        .env("SOLOIST_STOP_TIMEOUT", seconds(ladder.child()))
        .env("SOLOIST_DRAIN_TIMEOUT", seconds(ladder.drain()))
        .env("NOTIFY_SOCKET", notify.path());
    if settings.health == Health::Notify {
        let micros = settings.health_interval.as_micros().to_string();
        command = command.env("WATCHDOG_USEC", OsString::from(micros));
    }
    command
}
