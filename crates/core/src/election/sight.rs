//! What a candidate has seen of the lease, and from when on it may take it.

use core::time::Duration;

use super::{Claim, Config};
use crate::defect;
use crate::ids::{Identity, Version};
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

impl Source {
    const fn may_have_missed_something(self) -> bool {
        matches!(self, Self::Read { .. })
    }
}

#[derive(Clone, Debug)]
pub(super) struct Sight {
    known: Option<Known>,
    clear_at: Moment,
    claim: Claim,
    /// The duration of the last record that we saw, kept for when the record vanishes.
    promise: Option<Duration>,
    transitions: Option<u64>,
}

#[derive(Clone, Debug)]
struct Known {
    snapshot: Snapshot,
    since: Moment,
}

impl Sight {
    pub(super) const fn new() -> Self {
        Self {
            known: None,
            clear_at: Moment::NEVER,
            claim: Claim::FirstSight,
            promise: None,
            transitions: None,
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

    /// The number of the next term: one more than the last one seen, also across a deletion.
    pub(super) fn next_transitions(&self) -> u64 {
        self.transitions.map_or(0, |n| n.saturating_add(1))
    }

    /// Our own write landed as `version`.
    pub(super) fn wrote(&mut self, now: Moment, config: &Config, version: Version, record: Record) {
        self.transitions = Some(record.transitions);
        self.promise = Some(config.timings.lease().get());
        self.clear_at = now;
        self.claim = if record.holder.is_none() {
            Claim::Released
        } else {
            Claim::Own
        };
        self.known = Some(Known {
            snapshot: Snapshot::new(version, Some(record)),
            since: now,
        });
    }

    /// A promise that must be kept although the record is ours now.
    pub(super) fn not_before(&mut self, clear_at: Moment) {
        self.wait(clear_at, Claim::WaitedOut);
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
        let count_from = match source {
            Source::Read { sent, .. } if defect!(config.defect, CountFromRequest) => sent,
            Source::Read { .. } | Source::Watch => now,
        };
        match &snapshot.record {
            None => self.observe_absence(count_from, source),
            Some(record) if snapshot.holder_gone && record.holder.is_some() => {
                self.free(count_from, Claim::HolderGone);
                self.promise = Some(record.promise(config.timings.lease()));
                self.transitions = Some(record.transitions);
            }
            Some(record) => {
                self.observe_record(count_from, config, spread, record, source);
                self.transitions = Some(record.transitions);
            }
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
            Source::Read { sent, .. } => {
                snapshot.version < known.snapshot.version && known.since <= sent
            }
        }
    }

    fn observe_absence(&mut self, now: Moment, source: Source) {
        match self.promise {
            None => self.free(now, Claim::FirstSight),
            Some(promise) if source.may_have_missed_something() => {
                self.wait(now + promise, Claim::WaitedOut);
            }
            // The last record that we saw was the last there was, so its promise is all there is to keep.
            Some(_) => self.wait(self.clear_at, Claim::WaitedOut),
        }
    }

    fn observe_record(
        &mut self,
        now: Moment,
        config: &Config,
        spread: &mut Spread,
        record: &Record,
        source: Source,
    ) {
        let last_promise = self.promise;
        let promise = if defect!(config.defect, IgnoreRecordDuration) {
            config.timings.lease().get()
        } else {
            record.promise(config.timings.lease())
        };
        let signed = record.signed();
        let ours = signed.is_some_and(|s| s.instance == config.instance)
            || (defect!(config.defect, TrustIdentity)
                && record.holder.as_ref() == Some(&config.identity));
        let former_self = record.holder.is_some()
            && config.pod.is_some()
            && signed.is_some_and(|s| s.pod == config.pod);

        if record.released_by_its_holder() {
            self.free(now, Claim::Released);
        } else if ours {
            self.free(now, Claim::Own);
        } else if former_self {
            self.free(now, Claim::FormerSelf);
        } else if record.holder.is_some() {
            let until = now + promise + spread.up_to(config.timings.spread());
            let in_order = signed.is_some() || self.holder() == record.holder.as_ref();
            match last_promise {
                // An unsigned record under a new name may be an operator's edit over a living holder.
                Some(last) if !in_order => {
                    let missed = source.may_have_missed_something();
                    let former = if missed { now + last } else { self.clear_at };
                    self.wait(until.max(former), Claim::Expired);
                }
                Some(_) | None => self.wait(until, Claim::Expired),
            }
        } else if self.believes_emptiness(config, record) {
            self.free(now, Claim::Released);
        } else {
            match last_promise {
                // No record before this one, and no trace of a holder in it: a first start.
                None if record.signature.is_none() => self.free(now, Claim::FirstSight),
                None => self.wait(now + promise, Claim::WaitedOut),
                Some(last) if source.may_have_missed_something() => {
                    self.wait(now + last.max(promise), Claim::WaitedOut);
                }
                Some(_) => self.wait(self.clear_at, Claim::WaitedOut),
            }
        }
        self.promise = Some(match record.holder {
            Some(_) => promise,
            None => last_promise.unwrap_or(config.timings.lease().get()),
        });
    }

    /// Whether an empty holder that no soloist released is client-go's own release: the last holder that
    /// we saw was not a soloist, or there has been another one since.
    fn believes_emptiness(&self, config: &Config, record: &Record) -> bool {
        if defect!(config.defect, BelieveAnyEmptyHolder) {
            return true;
        }
        record.released_like_client_go()
            && self
                .record()
                .is_none_or(|last| last.signed().is_none() || record.transitions > last.transitions)
    }

    fn free(&mut self, now: Moment, claim: Claim) {
        self.clear_at = now;
        self.claim = claim;
    }

    fn wait(&mut self, until: Moment, claim: Claim) {
        self.clear_at = until;
        self.claim = claim;
    }
}
