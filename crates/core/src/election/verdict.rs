//! What a snapshot of the record means to a candidate: one pure function.
//!
//! Rows are tried from the top; `docs/safety.md` explains them.
//!
//! | | compared with what is known | what the record shows | the holder in it | holders before it |
//! |---|---|---|---|---|
//! | 1 | same version, same record | | unchanged, but for a holder that is now proven gone: row 9 | |
//! | 2 | same version, another record, or an older version by a read that was sent later: the store was set back | see rows 6 to 15 | | unclear |
//! | 3 | an older version | a holder of a later term, or another of the same | evidence: it may believe, from now | as long as they were, but no successor ends them |
//! | 4 | an older version | anything else | unchanged | |
//! | 5 | newer | missing, and was missing, and nothing is known to have happened in between | unchanged | |
//! | 6 | nothing is known | missing, or empty and never signed | nobody: a first start | |
//! | 7 | | missing | nobody | doubtful |
//! | 8 | | signed by us | us | in order |
//! | 9 | | held, and the store proves the holder's death | ended | in order |
//! | 10 | | held, signed by the former container of our Pod | ended | in order |
//! | 11 | | empty, released by its holder | ended | in order |
//! | 12 | | empty, released as client-go does, and not a soloist's term | ended | in order |
//! | 13 | | empty otherwise | may believe, if signed for this term or seen for the first time | doubtful |
//! | 14 | | held: signed, renewed by another elector, or of a later term | may believe, from now | in order |
//! | 15 | | held otherwise: edited over a holder that may be alive | may believe, from now | doubtful |
//!
//! *In order* also needs a term not before the last one, the same soloist if it is the same term, and a write upon what we
//! saw last or something later, unless it is the very write that we saw last; else the record is of former times and was written back: doubtful. *Doubtful* is *unclear* if the snapshot came by a read, because
//! changes may have gone by unseen.

use super::Config;
use crate::ids::{InstanceId, Version};
use crate::record::{Record, Snapshot};
use crate::time::Moment;

/// How a snapshot came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// What was known before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known<'a> {
    /// The newest state, and when it was first seen.
    pub(super) newest: Option<(&'a Snapshot, Moment)>,
    /// The last record, unless it is known to have been deleted.
    pub(super) last: Option<LastTerm>,
}

/// The term of the last record that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LastTerm {
    pub(super) version: Version,
    pub(super) transitions: u64,
    /// A soloist held it, as far as can be told. An edit that takes the signature away does not change
    /// that; only a takeover does, and every elector's takeover counts up the transitions.
    pub(super) by_soloist: bool,
    pub(super) instance: Option<InstanceId>,
}

/// What a snapshot means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing that was not known.
    Unchanged,
    /// It is older than what is known, but shows a holder that was not: it may believe in the lease.
    Evidence,
    /// A state of the record that was not known.
    Changed { holder: HolderNow, before: Before },
}

/// What a record says of its own holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HolderNow {
    /// There is none, nor was there one that we have to wait for because of this record.
    Nobody,
    /// It is this very process.
    Us,
    /// It has let go.
    Released,
    /// It is provably dead.
    Gone,
    /// It was the former container of our Pod, and is dead.
    FormerSelf,
    /// It holds the lease, for as long as the record promises from when it was seen.
    Holds,
    /// The record does not name it any more, but is signed by it: it may believe what it was promised.
    Believes,
}

/// What a snapshot says of those who held the lease before its own holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    /// Whoever came after them did so by the rules.
    InOrder,
    /// Another hand has been at the record, right after what we saw last.
    Doubtful,
    /// Another hand has been at it, and we do not know what went on before.
    Unclear,
}

/// The verdict on a snapshot.
pub(super) fn judge(
    known: Known<'_>,
    config: &Config,
    snapshot: &Snapshot,
    source: Source,
) -> Verdict {
    let mut set_back = false;
    if let Some((newest, since)) = known.newest {
        let overtaken = match source {
            Source::Watch => true,
            Source::Read { sent, .. } => sent < since,
        };
        if snapshot.version == newest.version && snapshot.record == newest.record {
            let newly_gone = snapshot.holder_gone && !newest.holder_gone;
            if !newly_gone {
                return Verdict::Unchanged;
            }
        } else if snapshot.version < newest.version && overtaken {
            return match shows_later_holder(known.last, config, snapshot) {
                true => Verdict::Evidence,
                false => Verdict::Unchanged,
            };
        } else if snapshot.version <= newest.version {
            set_back = true;
        } else if newest.record.is_none()
            && snapshot.record.is_none()
            && !matches!(source, Source::Read { raced: true, .. })
        {
            return Verdict::Unchanged;
        }
    }
    let (holder, in_order) = read(known, config, snapshot);
    let before = match source {
        _ if in_order && !set_back => Before::InOrder,
        Source::Watch if !set_back => Before::Doubtful,
        Source::Watch | Source::Read { .. } => Before::Unclear,
    };
    Verdict::Changed { holder, before }
}

