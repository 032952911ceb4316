//! The loop that carries the election's outputs out and what comes of them in.

use std::future::{Future, pending};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use soloist_core::election::{Answer, Config, Election, Output};
use soloist_core::ids::OpId;
use soloist_core::record::Snapshot;
use soloist_core::time::{Human, Moment};
use tokio::sync::mpsc;
use tracing::{debug, trace};

use super::heartbeat::Pulse;
use super::{DriverEvent, DriverHandle, RequestKind};
use crate::clock::{self, Timer};
use crate::store::{LeaseStore, StoreError, WatchEnded};

#[derive(Clone, Copy, Debug)]
pub(super) enum Command {
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

pub(super) struct Task<S> {
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
    pub(super) fn new(
        store: S,
        config: Config,
        commands: mpsc::UnboundedReceiver<Command>,
        events: mpsc::Sender<DriverEvent>,
        pulse: Arc<Pulse>,
    ) -> io::Result<Self> {
        Ok(Self {
            store: Arc::new(store),
            attempt_limit: config.timings.attempt_limit(),
            election: Election::new(config),
            commands,
            events,
            pulse,
            timer: Timer::new()?,
            request: None,
            watch: None,
            last_error: None,
        })
    }

    pub(super) async fn run(mut self) {
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
