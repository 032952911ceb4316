//! The election's state machine: commands and events in, what to do next out.

mod news;
mod requests;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::mem;

use super::sight::{Sight, Source};
use super::{Answer, Claim, Config, Loss, Output, Purpose};
use crate::defect;
use crate::ids::{Identity, OpId, Term, Token};
use crate::record::{Record, Snapshot};
use crate::spread::Spread;
use crate::time::Moment;

/// One replica's part in the election of a lease. See the [module](super) for how to drive it.
#[derive(Debug)]
pub struct Election {
    config: Config,
    spread: Spread,
    sight: Sight,
    standing: bool,
    /// When to give up releasing; `None` unless [`Election::leave`] is under way.
    leave_by: Option<Moment>,
    tenure: Option<Tenure>,
    request: Option<Request>,
    next_op: u64,
    /// Writes of which we do not know whether they landed, oldest first, with when they were sent.
    unresolved: Vec<(OpId, Moment)>,
    read_first: Option<ReadFirst>,
    /// The last write lost a race.
    raced: bool,
    next_try: Moment,
    watch: Watch,
    outputs: VecDeque<Output>,
}

/// A lease that we hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tenure {
    term: Term,
    token: Token,
    /// When the last write that is known to have landed was sent.
    sent: Moment,
    valid_until: Moment,
    /// Whether the owner has been told that it ends.
    ending: bool,
}

impl Tenure {
    /// The number of the term.
    #[must_use]
    pub const fn term(&self) -> Term {
        self.term
    }

    /// Its fencing token.
    #[must_use]
    pub const fn token(&self) -> Token {
        self.token
    }

    /// Until when the lease may be believed in.
    #[must_use]
    pub const fn valid_until(&self) -> Moment {
        self.valid_until
    }
}

#[derive(Debug)]
struct Request {
    op: OpId,
    sent: Moment,
    kind: RequestKind,
}

#[derive(Debug)]
enum RequestKind {
    Read { raced: bool },
    Write(Write),
}

#[derive(Debug)]
struct Write {
    purpose: Purpose,
    claim: Claim,
    record: Record,
}

/// Why nothing may be written before the record has been read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadFirst {
    /// A write lost a race.
    Raced,
    /// A write's outcome is unknown.
    Unsure,
}

#[derive(Clone, Copy, Debug)]
enum Watch {
    On { since: Moment },
    Off { again_at: Moment },
}

// Commands.
impl Election {
    /// A replica that does not take part yet: see [`Election::stand`].
    #[must_use]
    pub fn new(config: Config) -> Self {
        let spread = Spread::from_seed(config.seed);
        let start = Moment::since_boot(core::time::Duration::ZERO);
        Self {
            config,
            spread,
            sight: Sight::new(),
            standing: false,
            leave_by: None,
            tenure: None,
            request: None,
            next_op: 0,
            unresolved: Vec::new(),
            read_first: None,
            raced: false,
            next_try: start,
            watch: Watch::Off { again_at: start },
            outputs: VecDeque::new(),
        }
    }

    /// Takes part from now on: watches the lease and takes it when it is free. To be called again after
    /// every [`Output::Lost`], when our tree is empty; a release under way comes first.
    pub fn stand(&mut self, now: Moment) {
        self.standing = true;
        if self.tenure.as_ref().is_some_and(|t| t.ending) {
            self.begin_leaving(now);
        }
        self.advance(now);
    }

    /// Announces the end of our term, if we have one: [`Loss::Resigned`]. The lease is kept and
    /// renewed until [`Election::leave`].
    pub fn resign(&mut self, now: Moment) {
        if let Some(tenure) = &mut self.tenure
            && !mem::replace(&mut tenure.ending, true)
        {
            self.lose(Loss::Resigned);
        }
        self.advance(now);
    }

    /// Takes part no more: releases what we hold, also what a write still under way may get us, then
    /// says [`Output::Left`]. Goes on watching. To be called only when our tree is empty.
    pub fn leave(&mut self, now: Moment) {
        self.standing = false;
        self.begin_leaving(now);
        let writing = self
            .request
            .as_ref()
            .is_some_and(|r| matches!(r.kind, RequestKind::Write(_)));
        if !writing && self.nothing_to_release() {
            self.end_leaving();
        }
        self.advance(now);
    }

    fn begin_leaving(&mut self, now: Moment) {
        let by = now + 2 * self.config.timings.attempt_limit();
        self.leave_by.get_or_insert(by);
        self.next_try = self.next_try.min(now);
    }
}

// Events.
impl Election {
    /// The answer to a request.
    pub fn handle_answer(&mut self, now: Moment, op: OpId, answer: Answer) {
        let Some(request) = self.request.take_if(|r| r.op == op) else {
            return;
        };
        match (request.kind, answer) {
            (RequestKind::Read { raced }, Answer::Read(snapshot)) => {
                self.read_first = None;
                self.next_try = now;
                if matches!(self.watch, Watch::Off { .. }) {
                    self.watch = Watch::On { since: now };
                    self.outputs.push_back(Output::Watch {
                        after: snapshot.version,
                    });
                }
                let source = Source::Read {
                    sent: request.sent,
                    raced,
                };
                self.observe(now, snapshot, source);
            }
            (RequestKind::Write(write), Answer::Written(version)) => {
                self.resolve(op);
                self.written(now, request.sent, write, version);
            }
            (RequestKind::Write(_), Answer::LostRace) => {
                self.forget(op);
                self.read_first = Some(ReadFirst::Raced);
                match mem::replace(&mut self.raced, true) {
                    false => self.next_try = now,
                    // Twice in a row is no race but a store that contradicts itself.
                    true => self.pause(request.sent),
                }
                // It would have told us in time, had it been well.
                self.watch = Watch::Off { again_at: now };
            }
            (RequestKind::Write(_), Answer::Unavailable) => {
                self.forget(op);
                self.pause(request.sent);
            }
            (_, Answer::Refused) => {
                self.forget(op);
                self.outputs.push_back(Output::Refused { op });
                self.pause(request.sent);
            }
            // An answer that does not fit its request proves as little as none.
            (
                kind,
                Answer::Unknown
                | Answer::Read(_)
                | Answer::Written(_)
                | Answer::LostRace
                | Answer::Unavailable,
            ) => {
                self.unanswered(now, request.sent, kind);
            }
        }
        self.advance(now);
    }

