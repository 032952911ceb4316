//! What two objects say together: one record.
//!
//! | the two halves | the record |
//! |---|---|
//! | one write of one holder of both | that |
//! | two writes of one holder of both | the Lease's, which was written second and so has landed whole; the newer one is a promise that counts from now |
//! | one held by somebody who knows of one only, the other free or missing | the held one |
//! | one half of a pair, or emptied by another hand, the other free, missing or such a half, too | nobody's, but what its writer was promised is waited out |
//! | such a half, the other held by somebody who knows of one only | the held one, for the longer of both promises |
//! | held by two | whoever wrote last, unsigned, for the longer of both promises |
//! | both free | the later release |
//!
//! A half of a pair is void once another soloist has taken the other half after it, for its own or a later term: the write that would have
//! made it whole was based on what is gone, and whoever took it has waited for its writer.

use serde_json::Value;
use soloist_core::ids::Version;
use soloist_core::record::{Record, Signature};
use soloist_core::timings::{Preset, Timings};

use super::super::object;
use super::super::resource::Resource;
use crate::store::Stored;

/// One of the two objects.
#[derive(Clone, Debug)]
pub(super) struct Half {
    /// As it is, to be sent back; none if there is none.
    pub(super) object: Option<Value>,
    /// The object's version; of a missing one, when it was deleted, or 0.
    pub(super) version: Version,
    /// A version of the whole store at which this was true.
    pub(super) as_of: Version,
    record: Option<Record>,
    marked: bool,
}

/// Both; by default, neither has been seen.
#[derive(Clone, Debug)]
pub struct Pair {
    pub(super) legacy: Half,
    pub(super) lease: Half,
}

impl Default for Pair {
    fn default() -> Self {
        let never = Version::new(0);
        Self {
            legacy: Half::missing(never, never),
            lease: Half::missing(never, never),
        }
    }
}

/// What they say.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct View {
    pub(super) record: Option<Record>,
    /// Somebody is just writing it: the other half is on its way.
    pub(super) on_its_way: bool,
}

impl Half {
    pub(super) fn present(resource: Resource, object: Value) -> Result<Self, String> {
        let version = object::version(&object)?;
        Ok(Self {
            marked: object::half_mark(&object).is_some(),
            record: Some(object::record(resource, &object)),
            version,
            as_of: version,
            object: Some(object),
        })
    }

    pub(super) fn missing(since: Version, as_of: Version) -> Self {
        Self {
            object: None,
            version: since,
            as_of,
            record: None,
            marked: false,
        }
    }

    pub(super) fn still_at(self, as_of: Version) -> Self {
        Self { as_of, ..self }
    }

    /// The version of the old lock that this one, the Lease, was written after.
    pub(super) fn follows(&self) -> Option<Version> {
        let mark = object::half_mark(self.object.as_ref()?)?;
        mark.parse().ok().map(Version::new)
    }

    /// The signature of a soloist that holds or released both, if nobody has been at this half since.
    fn of_a_pair(&self) -> Option<&Signature> {
        let record = self.record.as_ref().filter(|_| self.marked)?;
        let signature = record.signed()?;
        (signature.released == record.holder.is_none()).then_some(signature)
    }
}

