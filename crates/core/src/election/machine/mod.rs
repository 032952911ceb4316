//! The election's state machine: commands and events in, what to do next out.

mod orders;
mod requests;
mod rights;
mod terms;

use alloc::collections::VecDeque;
use core::time::Duration;

use super::knowledge::Knowledge;
use super::verdict::Source;
use super::{Answer, Claim, Config, Loss, Output, Purpose, StoreCommand};
use crate::ids::{Identity, OpId, Term, Token, Version, WatchId};
use crate::record::{Record, Snapshot};
use crate::spread::Spread;
use crate::time::Moment;
use orders::Heeded;
use requests::{Kind, Requests, Watch};
use rights::{Right, Rights};

/// One replica's part in the election of a lease. See the [module](super) for how to drive it.
#[derive(Debug)]
pub struct Election {
    config: Config,
    spread: Spread,
    knowledge: Knowledge,
    phase: Phase,
    /// The last term that we tried to begin, until we know that it is over.
    own_term: Option<Term>,
    requests: Requests,
    rights: Rights,
    heeded: Heeded,
    /// See [`Election::give_way`].
    gives_way: bool,
    outputs: VecDeque<Output>,
}

/// What we are in the election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// We take no part, and only watch.
    Idle,
    /// We take the lease as soon as it is free.
    Candidate,
    /// We hold the lease.
    Leading(Tenure),
    /// We hold the lease, and the owner has been told that the term ends. Renewed until the owner leaves.
    Ending(Tenure),
    /// The owner's tree is empty, and what we hold is being released, for as long as it is worth trying.
    Leaving { by: Moment, stand_after: bool },
}

/// A lease that we hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tenure {
    term: Term,
    token: Token,
    /// When the last write that is known to have landed was sent.
    sent: Moment,
    valid_until: Moment,
    /// The last write that is known to have landed, and as which version, or as which version at the latest.
    landed: (OpId, Version),
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

// Commands.
impl Election {
    /// A replica that does not take part yet: see [`Election::stand`].
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            spread: Spread::from_seed(config.seed),
            config,
            knowledge: Knowledge::new(),
            phase: Phase::Idle,
            own_term: None,
            requests: Requests::new(),
            rights: Rights::new(),
            heeded: Heeded::NOTHING,
            gives_way: false,
            outputs: VecDeque::new(),
        }
    }

    /// Takes part from now on: watches the lease and takes it when it is free. To be called again after
    /// every [`Output::Lost`], when our tree is empty; a release under way comes first.
    pub fn stand(&mut self, now: Moment) {
        match &mut self.phase {
            Phase::Idle => self.phase = Phase::Candidate,
            Phase::Candidate | Phase::Leading(_) => {}
            Phase::Ending(_) => self.begin_leaving(now, true),
            Phase::Leaving { stand_after, .. } => *stand_after = true,
        }
        self.advance(now);
    }

    /// Announces the end of our term, if we have one: [`Loss::Resigned`]. The lease is kept and
    /// renewed until [`Election::leave`].
    pub fn resign(&mut self, now: Moment) {
        if let Phase::Leading(tenure) = self.phase {
            self.phase = Phase::Ending(tenure);
            self.tell_loss(Loss::Resigned);
        }
        self.advance(now);
    }

    /// Takes part no more: releases what we hold, also what a write still under way may get us, then
    /// says [`Output::Left`]. Goes on watching. To be called only when our tree is empty.
    pub fn leave(&mut self, now: Moment) {
        self.begin_leaving(now, false);
        if !self.requests.is_writing() && self.nothing_to_release() {
            self.end_leaving();
        }
        self.advance(now);
    }

    /// Names who is to lead next, for the release of our term.
    pub fn name_heir(&mut self, heir: Identity) {
        if self.tenure().is_some() {
            self.heeded.heir = Some(heir);
        }
    }

    /// From now on, or no longer: lets any other replica take a free lease first, for as long as an heir would get, because this one
    /// will soon end.
    pub fn give_way(&mut self, gives_way: bool) {
        self.gives_way = gives_way;
    }

    fn begin_leaving(&mut self, now: Moment, stand_after: bool) {
        let by = match self.phase {
            Phase::Leaving { by, .. } => by,
            Phase::Idle | Phase::Candidate | Phase::Leading(_) | Phase::Ending(_) => {
                now + 2 * self.config.timings.attempt_limit()
            }
        };
        self.phase = Phase::Leaving { by, stand_after };
        self.requests.not_before = self.requests.not_before.min(now);
    }

    fn end_leaving(&mut self) {
        if let Phase::Leaving { stand_after, .. } = self.phase {
            self.own_term = None;
            self.heeded.heir = None;
            self.phase = match stand_after {
                true => Phase::Candidate,
                false => Phase::Idle,
            };
            self.outputs.push_back(Output::Left);
        }
    }
}