/// What the record says of its holder, and whether it follows from the last one by the rules.
fn read(known: Known<'_>, config: &Config, snapshot: &Snapshot) -> (HolderNow, bool) {
    let first_sight = known.newest.is_none();
    let Some(record) = &snapshot.record else {
        return (HolderNow::Nobody, first_sight);
    };
    let signed = record.signed();
    let held = record.holder.is_some();
    let follows = !is_of_former_times(known.last, record) && !is_written_back(known, record);
    if signed.is_some_and(|s| s.instance == config.instance && !s.released) {
        (HolderNow::Us, follows)
    } else if held && snapshot.holder_gone {
        (HolderNow::Gone, follows)
    } else if held && config.pod.is_some() && signed.is_some_and(|s| s.pod == config.pod) {
        (HolderNow::FormerSelf, follows)
    } else if record.released_by_its_holder() || is_client_gos_release(known.last, record) {
        (HolderNow::Released, follows)
    } else if !held {
        let trace = signed.is_some() || (first_sight && record.signature.is_some());
        match trace {
            true => (HolderNow::Believes, false),
            false => (HolderNow::Nobody, first_sight),
        }
    } else {
        (HolderNow::Holds, follows && is_regular(known, record))
    }
}

/// A record that was not written upon the last one that we saw, or upon a later one, so somebody has written it back. Numbers
/// of terms do not show that: where records of former times are written back, they go down, too.
fn is_written_back(known: Known<'_>, record: &Record) -> bool {
    let (Some(last), Some(signed)) = (known.last, record.signed()) else {
        return false;
    };
    let before = known
        .newest
        .and_then(|(s, _)| s.record.as_ref()?.signature.as_ref());
    let as_known = before.is_some_and(|b| b.instance == signed.instance && b.write == signed.write);
    !as_known && signed.base < last.version
}

/// Somebody wrote back a record of former times: terms only count up, and each has one holder.
fn is_of_former_times(last: Option<LastTerm>, record: &Record) -> bool {
    last.is_some_and(|last| {
        let signed = record.signed().map(|s| s.instance);
        let another = last.instance.is_some() && signed.is_some() && signed != last.instance;
        record.transitions < last.transitions || (record.transitions == last.transitions && another)
    })
}

/// A held record that is signed, or another elector's own renewal or takeover. Else somebody has edited it over a
/// holder that may be alive.
fn is_regular(known: Known<'_>, record: &Record) -> bool {
    let holder_before = known
        .newest
        .and_then(|(s, _)| s.record.as_ref()?.holder.as_ref());
    let follows = known.last.is_none_or(|last| {
        let renewed = !last.by_soloist && holder_before == record.holder.as_ref();
        renewed || record.transitions > last.transitions
    });
    follows || record.signed().is_some()
}

/// An empty holder that no soloist released is client-go's own release if the last holder that we saw was not a
/// soloist, or there has been another one since. Not after a deletion: nobody can tell then whose record it is.
fn is_client_gos_release(last: Option<LastTerm>, record: &Record) -> bool {
    record.released_like_client_go()
        && last.is_some_and(|last| !last.by_soloist || record.transitions > last.transitions)
}

/// A snapshot that something newer has overtaken may be the only one that shows a term.
fn shows_later_holder(last: Option<LastTerm>, config: &Config, snapshot: &Snapshot) -> bool {
    let Some(record) = &snapshot.record else {
        return false;
    };
    let signed = record.signed();
    if record.holder.is_none() && signed.is_none_or(|s| s.released) {
        return false;
    }
    if signed.is_some_and(|s| s.instance == config.instance) {
        return false;
    }
    last.is_none_or(|last| {
        record.transitions > last.transitions
            || (record.transitions == last.transitions
                && signed.is_some_and(|s| Some(s.instance) != last.instance))
    })
}