/// What one half is by itself, beside the other.
enum Standing<'a> {
    Missing,
    Free(&'a Record),
    /// Nobody leads by it alone, but its writer may believe in it.
    Half(&'a Record),
    Held(&'a Record),
}

impl<'a> Standing<'a> {
    fn of(half: &'a Half, other: &Half) -> Self {
        let Some(record) = &half.record else {
            return Self::Missing;
        };
        let released = record.signed().is_none_or(|s| s.released);
        match (half.of_a_pair(), &record.holder) {
            (Some(signature), Some(_)) if is_void(signature, other) => Self::Missing,
            (Some(_), Some(_)) => Self::Half(record),
            (None, Some(_)) => Self::Held(record),
            (_, None) if released => Self::Free(record),
            (_, None) => Self::Half(record),
        }
    }
}

/// Another soloist took the other half after this one was begun.
fn is_void(signature: &Signature, other: &Half) -> bool {
    let taker = other.record.as_ref().and_then(Record::signed);
    taker.is_some_and(|taker| {
        taker.instance != signature.instance
            && taker.term >= signature.term
            && other.version > signature.base
    })
}

impl Pair {
    /// The version of the two together: as all versions are of one store, that of the younger half. If there is neither,
    /// one at which both were missing.
    pub(super) fn version(&self) -> Version {
        let versions =
            [&self.legacy, &self.lease].map(|half| half.record.as_ref().map(|_| half.version));
        let newest = versions.into_iter().flatten().max();
        newest.unwrap_or(self.legacy.as_of.min(self.lease.as_of))
    }

    /// The lease as it is in both.
    pub(super) fn stored(self) -> Stored<Self> {
        Stored {
            version: self.version(),
            record: self.view().record,
            as_of: self.legacy.as_of.min(self.lease.as_of),
            holder_gone: false,
            carried: self,
        }
    }

    pub(super) fn view(&self) -> View {
        if let Some(view) = self.of_one_holder() {
            return view;
        }
        let legacy = Standing::of(&self.legacy, &self.lease);
        let lease = Standing::of(&self.lease, &self.legacy);
        let lease_is_younger = self.lease.version > self.legacy.version;
        // The legacy half is written first.
        let lease_is_held = self
            .lease
            .record
            .as_ref()
            .is_some_and(|r| r.holder.is_some());
        let on_its_way = matches!(
            (&legacy, &lease),
            (Standing::Half(_), Standing::Missing | Standing::Free(_))
        ) && self.legacy.of_a_pair().is_some()
            && !lease_is_younger
            && !lease_is_held;
        let record = match (legacy, lease) {
            (Standing::Missing, Standing::Missing) => None,
            (Standing::Held(held), Standing::Missing)
            | (Standing::Missing, Standing::Held(held)) => Some(held.clone()),
            (Standing::Held(held), Standing::Free(free))
            | (Standing::Free(free), Standing::Held(held)) => {
                Some(raised(held.clone(), free.transitions))
            }
            (Standing::Half(half), Standing::Missing)
            | (Standing::Missing, Standing::Half(half)) => Some(nobodys(half, 0)),
            (Standing::Half(half), Standing::Free(free))
            | (Standing::Free(free), Standing::Half(half)) => Some(nobodys(half, free.transitions)),
            (Standing::Held(held), Standing::Half(half))
            | (Standing::Half(half), Standing::Held(held)) => {
                Some(longest(raised(held.clone(), half.transitions), half))
            }
            (Standing::Free(free), Standing::Missing)
            | (Standing::Missing, Standing::Free(free)) => Some(free.clone()),
            (Standing::Free(legacy), Standing::Free(lease)) => {
                let (last, other) = younger(legacy, lease, lease_is_younger);
                Some(raised(last.clone(), other.transitions))
            }
            (Standing::Half(legacy), Standing::Half(lease)) => {
                let (last, other) = younger(legacy, lease, lease_is_younger);
                Some(longest(nobodys(last, other.transitions), other))
            }
            (Standing::Held(legacy), Standing::Held(lease)) => {
                let (last, other) = younger(legacy, lease, lease_is_younger);
                let unsigned = Record {
                    signature: None,
                    ..last.clone()
                };
                // The signed duration was dropped with the signature.
                let unsigned = longest(unsigned, last);
                Some(longest(raised(unsigned, other.transitions), other))
            }
        };
        View { record, on_its_way }
    }

    /// Both halves are of one soloist's term, and the Lease is not ahead, as it is written second.
    fn of_one_holder(&self) -> Option<View> {
        let (first, second) = (self.legacy.of_a_pair()?, self.lease.of_a_pair()?);
        let same = first.instance == second.instance && first.term == second.term;
        if !same || first.write < second.write {
            return None;
        }
        let mut record = self.lease.record.clone();
        let on_its_way = first != second;
        if let Some(signature) = record.as_mut().and_then(|r| r.signature.as_mut()) {
            // With another base it is not the write that was seen before, so that its promise counts anew.
            signature.base = first.base;
        }
        Some(View { record, on_its_way })
    }
}

fn younger<'a>(legacy: &'a Record, lease: &'a Record, lease_is: bool) -> (&'a Record, &'a Record) {
    match lease_is {
        true => (lease, legacy),
        false => (legacy, lease),
    }
}

/// Terms count up from the higher of both. A signature for a lower one does not count then, but what it promised does.
fn raised(record: Record, transitions: u64) -> Record {
    if transitions <= record.transitions {
        return record;
    }
    let raised = Record {
        transitions,
        ..record.clone()
    };
    match record.holder {
        Some(_) => longest(raised, &record),
        None => raised,
    }
}

/// Its writer does not lead by it; but it may be about to, or have led until now.
fn nobodys(half: &Record, transitions: u64) -> Record {
    // Only its signature says then that it was somebody's.
    match transitions <= half.transitions {
        true => Record {
            holder: None,
            ..half.clone()
        },
        false => raised(
            Record {
                holder: half.signature.as_ref().map(|s| s.holder.clone()),
                ..half.clone()
            },
            transitions,
        ),
    }
}

/// The same, for at least as long as the other promises.
fn longest(record: Record, other: &Record) -> Record {
    // For records that do not say it themselves.
    let usual = Timings::preset(Preset::LowLoad).lease();
    let seconds = record.promise(usual).max(other.promise(usual)).as_secs();
    Record {
        duration_seconds: i64::try_from(seconds).ok(),
        ..record
    }
}

#[cfg(test)]
#[path = "merge_tests.rs"]
mod tests;