// Events.
impl Election {
    /// The answer to a request.
    pub fn handle_answer(&mut self, now: Moment, op: OpId, answer: Answer) {
        let Some(request) = self.requests.in_flight.take_if(|r| r.op == op) else {
            return;
        };
        match (request.kind, answer) {
            (Kind::Read { raced }, Answer::Read(snapshot)) => {
                self.rights.granted(now, Right::Read);
                self.requests.read_first = None;
                self.requests.not_before = now;
                self.requests.looked_at = now;
                if let Some(command) = self.requests.begin_watch(now, op, raced, &snapshot) {
                    self.ask(command);
                }
                let sent = request.sent;
                self.observe(now, snapshot, Source::Read { sent, raced });
            }
            (Kind::Write(write), Answer::Written(version)) => {
                self.landed(now, request.sent, *write, version);
            }
            (Kind::Shown, _) => {}
            (Kind::Write(write), Answer::LostRace) => {
                self.rights.granted(now, Right::Write);
                self.requests.forget(op);
                self.lost_race(now, request.sent, &write);
            }
            (Kind::Write(_), Answer::Unavailable) => {
                self.requests.forget(op);
                self.pause(request.sent);
            }
            (_, Answer::Throttled { wait }) => {
                self.requests.forget(op);
                self.pause(request.sent);
                self.wait_as_asked(now, wait);
            }
            (kind, Answer::Refused) => {
                self.requests.forget(op);
                let right = match kind {
                    Kind::Read { .. } => Right::Read,
                    Kind::Write(_) | Kind::Shown => Right::Write,
                };
                let for_good = self.rights.refused(now, right);
                self.outputs.push_back(Output::Refused { op, for_good });
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
            ) => self.unanswered(request.sent, &kind),
        }
        self.advance(now);
    }

    /// A change that the watch reported. It is as good as the answer to the write that made it, and often comes first.
    pub fn handle_watch(&mut self, now: Moment, watch: WatchId, snapshot: Snapshot) {
        if self.requests.watches(watch) {
            let is_new = self.knowledge.version() < Some(snapshot.version);
            match is_new
                .then(|| self.requests.take_shown(&snapshot))
                .flatten()
            {
                Some((sent, write)) => self.landed(now, sent, write, snapshot.version),
                None => self.observe(now, snapshot, Source::Watch),
            }
        }
        self.advance(now);
    }

