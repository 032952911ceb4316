//! A soloist: the election and the carrier as they are, without a child.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use soloist_core::election::{Config, Election, Output};
use soloist_core::ids::{Identity, InstanceId};
use soloist_core::time::Moment;
use soloist_core::timings::{Preset, Timings};

use super::world::World;
use crate::carrier::{Arrival, StoreCarrier};
use crate::store::LeaseStore;

pub(super) struct Soloist {
    election: Election,
    carrier: StoreCarrier,
    stands: bool,
    stopping: bool,
    left: bool,
}

impl Soloist {
    pub(super) fn new(store: impl LeaseStore, name: &str, number: u64) -> Self {
        let timings = Timings::preset(Preset::Standard);
        let config = Config {
            identity: Identity::found(name).unwrap_or_else(|| panic!("a name")),
            instance: InstanceId::from_random(number.into()),
            pod: None,
            timings,
            seed: number,
        };
        Self {
            election: Election::new(config),
            carrier: StoreCarrier::new(store, timings.attempt_limit()),
            stands: false,
            stopping: false,
            left: false,
        }
    }

    pub(super) fn leads(&self, now: Moment) -> bool {
        let tenure = self.election.tenure();
        tenure.is_some_and(|tenure| tenure.valid_until() > now)
    }

    pub(super) const fn has_ended(&self) -> bool {
        self.left
    }

    pub(super) fn stop(&mut self, now: Moment) {
        self.stopping = true;
        self.election.resign(now);
        self.election.leave(now);
    }

    pub(super) fn tick(&mut self, world: &World) -> Result<(), String> {
        let now = world.now();
        if !self.stands && !self.stopping {
            self.stands = true;
            self.election.stand(now);
        }
        if self.election.next_deadline().is_some_and(|due| due <= now) {
            self.election.handle_timeout(now);
        }
        self.act(world)?;
        while let Some(arrival) = self.arrival() {
            match arrival {
                Arrival::Answer { op, answer, .. } => self.election.handle_answer(now, op, answer),
                Arrival::Change { watch, snapshot } => {
                    self.election.handle_watch(now, watch, snapshot);
                }
                Arrival::WatchEnded { watch, .. } => self.election.handle_watch_broken(now, watch),
            }
            self.act(world)?;
        }
        Ok(())
    }

    fn arrival(&mut self) -> Option<Arrival> {
        let mut context = Context::from_waker(Waker::noop());
        match pin!(self.carrier.try_next()).poll(&mut context) {
            Poll::Ready(arrival) => arrival,
            Poll::Pending => None,
        }
    }

    fn act(&mut self, world: &World) -> Result<(), String> {
        while let Some(output) = self.election.poll_output() {
            match output {
                Output::Store(command) => self.carrier.carry(command),
                Output::Elected(elected) => {
                    let token = elected.token.get();
                    if !world.is_newest_token(token) {
                        return Err(format!("the token {token} has not grown"));
                    }
                }
                Output::Lost(_) => self.stands = false,
                Output::Left => self.left = true,
                _ => {}
            }
        }
        Ok(())
    }
}

/// Its own retry, before a client-go looks again.
pub(super) const RETRY: Duration = Duration::from_secs(2);
