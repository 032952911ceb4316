//! What a candidate knows of the lease, and from when on it may take it.

use core::time::Duration;

use super::promises::{Holder, Promises};
use super::verdict::{Before, HolderNow, Known, LastTerm, Source, Verdict, judge};
use super::{Claim, Config};
use crate::ids::{Identity, Term, Version};
use crate::orders::{Pause, WallTime};
use crate::record::{Record, Snapshot};
use crate::spread::Spread;
use crate::time::Moment;

/// Everything that the election remembers of what it was shown.
#[derive(Clone, Debug)]
pub(super) struct Knowledge {
    newest: Option<(Snapshot, Moment)>,
    last: Option<LastTerm>,
    highest_transitions: Option<u64>,
    promises: Promises,
    /// The promise of the last record that we saw, for whoever may have held the lease unseen.
    usual: Option<Duration>,
    free_at: Moment,
    claim: Claim,
    /// The pause in the record, and when it ends by our clock.
    pause: Option<(Pause, Moment)>,
}

impl Knowledge {
    pub(super) const fn new() -> Self {
        Self {
            newest: None,
            last: None,
            highest_transitions: None,
            promises: Promises::NONE,
            usual: None,
            free_at: Moment::NEVER,
            claim: Claim::FirstSight,
            pause: None,
        }
    }

