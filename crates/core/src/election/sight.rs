//! What a candidate has seen of the lease, and from when on it may take it.

use core::time::Duration;

use super::{Claim, Config};
use crate::defect;
use crate::ids::{Identity, InstanceId, Version};
use crate::record::{Record, Snapshot};
use crate::spread::Spread;
use crate::time::Moment;

/// How a snapshot reached us.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    /// From the watch: nothing lies between this and the snapshot before it.
    Watch,
    /// From a read that was sent then: changes may have gone by unseen.
    Read {
        sent: Moment,
        /// We know that something went by unseen: a write of ours lost a race.
        raced: bool,
    },
}

#[derive(Clone, Debug)]
pub(super) struct Sight {
    known: Option<Known>,
    clear_at: Moment,
    claim: Claim,
    /// The duration of the last record that we saw, kept for when the record vanishes.
    promise: Option<Duration>,
    transitions: Option<u64>,
    last: Option<Last>,
    doubt: Option<Doubt>,
}

#[derive(Clone, Debug)]
struct Known {
    snapshot: Snapshot,
    since: Moment,
}

/// The last record that we saw, unless it is known to have been deleted.
#[derive(Clone, Copy, Debug)]
struct Last {
    transitions: u64,
    /// A soloist held it, as far as can be told. An edit that takes the signature away does not change
    /// that; only a takeover does, and every elector's takeover counts up the transitions.
    by_soloist: bool,
    instance: Option<InstanceId>,
}

/// A holder whose record was deleted or changed by another hand: until then it may still believe in it.
#[derive(Clone, Copy, Debug)]
struct Doubt {
    until: Moment,
    instance: Option<InstanceId>,
}

/// What a snapshot says to a candidate.
#[derive(Clone, Copy, Debug)]
enum Says {
    /// The last promise has ended, and everything shows that its holder knows it.
    Free(Claim),
    /// Somebody holds it, and came by it as it should be.
    Held(Duration),
    /// Another hand than the holder's has been at it. Whatever it says, the last promise that we saw is
    /// kept; and what it promises itself, if it does.
    Doubtful(Option<Duration>),
}

impl Sight {
    pub(super) const fn new() -> Self {
        Self {
            known: None,
            clear_at: Moment::NEVER,
            claim: Claim::FirstSight,
            promise: None,
            transitions: None,
            last: None,
            doubt: None,
        }
    }

    /// The newest state that we know of.
    pub(super) fn snapshot(&self) -> Option<&Snapshot> {
        self.known.as_ref().map(|k| &k.snapshot)
    }

    pub(super) fn record(&self) -> Option<&Record> {
        self.snapshot()?.record.as_ref()
    }

    pub(super) fn version(&self) -> Option<Version> {
        Some(self.snapshot()?.version)
    }

    pub(super) fn holder(&self) -> Option<&Identity> {
        self.record()?.holder.as_ref()
    }

    /// From when on a takeover is safe, and what it would be.
    pub(super) const fn clear(&self) -> (Moment, Claim) {
        (self.clear_at, self.claim)
    }

    /// The number of the next term: one more than the highest ever seen, also across a deletion.
    pub(super) fn next_transitions(&self) -> u64 {
        self.transitions.map_or(0, |n| n.saturating_add(1))
    }

    /// Whether the record is of the newest term that we have seen, and not of former times.
    pub(super) fn is_newest_term(&self, record: &Record) -> bool {
        self.transitions
            .is_none_or(|newest| record.transitions >= newest)
    }

    /// Our own write landed as `version`.
    pub(super) fn wrote(&mut self, now: Moment, config: &Config, version: Version, record: Record) {
        self.note(&record);
        self.promise = Some(config.timings.lease().get());
        self.clear_at = now;
        self.claim = match record.holder {
            Some(_) => Claim::Own,
            None => Claim::Released,
        };
        self.known = Some(Known {
            snapshot: Snapshot::new(version, Some(record)),
            since: now,
        });
    }

