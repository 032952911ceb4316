//! The low level: one task that runs the election on a store.
//!
//! [`Driver::spawn`] gives a [`DriverHandle`] for commands and a channel of [`DriverEvent`]s. The owner
//! keeps the duties that [`soloist_core::election`] names: to stop its work in time, and not to
//! [`leave`](DriverHandle::leave) before the work has stopped.

use std::future::{Future, pending};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use soloist_core::election::{Answer, Config, Elected, Election, Loss, Output, Purpose};
use soloist_core::ids::{Identity, OpId};
use soloist_core::record::Snapshot;
use soloist_core::time::{Human, Moment};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle};
use tracing::{Instrument, debug, info_span, trace};

use crate::clock::{self, Timer};
use crate::store::{LeaseStore, StoreError, WatchEnded};

/// What the owner of an election is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriverEvent {
    /// We lead.
    Elected(Elected),
    /// We lead until then.
    Extended {
        /// The new end.
        valid_until: Moment,
    },
    /// We do not lead any more.
    Lost(Loss),
    /// What [`DriverHandle::leave`] asked for is done.
    Left,
    /// Another holder was seen in the record, or none.
    Holder(Option<Identity>),
    /// The store refuses us for good, until somebody changes something.
    Refused {
        /// What, where, and what to do.
        error: StoreError,
    },
    /// A request ended: for metrics, and for logs that say why.
    Answered {
        /// Which kind.
        request: RequestKind,
        /// How long it took.
        took: Duration,
        /// What went wrong, if something did.
        error: Option<StoreError>,
    },
    /// The watch ended; a read and a new watch follow.
    WatchEnded(WatchEnded),
}

/// What a request was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestKind {
    /// To know the record.
    Read,
    /// To begin a term.
    Acquire,
    /// To go on.
    Renew,
    /// To end a term.
    Release,
}

impl RequestKind {
    /// As a metric's label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Acquire => "acquire",
            Self::Renew => "renew",
            Self::Release => "release",
        }
    }
}

impl From<Purpose> for RequestKind {
    fn from(purpose: Purpose) -> Self {
        match purpose {
            Purpose::Acquire => Self::Acquire,
            Purpose::Renew => Self::Renew,
            Purpose::Release => Self::Release,
        }
    }
}

/// Starts drivers.
#[derive(Debug)]
pub struct Driver;

impl Driver {
    /// Starts the election's task. It takes no part before [`DriverHandle::stand`], and ends, without
    /// releasing anything, when the handle or the receiver is dropped.
    ///
    /// The channel is bounded: an owner that takes no events for long stops the renewals, as it should.
    ///
    /// # Errors
    /// When the system has no file descriptor left for a timer.
    pub fn spawn<S: LeaseStore>(
        store: S,
        config: Config,
    ) -> io::Result<(DriverHandle, mpsc::Receiver<DriverEvent>)> {
        let (command_sender, commands) = mpsc::unbounded_channel();
        let (events, event_receiver) = mpsc::channel(64);
        let pulse = Arc::new(Pulse::default());
        pulse.beat(clock::now());
        let span = info_span!("election", identity = %config.identity, store = %store.describe());
        let task = Task {
            store: Arc::new(store),
            attempt_limit: config.timings.attempt_limit(),
            election: Election::new(config),
            commands,
            events,
            pulse: Arc::clone(&pulse),
            timer: Timer::new()?,
            request: None,
            watch: None,
            last_error: None,
        };
        let handle = DriverHandle {
            commands: command_sender,
            pulse,
            task: tokio::spawn(task.run().instrument(span)),
        };
        Ok((handle, event_receiver))
    }
}

/// Commands to the election's task, and a look at its health. A command to a task that has ended does
/// nothing: the closed event channel says that it has.
#[derive(Debug)]
pub struct DriverHandle {
    commands: mpsc::UnboundedSender<Command>,
    pulse: Arc<Pulse>,
    task: JoinHandle<()>,
}

impl DriverHandle {
    /// The loop turns at least this often, so a [`heartbeat`](Self::heartbeat) that is a few of these
    /// old means that it has stalled.
    pub const HEARTBEAT: Duration = Duration::from_secs(2);

    /// See [`Election::stand`].
    pub fn stand(&self) {
        let _ = self.commands.send(Command::Stand);
    }

    /// See [`Election::resign`].
    pub fn resign(&self) {
        let _ = self.commands.send(Command::Resign);
    }