    /// A change that the watch reported.
    pub fn handle_watch(&mut self, now: Moment, snapshot: Snapshot) {
        self.observe(now, snapshot, Source::Watch);
        self.advance(now);
    }

    /// The watch has ended or is known to have missed something.
    pub fn handle_watch_broken(&mut self, now: Moment) {
        if let Watch::On { since } = self.watch {
            let pause = self.retry_pause();
            self.watch = Watch::Off {
                again_at: now.max(since + pause),
            };
        }
        self.advance(now);
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Moment) {
        if let Some(request) = self
            .request
            .take_if(|r| now >= r.sent + self.config.timings.attempt_limit())
        {
            self.outputs.push_back(Output::Abandon { op: request.op });
            self.unanswered(now, request.sent, request.kind);
        }
        self.advance(now);
    }
}

// What to do, and state.
impl Election {
    /// The next thing to do or to know.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When to call [`Election::handle_timeout`], if nothing else happens before.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Moment> {
        let timings = &self.config.timings;
        let request = self
            .request
            .as_ref()
            .map(|r| r.sent + timings.attempt_limit());
        let action = match self.request {
            Some(_) => None,
            None => self.next_action().map(|(at, _)| at),
        };
        let term = self.tenure.as_ref().map(|t| match t.ending {
            true => t.valid_until,
            false => t.sent + timings.renew_deadline(),
        });
        [request, action, term, self.leave_by]
            .into_iter()
            .flatten()
            .min()
    }

    /// The lease that we hold.
    #[must_use]
    pub const fn tenure(&self) -> Option<&Tenure> {
        self.tenure.as_ref()
    }

    /// Who holds the lease, as far as we have seen.
    #[must_use]
    pub fn holder(&self) -> Option<&Identity> {
        self.sight.holder()
    }
}

#[derive(Clone, Copy, Debug)]
enum Next {
    Read,
    Acquire,
    Renew,
    Release,
    Leave,
}

// Inside.
impl Election {
    /// What time alone brings about.
    fn advance(&mut self, now: Moment) {
        self.check_tenure(now);
        if self.leave_by.is_some_and(|by| now >= by) {
            self.end_leaving();
        }
        while self.request.is_none()
            && let Some((at, next)) = self.next_action()
            && at <= now
        {
            match next {
                Next::Read => self.send_read(now),
                Next::Acquire => self.send_acquire(now),
                Next::Renew => self.send_renewal(now),
                Next::Release => self.send_release(now),
                Next::Leave => self.end_leaving(),
            }
        }
    }

    fn check_tenure(&mut self, now: Moment) {
        let Some(tenure) = &mut self.tenure else {
            return;
        };
        if now >= tenure.valid_until {
            self.tenure = None;
            self.lose(Loss::Expired);
        } else if now >= tenure.sent + self.config.timings.renew_deadline()
            && !mem::replace(&mut tenure.ending, true)
        {
            self.lose(Loss::RenewDeadline);
        }
    }

    /// A new term begins only when the owner stands again, for only it knows when its tree is empty.
    fn lose(&mut self, loss: Loss) {
        self.standing = false;
        self.outputs.push_back(Output::Lost(loss));
    }

    /// The next request to make, and when. One table for the deadline and the deed.
    fn next_action(&self) -> Option<(Moment, Next)> {
        let leaving = self.leave_by.is_some();
        if !self.standing && !leaving && self.sight.snapshot().is_none() {
            return None;
        }
        if leaving && self.nothing_to_release() {
            return Some((self.next_try, Next::Leave));
        }
        if self.read_first.is_some() || self.sight.snapshot().is_none() {
            return Some((self.next_try, Next::Read));
        }
        let write = if leaving {
            Some((self.next_try, Next::Release))
        } else if let Some(tenure) = &self.tenure {
            let stopped = tenure.ending && defect!(self.config.defect, NoRenewalWhileDraining);
            let due = tenure.sent + self.config.timings.renew_interval();
            (!stopped).then_some((due.max(self.next_try), Next::Renew))
        } else if self.standing {
            let (clear_at, _) = self.sight.clear();
            Some((clear_at.max(self.next_try), Next::Acquire))
        } else {
            None
        };
        let watch = match self.watch {
            Watch::On { .. } => None,
            Watch::Off { again_at } => Some((again_at.max(self.next_try), Next::Read)),
        };
        [write, watch]
            .into_iter()
            .flatten()
            .min_by_key(|(at, _)| *at)
    }

    fn nothing_to_release(&self) -> bool {
        let held = self
            .sight
            .record()
            .is_some_and(|r| self.wrote(r) && r.holder.is_some() && self.sight.is_newest_term(r));
        !held && self.read_first.is_none()
    }

    fn wrote(&self, record: &Record) -> bool {
        record
            .signed()
            .is_some_and(|s| s.instance == self.config.instance)
    }

    fn end_leaving(&mut self) {
        self.tenure = None;
        if self.leave_by.take().is_some() {
            self.outputs.push_back(Output::Left);
        }
    }
}
