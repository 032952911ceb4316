//! People order something of whoever leads: a handover, a pause, its end. Orders are edits of the record.

use soloist_core::ids::{Identity, Term};
use soloist_core::orders::{Handover, Pause, WallTime};

use super::Fault;
use crate::clock::{Nanos, SECOND};
use crate::queue::Event;
use crate::world::World;

/// What the time of day is when a schedule begins.
const EPOCH: u64 = 1_000_000;

/// A wall clock that shows so many nanoseconds since the schedule began.
pub(crate) fn wall_time(shows: i64) -> WallTime {
    let seconds = shows.div_euclid(SECOND as i64);
    WallTime::from_unix_seconds(EPOCH.saturating_add_signed(seconds))
}

impl World {
    /// `false` if there was nothing to order.
    pub(super) fn give_order(&mut self, fault: Fault) -> bool {
        let Some(term) = self.store.record().map(|r| r.transitions) else {
            return false;
        };
        match fault {
            Fault::OrderForAnotherTerm => {
                let other = match self.rng.percent(50) {
                    true => term + 1,
                    false => term.saturating_sub(1),
                };
                let to = self.some_heir();
                self.order_handover(Term::new(other), to)
            }
            Fault::OrderPause | Fault::OrderPauseStop => {
                let lease = self.plan.longest_lease();
                let length = self
                    .rng
                    .percent(60)
                    .then(|| self.rng.between(SECOND, 2 * lease));
                self.order_pause(fault == Fault::OrderPauseStop, length)
            }
            Fault::OrderResume => self.order_resume(),
            _ => {
                let to = self.some_heir();
                self.order_handover(Term::new(term), to)
            }
        }
    }

    /// Anyone, a replica that may be alive, or one that does not exist.
    fn some_heir(&mut self) -> Option<Identity> {
        match self.rng.between(0, 9) {
            0..=2 => None,
            3..=7 => {
                let host = self.rng.index(self.hosts.len());
                Some(self.hosts[host].identity.clone())
            }
            _ => Identity::found("nobody-of-this-name"),
        }
    }

    pub(crate) fn order_handover(&mut self, term: Term, to: Option<Identity>) -> bool {
        let order = Handover { term, to };
        let current = self.store.record().map(|r| r.transitions);
        if current == Some(term.get()) {
            self.checks.orders.given(order.clone());
        }
        self.log(0, || format!("ORDERED {order:?}"));
        let rng = &mut self.rng;
        let done = self
            .store
            .edit(rng, |r| r.orders.handover = Some(order.into()));
        self.tell_of_order(done)
    }

    /// Until it is resumed, or for so long by a clock that is right.
    pub(crate) fn order_pause(&mut self, stop: bool, length: Option<Nanos>) -> bool {
        let until = length.map(|length| wall_time((self.now + length) as i64));
        let pause = Pause { stop, until };
        self.log(0, || format!("ORDERED {pause:?}"));
        let rng = &mut self.rng;
        let done = self.store.edit(rng, |r| r.orders.pause = Some(pause));
        self.tell_of_order(done)
    }

    pub(crate) fn order_resume(&mut self) -> bool {
        if self.store.record().is_none_or(|r| r.orders.pause.is_none()) {
            return false;
        }
        self.log(0, || "ORDERED to resume".to_owned());
        let rng = &mut self.rng;
        let done = self.store.edit(rng, |r| r.orders.pause = None);
        self.tell_of_order(done)
    }

    /// Where the store was set back, a write upon a version of before may undo the order: the operator looks again.
    pub(crate) fn end_pauses(&mut self, until: Nanos) {
        self.order_resume();
        let next = self.now + SECOND;
        if self.store.epoch > 0 && next < until {
            self.queue.push(next, Event::PausesAreOver { until });
        }
    }

    fn tell_of_order(&mut self, done: bool) -> bool {
        if done {
            self.tell_watchers(self.store.newest());
        }
        done
    }
}