    /// See [`Election::leave`]; only when our work has stopped.
    pub fn leave(&self) {
        let _ = self.commands.send(Command::Leave);
    }

    /// How often the loop has turned, and when last.
    #[must_use]
    pub fn heartbeat(&self) -> Heartbeat {
        self.pulse.read()
    }

    /// A look at the heartbeat for somebody who does not own the handle.
    #[must_use]
    pub fn monitor(&self) -> HeartbeatMonitor {
        HeartbeatMonitor(Arc::clone(&self.pulse))
    }

    /// Ends the task, without releasing anything, and says how it had ended if it had.
    ///
    /// # Errors
    /// When it panicked.
    pub async fn join(self) -> Result<(), JoinError> {
        drop(self.commands);
        self.task.await
    }
}

/// Reads the heartbeat of a driver.
#[derive(Clone, Debug)]
pub struct HeartbeatMonitor(Arc<Pulse>);

impl HeartbeatMonitor {
    /// How often the loop has turned, and when last.
    #[must_use]
    pub fn heartbeat(&self) -> Heartbeat {
        self.0.read()
    }
}

/// A sign of life of the election's loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// How often the loop has turned.
    pub turns: u64,
    /// When it last did.
    pub last: Moment,
}

#[derive(Debug, Default)]
struct Pulse {
    turns: AtomicU64,
    last_nanos: AtomicU64,
}