    /// A promise that must be kept although the record is ours now.
    pub(super) fn not_before(&mut self, clear_at: Moment) {
        self.set(clear_at, Claim::WaitedOut);
    }

    /// Takes in a snapshot; `false` if it is no news.
    pub(super) fn observe(
        &mut self,
        now: Moment,
        config: &Config,
        spread: &mut Spread,
        snapshot: Snapshot,
        source: Source,
    ) -> bool {
        if !self.is_news(&snapshot, source) {
            return false;
        }
        let count_from = match &self.known {
            Some(known) if defect!(config.defect, CountFromVersionBefore) => known.since,
            Some(_) | None => now,
        };
        match self.read(count_from, config, &snapshot) {
            Says::Free(claim) => {
                self.set(count_from, claim);
                self.promise.get_or_insert(config.timings.lease().get());
            }
            Says::Held(promise) => {
                self.settle_doubt(&snapshot);
                let spread = spread.up_to(config.timings.spread());
                self.set(count_from + promise + spread, Claim::Expired);
                self.promise = Some(promise);
            }
            Says::Doubtful(promise) => {
                self.doubt(count_from, config, &snapshot, promise, source);
            }
        }
        match &snapshot.record {
            Some(record) => self.note(record),
            None => self.last = None,
        }
        if defect!(config.defect, TrustTimestamps)
            && let Some(end) = snapshot.timestamps_say()
        {
            self.clear_at = end;
        }
        self.known = Some(Known {
            snapshot,
            since: now,
        });
        true
    }

    fn is_news(&mut self, snapshot: &Snapshot, source: Source) -> bool {
        let Some(known) = &mut self.known else {
            return true;
        };
        if snapshot.version == known.snapshot.version {
            return snapshot.holder_gone && !known.snapshot.holder_gone;
        }
        if snapshot.version > known.snapshot.version {
            let still_absent = snapshot.record.is_none() && known.snapshot.record.is_none();
            if still_absent && !matches!(source, Source::Read { raced: true, .. }) {
                known.snapshot.version = snapshot.version;
                return false;
            }
            return true;
        }
        match source {
            Source::Watch => false,
            // Older than what we know: either the watch overtook this read, or the store was set back
            // to an older state (restored from a backup) and what we knew is no longer there.
            Source::Read { sent, .. } => known.since <= sent,
        }
    }

    fn read(&self, now: Moment, config: &Config, snapshot: &Snapshot) -> Says {
        let Some(record) = &snapshot.record else {
            return Says::Doubtful(None);
        };
        let promise = if defect!(config.defect, IgnoreRecordDuration) {
            config.timings.lease().get()
        } else {
            record.promise(config.timings.lease())
        };
        let held = record.holder.as_ref().map(|_| promise);
        let set_back = self.version() > Some(snapshot.version);
        if set_back || self.is_of_former_times(record) {
            return Says::Doubtful(held);
        }
        if snapshot.holder_gone && held.is_some() {
            return Says::Free(Claim::HolderGone);
        }
        if record.released_by_its_holder() {
            return Says::Free(Claim::Released);
        }
        let signed = record.signed();
        if signed.is_some_and(|s| s.instance == config.instance)
            || (defect!(config.defect, TrustIdentity)
                && record.holder.as_ref() == Some(&config.identity))
        {
            // A write of ours may have landed late, after we saw another one's term.
            let late = self.known.is_some() && now < self.clear_at;
            return match late {
                true => Says::Doubtful(None),
                false => Says::Free(Claim::Own),
            };
        }
        match held {
            None if self.believes_emptiness(config, record) => Says::Free(Claim::Released),
            None => Says::Doubtful(None),
            Some(_) if config.pod.is_some() && signed.is_some_and(|s| s.pod == config.pod) => {
                Says::Free(Claim::FormerSelf)
            }
            Some(promise) if self.in_order(record) => Says::Held(promise),
            Some(promise) => Says::Doubtful(Some(promise)),
        }
    }

