//! By what right a replica runs its child: it is elected, or every replica may.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::time::Duration;

use crate::election::{Answer, Claim, Elected, Election, Output, Tenure};
use crate::ids::{Identity, OpId, Term, Token, WatchId};
use crate::record::Snapshot;
use crate::time::Moment;

/// Takes the place of the election in a [`Node`](super::Node).
#[derive(Debug)]
pub(super) enum Candidacy {
    /// One of all replicas runs its child.
    Contested(Box<Election>),
    /// Every replica does.
    Unopposed(Unopposed),
}

/// Whoever stands is elected at once, and for ever: nothing is asked of a store, and nothing can be lost.
#[derive(Debug, Default)]
pub(super) struct Unopposed {
    standing: bool,
    terms: u64,
    outputs: VecDeque<Output>,
}

impl Unopposed {
    fn stand(&mut self) {
        if self.standing {
            return;
        }
        self.standing = true;
        self.terms += 1;
        self.outputs.push_back(Output::Elected(Elected {
            term: Term::new(self.terms),
            // It protects nothing: others run as well. The child is not told.
            token: Token::new(0),
            valid_until: Moment::NEVER,
            claim: Claim::FirstSight,
        }));
    }

    fn leave(&mut self) {
        self.standing = false;
        self.outputs.push_back(Output::Left);
    }
}

impl Candidacy {
    pub(super) fn stand(&mut self, now: Moment) {
        match self {
            Self::Contested(election) => election.stand(now),
            Self::Unopposed(right) => right.stand(),
        }
    }

    pub(super) fn resign(&mut self, now: Moment) {
        match self {
            Self::Contested(election) => election.resign(now),
            // Nobody waits for it.
            Self::Unopposed(_) => {}
        }
    }

    pub(super) fn leave(&mut self, now: Moment) {
        match self {
            Self::Contested(election) => election.leave(now),
            Self::Unopposed(right) => right.leave(),
        }
    }

    pub(super) fn name_heir(&mut self, heir: Identity) {
        if let Self::Contested(election) = self {
            election.name_heir(heir);
        }
    }

    pub(super) fn give_way(&mut self, gives_way: bool) {
        if let Self::Contested(election) = self {
            election.give_way(gives_way);
        }
    }

    pub(super) fn handle_answer(&mut self, now: Moment, op: OpId, answer: Answer) {
        if let Self::Contested(election) = self {
            election.handle_answer(now, op, answer);
        }
    }

    pub(super) fn handle_watch(&mut self, now: Moment, watch: WatchId, snapshot: Snapshot) {
        if let Self::Contested(election) = self {
            election.handle_watch(now, watch, snapshot);
        }
    }

    pub(super) fn handle_watch_broken(&mut self, now: Moment, watch: WatchId) {
        if let Self::Contested(election) = self {
            election.handle_watch_broken(now, watch);
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Moment) {
        if let Self::Contested(election) = self {
            election.handle_timeout(now);
        }
    }

    pub(super) fn poll_output(&mut self) -> Option<Output> {
        match self {
            Self::Contested(election) => election.poll_output(),
            Self::Unopposed(right) => right.outputs.pop_front(),
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Moment> {
        self.election()?.next_deadline()
    }

    pub(super) const fn tenure(&self) -> Option<&Tenure> {
        match self {
            Self::Contested(election) => election.tenure(),
            Self::Unopposed(_) => None,
        }
    }

    pub(super) fn is_candidate(&self) -> bool {
        self.election().is_some_and(Election::is_candidate)
    }

    pub(super) fn crowd(&self) -> Option<Duration> {
        self.election()?.crowd()
    }

    pub(super) fn holder(&self) -> Option<&Identity> {
        self.election()?.holder()
    }

    fn election(&self) -> Option<&Election> {
        match self {
            Self::Contested(election) => Some(election),
            Self::Unopposed(_) => None,
        }
    }
}