impl Pulse {
    fn beat(&self, now: Moment) {
        let nanos = u64::try_from(now.uptime().as_nanos()).unwrap_or(u64::MAX);
        self.last_nanos.store(nanos, Ordering::Relaxed);
        self.turns.fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self) -> Heartbeat {
        Heartbeat {
            turns: self.turns.load(Ordering::Relaxed),
            last: Moment::since_boot(Duration::from_nanos(
                self.last_nanos.load(Ordering::Relaxed),
            )),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Command {
    Stand,
    Resign,
    Leave,
}

type Request = Pin<Box<dyn Future<Output = Result<Answer, StoreError>> + Send>>;
type Changes = Pin<Box<dyn Stream<Item = Result<Snapshot, WatchEnded>> + Send>>;

struct Pending {
    op: OpId,
    kind: RequestKind,
    sent: Moment,
    request: Request,
}

struct Task<S> {
    store: Arc<S>,
    attempt_limit: Duration,
    election: Election,
    commands: mpsc::UnboundedReceiver<Command>,
    events: mpsc::Sender<DriverEvent>,
    pulse: Arc<Pulse>,
    timer: Timer,
    request: Option<Pending>,
    watch: Option<Changes>,
    last_error: Option<(OpId, StoreError)>,
}

/// The owner has gone, or the kernel has: nothing more to do.
struct Ended;

enum Woken {
    Command(Option<Command>),
    Answer(Result<Answer, StoreError>),
    Change(Option<Result<Snapshot, WatchEnded>>),
    Time(io::Result<()>),
}

impl<S: LeaseStore> Task<S> {
    async fn run(mut self) {
        while self.turn().await.is_ok() {}
    }

    async fn turn(&mut self) -> Result<(), Ended> {
        let now = clock::now();
        self.pulse.beat(now);
        let deadline = self.election.next_deadline().unwrap_or(Moment::NEVER);
        let wake = deadline.min(now + DriverHandle::HEARTBEAT);
        let woken = tokio::select! {
            biased;
            command = self.commands.recv() => Woken::Command(command),
            answer = answer(&mut self.request) => Woken::Answer(answer),
            change = change(&mut self.watch) => Woken::Change(change),
            rung = self.timer.until(wake) => Woken::Time(rung),
        };
        // Read after waking: a candidate counts from after it saw.
        let now = clock::now();
        match woken {
            Woken::Command(command) => self.obey(now, command.ok_or(Ended)?),
            Woken::Answer(answer) => self.answered(now, answer).await?,
            Woken::Change(change) => self.changed(now, change).await?,
            Woken::Time(rung) => rung.map_err(|_| Ended)?,
        }
        // Whatever woke us, time must not wait behind a busy watch.
        if self.election.next_deadline().is_some_and(|at| at <= now) {
            self.election.handle_timeout(now);
        }
        while let Some(output) = self.election.poll_output() {
            self.act(output).await?;
        }
        Ok(())
    }

    fn obey(&mut self, now: Moment, command: Command) {
        trace!(?command);
        match command {
            Command::Stand => self.election.stand(now),
            Command::Resign => self.election.resign(now),
            Command::Leave => self.election.leave(now),
        }
    }

    async fn answered(
        &mut self,
        now: Moment,
        answer: Result<Answer, StoreError>,
    ) -> Result<(), Ended> {
        let Some(done) = self.request.take() else {
            return Ok(());
        };
        let (answer, error) = match answer {
            Ok(answer) => (answer, None),
            Err(error) => (error.answer(), Some(error)),
        };
        if let Some(error) = &error {
            debug!(request = done.kind.as_str(), %error, "request failed");
            self.last_error = Some((done.op, error.clone()));
        }
        self.tell(DriverEvent::Answered {
            request: done.kind,
            took: now.since(done.sent),
            error,
        })
        .await?;
        self.election.handle_answer(now, done.op, answer);
        Ok(())
    }

    async fn changed(
        &mut self,
        now: Moment,
        change: Option<Result<Snapshot, WatchEnded>>,
    ) -> Result<(), Ended> {
        match change.unwrap_or_else(|| Err(WatchEnded("the store closed it".into()))) {
            Ok(snapshot) => {
                trace!(version = snapshot.version.get(), "the record changed");
                self.election.handle_watch(now, snapshot);
                Ok(())
            }
            Err(ended) => {
                debug!(%ended);
                self.watch = None;
                self.election.handle_watch_broken(now);
                self.tell(DriverEvent::WatchEnded(ended)).await
            }
        }
    }

    async fn act(&mut self, output: Output) -> Result<(), Ended> {
        match output {
            Output::Read { op } => {
                let store = Arc::clone(&self.store);
                let read = async move { store.read().await.map(Answer::Read) };
                self.send(op, RequestKind::Read, Box::pin(read));
            }
            Output::Write {
                op,
                base,
                record,
                purpose,
            } => {
                let store = Arc::clone(&self.store);
                let write = async move {
                    let version = store.write(base, &record, purpose).await?;
                    Ok(Answer::Written(version))
                };
                self.send(op, purpose.into(), Box::pin(write));
            }
            Output::Abandon { op } => self.abandon(op).await?,
            Output::Watch { after } => {
                self.watch = None;
                self.watch = Some(Box::pin(self.store.watch(after)));
            }
            Output::Elected(elected) => self.tell(DriverEvent::Elected(elected)).await?,
            Output::Extended { valid_until } => {
                self.tell(DriverEvent::Extended { valid_until }).await?;
            }
            Output::Lost(loss) => self.tell(DriverEvent::Lost(loss)).await?,
            Output::Left => self.tell(DriverEvent::Left).await?,
            Output::Holder(holder) => self.tell(DriverEvent::Holder(holder)).await?,
            Output::Refused { op } => {
                if let Some((_, error)) = self.last_error.take_if(|(of, _)| *of == op) {
                    self.tell(DriverEvent::Refused { error }).await?;
                }
            }
        }
        Ok(())
    }

    fn send(&mut self, op: OpId, kind: RequestKind, request: Request) {
        trace!(request = kind.as_str(), "sending");
        self.request = Some(Pending {
            op,
            kind,
            sent: clock::now(),
            request,
        });
    }

    async fn abandon(&mut self, op: OpId) -> Result<(), Ended> {
        let Some(given_up) = self.request.take_if(|pending| pending.op == op) else {
            return Ok(());
        };
        let (kind, sent) = (given_up.kind, given_up.sent);
        drop(given_up);
        self.store.abandon_connections();
        let error = StoreError::Unknown(format!(
            "no answer within {} from the {}",
            Human(self.attempt_limit),
            self.store.describe()
        ));
        debug!(request = kind.as_str(), %error, "request given up");
        self.tell(DriverEvent::Answered {
            request: kind,
            took: clock::now().since(sent),
            error: Some(error),
        })
        .await
    }

    async fn tell(&mut self, event: DriverEvent) -> Result<(), Ended> {
        self.events.send(event).await.map_err(|_| Ended)
    }
}

async fn answer(pending_request: &mut Option<Pending>) -> Result<Answer, StoreError> {
    match pending_request {
        Some(pending) => pending.request.as_mut().await,
        None => pending().await,
    }
}

async fn change(watch: &mut Option<Changes>) -> Option<Result<Snapshot, WatchEnded>> {
    match watch {
        Some(changes) => changes.next().await,
        None => pending().await,
    }
}
