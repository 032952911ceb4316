//! The requests that the election makes, and their pace: one at a time.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use super::{Claim, Election, Phase, Purpose, StoreCommand};
use crate::election::{Base, Output};
use crate::ids::{OpId, Term, Version, WatchId};
use crate::orders::Orders;
use crate::record::{Record, Signature, Snapshot};
use crate::time::Moment;
use crate::timings::Timings;

/// Requests under way, and what is known of those before.
#[derive(Debug)]
pub(super) struct Requests {
    pub(super) in_flight: Option<Request>,
    last_op: u64,
    /// Writes of which we do not know whether they landed, oldest first, with when they were sent.
    unresolved: Vec<(OpId, Moment)>,
    /// Nothing may be written before the record has been read again.
    pub(super) read_first: Option<ReadFirst>,
    /// A write lost a race, and we have learned nothing since.
    raced: bool,
    /// After a failure: not before then.
    pub(super) not_before: Moment,
    /// When the record was last read.
    pub(super) looked_at: Moment,
    pub(super) watch: Watch,
    /// Over how long we spread ourselves after a release. It grows with every race for a release that we lose, because a
    /// large group loses many, and is nothing again when we win.
    crowd: Duration,
    /// After a release: our own place in the crowd.
    pub(super) after_the_crowd: Moment,
}

#[derive(Debug)]
pub(super) struct Request {
    pub(super) op: OpId,
    pub(super) sent: Moment,
    pub(super) kind: Kind,
}

#[derive(Debug)]
pub(super) enum Kind {
    Read {
        raced: bool,
    },
    Write(Box<Write>),
    /// A write that the watch has shown to have landed. Its answer tells nothing more.
    Shown,
}

#[derive(Debug)]
pub(super) struct Write {
    pub(super) op: OpId,
    pub(super) purpose: Purpose,
    pub(super) claim: Claim,
    /// What was known when it was sent.
    pub(super) known: Option<Version>,
    pub(super) record: Record,
}

/// Why nothing may be written before the record has been read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadFirst {
    /// A write lost a race. The watch may tell to whom before then.
    Raced { watch_until: Moment },
    /// A write's outcome is unknown.
    Unsure,
}

