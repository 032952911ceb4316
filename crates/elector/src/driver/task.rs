//! The loop that carries the election's outputs out and what comes of them in.

use std::io;
use std::sync::Arc;

use soloist_core::election::{Config, Election, Output};
use soloist_core::ids::OpId;
use soloist_core::time::Moment;
use tokio::sync::mpsc;
use tracing::trace;

use super::heartbeat::Pulse;
use super::{DriverEvent, DriverHandle};
use crate::carrier::{Arrival, StoreCarrier};
use crate::clock::{self, Timer};
use crate::store::{LeaseStore, StoreError};

#[derive(Clone, Copy, Debug)]
pub(super) enum Command {
    Stand,
    Resign,
    Leave,
}

pub(super) struct Task {
    election: Election,
    carrier: StoreCarrier,
    commands: mpsc::UnboundedReceiver<Command>,
    events: mpsc::Sender<DriverEvent>,
    pulse: Arc<Pulse>,
    timer: Timer,
    last_error: Option<(OpId, StoreError)>,
}

/// The owner has gone, or the kernel has: nothing more to do.
struct Ended;

enum Woken {
    Command(Option<Command>),
    Arrival(Box<Arrival>),
    Time(io::Result<()>),
}

impl Task {
    pub(super) fn new(
        store: impl LeaseStore,
        config: Config,
        commands: mpsc::UnboundedReceiver<Command>,
        events: mpsc::Sender<DriverEvent>,
        pulse: Arc<Pulse>,
    ) -> io::Result<Self> {
        Ok(Self {
            carrier: StoreCarrier::new(store, config.timings.attempt_limit()),
            election: Election::new(config),
            commands,
            events,
            pulse,
            timer: Timer::new()?,
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
            arrival = self.carrier.next() => Woken::Arrival(Box::new(arrival)),
            rung = self.timer.until(wake) => Woken::Time(rung),
        };
        // Read after waking: a candidate counts from after it saw.
        let now = clock::now();
        match woken {
            Woken::Command(command) => self.obey(now, command.ok_or(Ended)?),
            Woken::Arrival(arrival) => self.take_in(now, *arrival).await?,
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

    async fn take_in(&mut self, now: Moment, arrival: Arrival) -> Result<(), Ended> {
        match arrival {
            Arrival::Answer {
                op,
                kind,
                took,
                answer,
                error,
            } => {
                self.last_error = error.clone().map(|error| (op, error));
                let answered = DriverEvent::Answered {
                    request: kind,
                    took,
                    error,
                };
                self.tell(answered).await?;
                self.election.handle_answer(now, op, answer);
            }
            Arrival::Change { watch, snapshot } => {
                self.election.handle_watch(now, watch, snapshot);
            }
            Arrival::WatchEnded { watch, reason } => {
                self.election.handle_watch_broken(now, watch);
                self.tell(DriverEvent::WatchEnded(reason)).await?;
            }
        }
        Ok(())
    }

    async fn act(&mut self, output: Output) -> Result<(), Ended> {
        match output {
            Output::Store(command) => self.carrier.carry(command),
            Output::Elected(elected) => self.tell(DriverEvent::Elected(elected)).await?,
            Output::Extended { valid_until } => {
                self.tell(DriverEvent::Extended { valid_until }).await?;
            }
            Output::Lost(loss) => self.tell(DriverEvent::Lost(loss)).await?,
            Output::Left => self.tell(DriverEvent::Left).await?,
            Output::Holder(holder) => self.tell(DriverEvent::Holder(holder)).await?,
            Output::Ordered(ordered) => {
                self.election.resign(clock::now());
                self.tell(DriverEvent::Ordered(ordered)).await?;
            }
            // Whoever has left has its reasons, and we know of none to come back.
            Output::NamedHeir => {}
            Output::OrderRefused(refusal) => {
                self.tell(DriverEvent::OrderRefused(refusal)).await?;
            }
            Output::Paused(pause) => self.tell(DriverEvent::Paused(pause)).await?,
            Output::Refused { op, for_good } => {
                if let Some((_, error)) = self.last_error.take_if(|(of, _)| *of == op) {
                    let refused = DriverEvent::Refused { error, for_good };
                    self.tell(refused).await?;
                }
            }
        }
        Ok(())
    }

    async fn tell(&mut self, event: DriverEvent) -> Result<(), Ended> {
        self.events.send(event).await.map_err(|_| Ended)
    }
}