    /// The newest state that we know of.
    pub(super) fn snapshot(&self) -> Option<&Snapshot> {
        self.newest.as_ref().map(|(snapshot, _)| snapshot)
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

    /// From when on nobody else can believe in the lease.
    pub(super) const fn free_at(&self) -> Moment {
        self.free_at
    }

    /// What a takeover would be.
    pub(super) const fn claim(&self) -> Claim {
        self.claim
    }

    /// The pause that holds.
    pub(super) fn pause(&self, now: Moment) -> Option<Pause> {
        let (pause, ends) = self.pause?;
        (now < ends).then_some(pause)
    }

    /// When the pause in the record ends, if there is one.
    pub(super) fn pause_ends(&self) -> Option<Moment> {
        self.pause.map(|(_, ends)| ends)
    }

    /// The number of the next term: one more than the highest ever seen, also across a deletion.
    pub(super) fn next_transitions(&self) -> u64 {
        self.highest_transitions.map_or(0, |n| n.saturating_add(1))
    }

    /// Our own write landed as `version`. Who else may believe in the lease by now does not change.
    pub(super) fn wrote(&mut self, now: Moment, config: &Config, version: Version, record: Record) {
        self.note_term(version, &record);
        self.usual = Some(config.timings.lease().get());
        let claim = match record.holder {
            Some(_) => Claim::Own,
            None => Claim::Released,
        };
        self.note_pause(now, Some(&record), None);
        self.newest = Some((Snapshot::new(version, Some(record)), now));
        self.set_free(now, claim);
    }

    /// Takes in a snapshot; `false` if it changes nothing.
    pub(super) fn observe(
        &mut self,
        now: Moment,
        config: &Config,
        spread: &mut Spread,
        snapshot: Snapshot,
        source: Source,
    ) -> bool {
        let known = Known {
            newest: self.newest.as_ref().map(|(snapshot, at)| (snapshot, *at)),
            last: self.last,
        };
        match judge(known, config, &snapshot, source) {
            Verdict::Unchanged => {
                self.note_version(&snapshot);
                false
            }
            Verdict::Evidence => {
                if let Some(record) = &snapshot.record {
                    self.show(now, config, record);
                    self.promises.doubt(now);
                    self.highest_transitions =
                        self.highest_transitions.max(Some(record.transitions));
                    self.set_free(now, Claim::WaitedOut);
                }
                false
            }
            Verdict::Changed { holder, before } => {
                self.learn(now, config, &snapshot, source, holder, before);
                if holder == HolderNow::Holds {
                    self.free_at = self.free_at + spread.up_to(config.timings.spread());
                }
                match &snapshot.record {
                    Some(record) => self.note_term(snapshot.version, record),
                    None => self.last = None,
                }
                self.note_pause(now, snapshot.record.as_ref(), snapshot.received);
                self.newest = Some((snapshot, now));
                true
            }
        }
    }

    fn learn(
        &mut self,
        now: Moment,
        config: &Config,
        snapshot: &Snapshot,
        source: Source,
        holder: HolderNow,
        before: Before,
    ) {
        let first_sight = self.newest.is_none();
        let usual = match source {
            Source::Read { raced: true, .. } => self.usual.or(Some(config.timings.lease().get())),
            Source::Read { .. } | Source::Watch => self.usual,
        };
        match (before, &snapshot.record) {
            (Before::InOrder, Some(record)) => match source {
                Source::Watch => self.promises.succeed_observed(now, record),
                Source::Read { .. } => self.promises.succeed(now, record),
            },
            (Before::InOrder, None) => {}
            (Before::Doubtful, _) => self.promises.doubt(now),
            (Before::Unclear, _) => self.promises.count_anew(now, usual),
        }
        if let Some(record) = &snapshot.record {
            let (writer, term) = (Holder::of(record), Term::new(record.transitions));
            let promise = record.promise(config.timings.lease());
            match holder {
                HolderNow::Nobody => {}
                HolderNow::Us | HolderNow::Released | HolderNow::Gone | HolderNow::FormerSelf => {
                    self.promises.end(writer, term);
                    self.usual.get_or_insert(config.timings.lease().get());
                }
                // Nothing went by unseen, so what was counted when it was last written stands.
                HolderNow::Believes
                    if before == Before::Doubtful
                        && self.promises.covers(writer, term, promise) => {}
                // The same for a record that somebody has touched without changing it: whoever touches it again and again
                // would put the takeover off for ever.
                HolderNow::Holds
                    if before == Before::InOrder
                        && source == Source::Watch
                        && self.shows_same_write(record)
                        && self.promises.covers(writer, term, promise) => {}
                HolderNow::Holds | HolderNow::Believes => {
                    self.promises.show(now, record, promise);
                    if before != Before::InOrder {
                        self.promises.doubt(now);
                    }
                    self.usual = match before {
                        Before::InOrder => Some(promise),
                        Before::Doubtful | Before::Unclear => self.usual.max(Some(promise)),
                    };
                }
            }
        }
        let claim = match holder {
            HolderNow::Nobody if first_sight => Claim::FirstSight,
            HolderNow::Nobody | HolderNow::Believes => Claim::WaitedOut,
            HolderNow::Us => Claim::Own,
            HolderNow::Released => Claim::Released,
            HolderNow::Gone => Claim::HolderGone,
            HolderNow::FormerSelf => Claim::FormerSelf,
            HolderNow::Holds if before == Before::InOrder => Claim::Expired,
            HolderNow::Holds => Claim::WaitedOut,
        };
        self.set_free(now, claim);
    }

    fn show(&mut self, now: Moment, config: &Config, record: &Record) {
        let promise = record.promise(config.timings.lease());
        self.promises.show(now, record, promise);
    }

    /// Whether the record bears the signature of the newest one that we know, for the same holder.
    fn shows_same_write(&self, record: &Record) -> bool {
        let known = self.record();
        record.signed().is_some() && known.is_some_and(|known| known.signature == record.signature)
    }

    /// A pause ends when our own clock has counted what was left of it when we first saw it.
    fn note_pause(&mut self, now: Moment, record: Option<&Record>, received: Option<WallTime>) {
        let Some(pause) = record.and_then(|r| r.orders.pause) else {
            self.pause = None;
            return;
        };
        if self.pause.is_some_and(|(known, _)| known == pause) {
            return;
        }
        let ends = match (pause.until, received) {
            (Some(until), Some(received)) => now + until.since(received),
            (Some(_) | None, _) => Moment::NEVER,
        };
        self.pause = Some((pause, ends));
    }

    fn note_version(&mut self, snapshot: &Snapshot) {
        if let Some((newest, _)) = &mut self.newest
            && newest.record.is_none()
            && snapshot.record.is_none()
        {
            newest.version = newest.version.max(snapshot.version);
        }
    }

    fn note_term(&mut self, version: Version, record: &Record) {
        let signed = record.signed();
        let same_term = |last: &LastTerm| record.transitions <= last.transitions;
        let last = self.last.filter(same_term);
        self.highest_transitions = self.highest_transitions.max(Some(record.transitions));
        self.last = Some(LastTerm {
            version,
            transitions: record.transitions,
            by_soloist: signed.is_some() || last.is_some_and(|last| last.by_soloist),
            instance: signed
                .map(|s| s.instance)
                .or(last.and_then(|last| last.instance)),
        });
    }

    /// What looks free is not if somebody else than the holder in the record may still believe in it.
    fn set_free(&mut self, now: Moment, claim: Claim) {
        self.free_at = self.promises.until().map_or(now, |until| until.max(now));
        self.claim = match claim {
            Claim::Expired => claim,
            _ if self.free_at > now => Claim::WaitedOut,
            _ => claim,
        };
    }
}