impl ReadFirst {
    pub(super) fn at(self, ready: Moment) -> Moment {
        match self {
            Self::Raced { watch_until } => watch_until.max(ready),
            Self::Unsure => ready,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Watch {
    On { id: WatchId, since: Moment },
    Off { again_at: Moment },
}

impl Requests {
    /// Several times what a takeover takes to be seen by the others: less would spare a large group nothing.
    const FIRST_CROWD: Duration = Duration::from_millis(32);

    pub(super) const fn new() -> Self {
        let start = Moment::since_boot(Duration::ZERO);
        Self {
            in_flight: None,
            last_op: 0,
            unresolved: Vec::new(),
            read_first: None,
            raced: false,
            not_before: start,
            looked_at: start,
            watch: Watch::Off { again_at: start },
            crowd: Duration::ZERO,
            after_the_crowd: start,
        }
    }

    pub(super) fn purpose(&self) -> Option<Purpose> {
        match &self.in_flight.as_ref()?.kind {
            Kind::Write(write) => Some(write.purpose),
            Kind::Read { .. } | Kind::Shown => None,
        }
    }

    pub(super) fn is_writing(&self) -> bool {
        self.purpose().is_some()
    }

    pub(super) fn watches(&self, watch: WatchId) -> bool {
        matches!(self.watch, Watch::On { id, .. } if id == watch)
    }

    /// After a read: if there is no watch, or one that should have told us to whom we lost a race and has not.
    pub(super) fn begin_watch(
        &mut self,
        now: Moment,
        read: OpId,
        raced: bool,
        snapshot: &Snapshot,
    ) -> Option<StoreCommand> {
        if matches!(self.watch, Watch::On { .. }) && !raced {
            return None;
        }
        let (watch, after) = (WatchId::new(read.get()), snapshot.version);
        self.watch = Watch::On {
            id: watch,
            since: now,
        };
        Some(StoreCommand::Watch { watch, after })
    }

    /// The write in flight and when it was sent, if this is the very record that it wrote.
    pub(super) fn take_shown(&mut self, snapshot: &Snapshot) -> Option<(Moment, Write)> {
        let request = self.in_flight.as_mut()?;
        let kind = core::mem::replace(&mut request.kind, Kind::Shown);
        match kind {
            Kind::Write(write) if snapshot.record.as_ref() == Some(&write.record) => {
                Some((request.sent, *write))
            }
            other => {
                request.kind = other;
                None
            }
        }
    }

    pub(super) fn watch_broke(&mut self, now: Moment, watch: WatchId, pause: Duration) {
        if let Watch::On { id, since } = self.watch
            && id == watch
        {
            let again_at = now.max(since + pause);
            self.watch = Watch::Off { again_at };
        }
    }

    /// The watch has told us something new: whatever we lost a race to, we hear of it.
    pub(super) fn watch_explained(&mut self) {
        self.raced = false;
        self.read_first
            .take_if(|r| matches!(r, ReadFirst::Raced { .. }));
    }

    /// This write landed; the fate of all before it is known too.
    pub(super) fn landed(&mut self, now: Moment, op: OpId) {
        self.resolve(op);
        self.raced = false;
        self.not_before = now;
    }

    /// This write certainly did not land.
    pub(super) fn forget(&mut self, op: OpId) {
        self.unresolved.retain(|(unresolved, _)| *unresolved != op);
    }

    /// The fate of this write and of all before it is known.
    pub(super) fn resolve(&mut self, op: OpId) {
        self.unresolved.retain(|(unresolved, _)| *unresolved > op);
    }

    /// When this write was sent, if we did not know whether it had landed.
    pub(super) fn unresolved(&self, op: OpId) -> Option<Moment> {
        let found = self.unresolved.iter().find(|(write, _)| *write == op);
        found.map(|(_, sent)| *sent)
    }

    pub(super) const fn crowd(&self) -> Duration {
        self.crowd
    }

    pub(super) fn won(&mut self) {
        self.crowd = Duration::ZERO;
    }

    fn lost(&mut self) {
        self.crowd = (4 * self.crowd).clamp(Self::FIRST_CROWD, Timings::LARGEST_CROWD);
    }

    fn new_op(&mut self) -> OpId {
        self.last_op += 1;
        OpId::new(self.last_op)
    }
}

// Sending.
impl Election {
    pub(super) fn ask(&mut self, command: StoreCommand) {
        self.outputs.push_back(Output::Store(command));
    }

    pub(super) fn send_read(&mut self, now: Moment) {
        let raced = matches!(self.requests.read_first, Some(ReadFirst::Raced { .. }));
        let op = self.requests.new_op();
        self.requests.in_flight = Some(Request {
            op,
            sent: now,
            kind: Kind::Read { raced },
        });
        self.ask(StoreCommand::Read { op });
    }

    pub(super) fn send_acquire(&mut self, now: Moment) {
        let transitions = self.knowledge.next_transitions();
        self.own_term = Some(Term::new(transitions));
        self.send_write(now, Purpose::Acquire, self.knowledge.claim(), transitions);
    }

    pub(super) fn send_renewal(&mut self, now: Moment) {
        let transitions = self.knowledge.record().map_or(0, |r| r.transitions);
        self.send_write(now, Purpose::Renew, Claim::Own, transitions);
    }

    pub(super) fn send_release(&mut self, now: Moment) {
        let transitions = self.knowledge.record().map_or(0, |r| r.transitions);
        self.send_write(now, Purpose::Release, Claim::Own, transitions);
    }

    fn send_write(&mut self, now: Moment, purpose: Purpose, claim: Claim, transitions: u64) {
        let op = self.requests.new_op();
        let record = self.record_to_write(op, purpose, transitions);
        let lease = self.config.timings.lease().get();
        self.requests
            .unresolved
            .retain(|(_, sent)| *sent + lease > now);
        self.requests.unresolved.push((op, now));
        self.ask(StoreCommand::Write {
            op,
            base: self.base(),
            record: record.clone(),
            purpose,
        });
        self.requests.in_flight = Some(Request {
            op,
            sent: now,
            kind: Kind::Write(Box::new(Write {
                op,
                purpose,
                claim,
                known: self.knowledge.version(),
                record,
            })),
        });
    }

    fn record_to_write(&self, op: OpId, purpose: Purpose, transitions: u64) -> Record {
        let released = purpose == Purpose::Release;
        let lease = self.config.timings.lease();
        Record {
            holder: (!released).then(|| self.config.identity.clone()),
            duration_seconds: Some(match released {
                true => Record::RELEASED_SECONDS,
                false => lease.seconds().into(),
            }),
            transitions,
            signature: Some(Signature {
                instance: self.config.instance,
                pod: self.config.pod.clone(),
                holder: self.config.identity.clone(),
                term: Term::new(transitions),
                duration: lease,
                write: op,
                base: self.knowledge.version().unwrap_or(Version::new(0)),
                released,
                heir: self.heeded.heir.clone().filter(|_| released),
            }),
            orders: self.orders_to_write(purpose),
        }
    }

    /// Orders stay as they are, but for those that are over: a handover with its term, a pause with its end.
    fn orders_to_write(&self, purpose: Purpose) -> Orders {
        let orders = self.knowledge.record().map(|r| r.orders.clone());
        let orders = orders.unwrap_or_default();
        match purpose {
            Purpose::Renew => orders,
            Purpose::Acquire => Orders::NONE,
            Purpose::Release => Orders {
                handover: None,
                ..orders
            },
        }
    }

    fn base(&self) -> Base {
        match self.knowledge.snapshot() {
            Some(Snapshot {
                version,
                record: Some(_),
                ..
            }) => Base::Version(*version),
            Some(_) | None => Base::Absent,
        }
    }
}

// What a failure means for the next request.
impl Election {
    pub(super) fn lost_race(&mut self, now: Moment, sent: Moment, write: &Write) {
        // Others are no crowd because they started at the same time.
        if write.purpose == Purpose::Acquire && write.claim == Claim::Released {
            self.requests.lost();
        }
        // The watch was faster than the answer.
        if self.knowledge.version() > write.known {
            self.requests.not_before = now;
            return;
        }
        let watch_until = match (write.purpose, self.requests.watch) {
            (Purpose::Acquire, Watch::On { .. }) => now + self.config.timings.race_patience(),
            // A leader must know at once what has become of its lease.
            (Purpose::Acquire, Watch::Off { .. }) | (Purpose::Renew | Purpose::Release, _) => now,
        };
        self.requests.read_first = Some(ReadFirst::Raced { watch_until });
        match core::mem::replace(&mut self.requests.raced, true) {
            false => self.requests.not_before = now,
            // Twice in a row is no race but a store that contradicts itself.
            true => self.pause(sent),
        }
    }

    pub(super) fn unanswered(&mut self, sent: Moment, kind: &Kind) {
        self.pause(sent);
        if matches!(kind, Kind::Write(_)) {
            self.requests.read_first = Some(ReadFirst::Unsure);
        }
    }

    /// After a failure: the next try begins a retry period after the last one began.
    pub(super) fn pause(&mut self, began: Moment) {
        self.requests.not_before = began + self.retry_pause();
    }

    /// The store asks for patience. It gets as much as does not cost the lease: the last try that has its whole time comes
    /// before the renew deadline.
    pub(super) fn wait_as_asked(&mut self, now: Moment, wait: Duration) {
        let timings = &self.config.timings;
        let limit = timings.attempt_limit();
        let latest = match self.phase {
            Phase::Idle | Phase::Candidate => now + timings.lease().get(),
            Phase::Leading(tenure) => tenure.sent + timings.renew_deadline() - limit,
            Phase::Ending(tenure) => tenure.valid_until - limit,
            Phase::Leaving { by, .. } => by - limit,
        };
        let wanted = (now + wait).min(latest);
        self.requests.not_before = self.requests.not_before.max(wanted);
    }

    pub(super) fn retry_pause(&mut self) -> Duration {
        let timings = &self.config.timings;
        let longest = timings.longest_retry();
        let shortest = timings.retry_period().min(longest);
        shortest + self.spread.up_to(longest - shortest)
    }

    /// After a release: when it is our turn to try, if many do.
    pub(super) fn find_place_in_crowd(&mut self, now: Moment) {
        self.requests.after_the_crowd = now + self.spread.up_to(self.requests.crowd);
    }
}