    /// The watch has ended or is known to have missed something.
    pub fn handle_watch_broken(&mut self, now: Moment, watch: WatchId) {
        let pause = self.retry_pause();
        self.requests.watch_broke(now, watch, pause);
        self.advance(now);
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Moment) {
        let limit = self.config.timings.attempt_limit();
        if let Some(request) = self.requests.in_flight.take_if(|r| now >= r.sent + limit) {
            self.ask(StoreCommand::Abandon { op: request.op });
            self.unanswered(request.sent, &request.kind);
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
        let request = match &self.requests.in_flight {
            Some(request) => Some(request.sent + timings.attempt_limit()),
            None => self.next_request().map(|(at, _)| at),
        };
        let phase = match self.phase {
            Phase::Idle | Phase::Candidate => None,
            Phase::Leading(tenure) => Some(tenure.sent + timings.renew_deadline()),
            Phase::Ending(tenure) => Some(tenure.valid_until),
            Phase::Leaving { by, .. } => Some(by),
        };
        [request, phase].into_iter().flatten().min()
    }

    /// The lease that we hold.
    #[must_use]
    pub const fn tenure(&self) -> Option<&Tenure> {
        match &self.phase {
            Phase::Leading(tenure) | Phase::Ending(tenure) => Some(tenure),
            Phase::Idle | Phase::Candidate | Phase::Leaving { .. } => None,
        }
    }

    /// Whether a term may begin with the next answer.
    #[must_use]
    pub const fn is_candidate(&self) -> bool {
        matches!(self.phase, Phase::Candidate)
    }

    /// A candidate: over how long it spreads its takeover after a release.
    #[must_use]
    pub fn crowd(&self) -> Option<Duration> {
        self.is_candidate().then(|| self.requests.crowd())
    }

    /// Who holds the lease, as far as we have seen.
    #[must_use]
    pub fn holder(&self) -> Option<&Identity> {
        self.knowledge.holder()
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

// What time brings about.
impl Election {
    fn advance(&mut self, now: Moment) {
        self.keep_deadlines(now);
        self.heed_orders(now);
        while self.requests.in_flight.is_none()
            && let Some((at, next)) = self.next_request()
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

    fn keep_deadlines(&mut self, now: Moment) {
        match self.phase {
            Phase::Idle | Phase::Candidate => {}
            Phase::Leading(tenure) | Phase::Ending(tenure) if now >= tenure.valid_until => {
                self.lose(Loss::Expired);
            }
            Phase::Leading(tenure) if now >= tenure.sent + self.config.timings.renew_deadline() => {
                self.phase = Phase::Ending(tenure);
                self.tell_loss(Loss::RenewDeadline);
            }
            Phase::Leading(_) | Phase::Ending(_) => {}
            Phase::Leaving { by, .. } if now >= by => self.end_leaving(),
            Phase::Leaving { .. } => {}
        }
    }

    /// The next request to make, and when. One table for the deadline and the deed.
    fn next_request(&self) -> Option<(Moment, Next)> {
        let requests = &self.requests;
        let ready = requests.not_before;
        let leaving = matches!(self.phase, Phase::Leaving { .. });
        if leaving && self.nothing_to_release() {
            return Some((ready, Next::Leave));
        }
        if self.knowledge.snapshot().is_none() {
            return (self.phase != Phase::Idle).then_some((ready, Next::Read));
        }
        if let Some(read_first) = requests.read_first {
            return Some((read_first.at(ready), Next::Read));
        }
        let write = match self.phase {
            Phase::Idle => None,
            Phase::Candidate => {
                let free_at = self.knowledge.free_at().max(requests.after_the_crowd);
                let free_at = free_at.max(self.heeded.after_the_heir);
                let others_first = self.others_first();
                match self.knowledge.pause_ends() {
                    None => Some(((free_at + others_first).max(ready), Next::Acquire)),
                    // Without a takeover that fails, nobody would notice a watch that has died silently.
                    Some(ends) => {
                        let look = requests.looked_at + self.config.timings.lease().get();
                        let free_at = free_at.max(ends) + others_first;
                        let acquire = (free_at.max(ready), Next::Acquire);
                        [acquire, (look.max(ready), Next::Read)]
                            .into_iter()
                            .min_by_key(|(at, _)| *at)
                    }
                }
            }
            Phase::Leading(tenure) | Phase::Ending(tenure) => {
                let due = tenure.sent + self.config.timings.renew_interval();
                Some((due.max(ready), Next::Renew))
            }
            Phase::Leaving { .. } => Some((ready, Next::Release)),
        };
        let watch = match requests.watch {
            Watch::On { .. } => None,
            Watch::Off { again_at } => Some((again_at.max(ready), Next::Read)),
        };
        [write, watch]
            .into_iter()
            .flatten()
            .min_by_key(|(at, _)| *at)
    }

    /// How long the others may take a free lease before us. What nobody but us can take at once, or should, is not put off.
    fn others_first(&self) -> Duration {
        let only_ours = matches!(self.knowledge.claim(), Claim::Own | Claim::FormerSelf);
        match self.gives_way && !only_ours && !self.is_named_heir() {
            true => self.config.timings.heir_patience(),
            false => Duration::ZERO,
        }
    }

    fn nothing_to_release(&self) -> bool {
        let held = self.knowledge.record().is_some_and(|r| {
            let of_own_term = self.own_term == Some(Term::new(r.transitions));
            self.wrote(r) && r.holder.is_some() && of_own_term
        });
        !held && self.requests.read_first.is_none()
    }

    fn wrote(&self, record: &Record) -> bool {
        record
            .signed()
            .is_some_and(|s| s.instance == self.config.instance)
    }

    /// The term has ended. A new one begins only when the owner stands again, for only it knows when its tree is empty.
    fn lose(&mut self, loss: Loss) {
        self.phase = Phase::Idle;
        self.tell_loss(loss);
    }

    fn tell_loss(&mut self, loss: Loss) {
        self.outputs.push_back(Output::Lost(loss));
    }
}
