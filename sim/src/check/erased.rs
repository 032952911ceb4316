//! Terms whose record is gone from the store although the holder did not let go.

use super::{Checks, Holding, ONE_WAKE_UP};
use crate::clock::{Nanos, nanos};
use crate::hosts::Soloist;
use crate::queue::SoloistId;
use crate::summary::Counter;
use crate::world::World;
use soloist_core::ids::Version;
use soloist_core::record::{Record, Signature};

/// A term whose record was deleted, edited or set back while its holder may believe in it.
pub(super) struct Erased {
    holding: Holding,
    /// The holder's belief is over by then: it cannot renew what is not there.
    until: Nanos,
    /// The record still shows whose it was to whoever reads it by our rules.
    leaves_trace: bool,
    pub(super) by: Eraser,
    /// The terms that the record has shown instead since then, by another hand than their leaders'.
    in_favour_of: Vec<Holding>,
    /// Terms that began from then on are led by somebody who could not know of this one, or follow such a term.
    claimed_from: Option<Nanos>,
    /// Replicas that knew of nothing that the store has lost, and go on counting from what it has kept.
    unaware: Vec<SoloistId>,
    /// The version that shows another term, with a higher number, instead.
    shows_later_term: Option<Version>,
    /// Replicas that had never seen that other term, and so take it for the successor of this one.
    misled: Vec<SoloistId>,
    /// When the holder was shown it.
    pub(super) shown: Option<Nanos>,
}

/// Who leads instead.
#[derive(Clone, Copy)]
pub(super) enum Claim {
    Soloist { holding: Holding, began: Nanos },
    ClientGo,
}

/// What made a record vanish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Eraser {
    Operator,
    SetBack,
    /// After the store was set back, a write went through that was meant for a state that it has lost, or for one from
    /// which its holder had gone on: the same version was there again.
    StaleWrite,
}

impl Eraser {
    pub(super) const fn counter(self) -> Counter {
        match self {
            Self::Operator => Counter::ExcusedDeletion,
            Self::SetBack | Self::StaleWrite => Counter::ExcusedSetBack,
        }
    }
}

impl Checks {
    /// The holder has written the record again, so it is there.
    pub(crate) fn renewed(&mut self, holding: Holding) {
        self.erased.retain(|e| e.holding != holding);
    }

    /// The holder has been shown that its lease is gone.
    pub(super) fn shown(&mut self, holding: Holding, now: Nanos) {
        for erased in &mut self.erased {
            if erased.holding == holding {
                erased.shown.get_or_insert(now);
            }
        }
    }

    /// A replica is shown something that the store has lost.
    pub(crate) fn shown_what_was_lost(&mut self, id: SoloistId) {
        for erased in &mut self.erased {
            erased.unaware.retain(|unaware| *unaware != id);
        }
    }

    /// A replica hears of this version by its watch, right after the one before: no term can have come and gone in
    /// between.
    pub(crate) fn shown_in_sequence(&mut self, id: SoloistId, version: Version) {
        for erased in &mut self.erased {
            if erased.shows_later_term == Some(version) {
                erased.misled.retain(|misled| *misled != id);
            }
        }
    }

    /// A soloist leads: what it has never seen it could not wait for.
    pub(super) fn claimed(&mut self, soloist: &Soloist, began: Nanos) {
        for erased in &mut self.erased {
            let never_saw = !erased.leaves_trace && !soloist.seen.contains(&erased.holding);
            let could_not_know = never_saw
                || erased.unaware.contains(&soloist.id)
                || erased.misled.contains(&soloist.id);
            if could_not_know && erased.holding.0 != soloist.instance {
                erased.claimed_from.get_or_insert(began);
            }
        }
    }

    /// Somebody leads who does not follow our rules, or whose write was meant for a state that the store has lost.
    pub(crate) fn claimed_by_anybody(&mut self, now: Nanos) {
        for erased in &mut self.erased {
            erased.claimed_from.get_or_insert(now);
        }
    }

    /// The loss of a term's record that explains why another one leads.
    pub(super) fn find_erased(&self, lost: Holding, claim: Claim, now: Nanos) -> Option<&Erased> {
        self.erased.iter().find(|e| {
            let explains = match claim {
                Claim::Soloist { holding, began } => {
                    e.claimed_from.is_some_and(|from| began >= from)
                        || e.in_favour_of.contains(&holding)
                }
                Claim::ClientGo => e.claimed_from.is_some(),
            };
            e.holding == lost && now <= e.until && explains
        })
    }
}

impl World {
    /// The record has changed from `before` by another hand than an elector's.
    pub(crate) fn note_erased(&mut self, before: Option<Record>, by: Eraser) {
        let unaware = self.unaware(by);
        let after = self.store.record();
        let now_shows = after.and_then(promised_to);
        for earlier in &mut self.checks.erased {
            earlier.unaware.extend(&unaware);
            let other = now_shows.filter(|other| *other != earlier.holding);
            earlier.in_favour_of.extend(other);
        }
        let Some(signature) = before.as_ref().and_then(promise_of) else {
            return;
        };
        // A store that was set back has lost renewals, also if it had been made to show the same record again.
        if before.as_ref() == after && by != Eraser::SetBack {
            return;
        }
        let holding = (signature.instance, signature.term);
        let later = after
            .and_then(|r| r.signed())
            .map(|s| (s.instance, s.term))
            .filter(|(instance, term)| *instance != holding.0 && *term > holding.1);
        let lease = nanos(signature.duration.get());
        self.checks.erased.push(Erased {
            holding,
            until: self.now + lease + lease / 100 + ONE_WAKE_UP,
            leaves_trace: now_shows == Some(holding),
            by,
            in_favour_of: now_shows
                .filter(|other| *other != holding)
                .into_iter()
                .collect(),
            unaware,
            shows_later_term: later.map(|_| self.store.newest()),
            misled: later.map_or(Vec::new(), |later| self.who_never_saw(later)),
            claimed_from: (by == Eraser::StaleWrite).then_some(self.now),
            shown: None,
        });
    }
}

impl World {
    fn who_never_saw(&self, holding: Holding) -> Vec<SoloistId> {
        let soloists = self.hosts.iter().filter_map(|h| h.soloist.as_ref());
        let strangers = soloists.filter(|s| !s.seen.contains(&holding));
        strangers.map(|s| s.id).collect()
    }

    fn unaware(&self, by: Eraser) -> Vec<SoloistId> {
        if by != Eraser::SetBack {
            return Vec::new();
        }
        let kept = self.store.read().version.get();
        let soloists = self.hosts.iter().filter_map(|h| h.soloist.as_ref());
        let unaware = soloists.filter(|s| s.newest.version <= kept);
        unaware.map(|s| s.id).collect()
    }
}

/// Who was promised the term that this record shows, unless it was released.
pub(super) fn promised_to(record: &Record) -> Option<Holding> {
    promise_of(record).map(|s| (s.instance, s.term))
}

/// The signature of whoever was promised this term, unless it was released.
fn promise_of(record: &Record) -> Option<&Signature> {
    let signature = record.signature.as_ref()?;
    let of_this_term = signature.term.get() == record.transitions;
    (of_this_term && !signature.released).then_some(signature)
}