    /// Whether somebody wrote back a record of former times: terms only count up, and each has one holder.
    fn is_of_former_times(&self, record: &Record) -> bool {
        self.last.is_some_and(|last| {
            let signed = record.signed().map(|s| s.instance);
            let another = last.instance.is_some() && signed.is_some() && signed != last.instance;
            record.transitions < last.transitions
                || (record.transitions == last.transitions && another)
        })
    }

    /// Whether a held record follows from the one before: signed, or another elector's own renewal or
    /// takeover. Else somebody has edited it over a holder that may be alive.
    fn in_order(&self, record: &Record) -> bool {
        let follows = self.last.is_none_or(|last| {
            let renewed = !last.by_soloist && self.holder() == record.holder.as_ref();
            renewed || record.transitions > last.transitions
        });
        follows || record.signed().is_some()
    }

    /// Whether an empty holder that no soloist released is client-go's own release: the last holder that
    /// we saw was not a soloist, or there has been another one since. Not after a deletion: nobody can
    /// tell then whose record it is.
    fn believes_emptiness(&self, config: &Config, record: &Record) -> bool {
        if defect!(config.defect, BelieveAnyEmptyHolder) {
            return true;
        }
        record.released_like_client_go()
            && self
                .last
                .is_some_and(|last| !last.by_soloist || record.transitions > last.transitions)
    }

    fn doubt(
        &mut self,
        now: Moment,
        config: &Config,
        snapshot: &Snapshot,
        promise: Option<Duration>,
        source: Source,
    ) {
        let lease = config.timings.lease();
        let record = snapshot.record.as_ref();
        let own = promise.map_or(now, |promise| now + promise);
        match self.promise {
            None => {
                // A first sight. If nobody has left a trace, it is a first start, and quick.
                let trace = record.filter(|r| r.signature.is_some());
                match trace {
                    None => self.set(own, Claim::FirstSight),
                    Some(record) => self.set(now + record.promise(lease), Claim::WaitedOut),
                }
                self.promise = record.map(|r| r.promise(lease));
            }
            Some(last) => {
                let former = match source {
                    // The record that we saw last is the last that there was.
                    Source::Watch => self.clear_at,
                    // It may have been renewed, or another one may have held it, since.
                    Source::Read { .. } => now + last,
                };
                let instance = self.last.and_then(|last| last.instance);
                self.doubt = Some(match self.doubt {
                    Some(doubt) if now < doubt.until => Doubt {
                        until: doubt.until.max(former),
                        // About two at once: neither can settle it for the other.
                        instance: doubt.instance.filter(|one| Some(*one) == instance),
                    },
                    Some(_) | None => Doubt {
                        until: former,
                        instance,
                    },
                });
                self.set(former.max(own), Claim::WaitedOut);
                self.promise = Some(promise.map_or(last, |promise| promise.max(last)));
            }
        }
    }

    /// The holder that we are in doubt about has written again: it knows what happened.
    fn settle_doubt(&mut self, snapshot: &Snapshot) {
        let signed = snapshot.record.as_ref().and_then(Record::signed);
        let writer = signed.map(|s| s.instance);
        self.doubt
            .take_if(|doubt| writer.is_some() && doubt.instance == writer);
    }

    fn note(&mut self, record: &Record) {
        let signed = record.signed();
        let same_term = |last: &Last| record.transitions <= last.transitions;
        let last = self.last.filter(same_term);
        self.transitions = self.transitions.max(Some(record.transitions));
        self.last = Some(Last {
            transitions: record.transitions,
            by_soloist: signed.is_some() || last.is_some_and(|last| last.by_soloist),
            instance: signed
                .map(|s| s.instance)
                .or(last.and_then(|last| last.instance)),
        });
    }

    fn set(&mut self, clear_at: Moment, claim: Claim) {
        self.clear_at = match self.doubt {
            Some(doubt) => clear_at.max(doubt.until),
            None => clear_at,
        };
        self.claim = claim;
    }
}
