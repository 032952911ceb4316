//! The lease record as the election sees it, and what a record says.

use core::time::Duration;

use crate::ids::{Identity, InstanceId, OpId, PodUid, Term, Version};
use crate::orders::{Orders, WallTime};
use crate::timings::LeaseDuration;

/// What is in the store, without its timestamps: they are for people, and no decision can read what
/// is not here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Who holds the lease. `None` is a missing or an empty holder: free. A name that is not a valid
    /// identity of ours is still somebody's; stores pass on whatever text they find.
    pub holder: Option<Identity>,
    /// The record's own duration as found, however odd.
    pub duration_seconds: Option<i64>,
    /// How often the lease has changed hands.
    pub transitions: u64,
    /// What soloist keeps beside the fields that every elector knows.
    pub signature: Option<Signature>,
    /// What people order of whoever leads.
    pub orders: Orders,
}

/// soloist's signature under a record: which process wrote it, and what it promised.
///
/// Other electors keep it when they write over the record, so it only counts while it agrees with the
/// fields that they do change (see [`Record::signed`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The process that wrote the record.
    pub instance: InstanceId,
    /// The Pod that it was alone in.
    pub pod: Option<PodUid>,
    /// The identity that it wrote as the holder; kept in a release, when the holder is empty.
    pub holder: Identity,
    /// The term that it wrote.
    pub term: Term,
    /// The duration that it counts with, should somebody edit the record's.
    pub duration: LeaseDuration,
    /// Which of its writes this is.
    pub write: OpId,
    /// The version that it was written upon: of the record before it, or at which there was none.
    pub base: Version,
    /// Whether it was a release, made after its tree was empty.
    pub released: bool,
    /// A release: the replica that is to lead next. The others let it go first, for a while.
    pub heir: Option<Identity>,
}

/// One state of the store: the record, or that there is none, at a version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The record's version. For a missing record: a version at which it was missing.
    pub version: Version,
    /// The record, if there is one.
    pub record: Option<Record>,
    /// The store can prove that every process that could act for the holder is dead: on one machine by boot, pid and start time, on
    /// Kubernetes by what the kubelet reports ([`crate::death`]). Others cannot, and leave it `false`.
    pub holder_gone: bool,
    /// What this machine's wall clock said when it was received, for the end of a pause.
    pub received: Option<WallTime>,
}

impl Snapshot {
    /// The store at `version`.
    #[must_use]
    pub const fn new(version: Version, record: Option<Record>) -> Self {
        Self {
            version,
            record,
            holder_gone: false,
            received: None,
        }
    }

    /// The same, received then.
    #[must_use]
    pub fn received_at(self, wall: WallTime) -> Self {
        Self {
            received: Some(wall),
            ..self
        }
    }
}

impl Record {
    /// The duration that a release leaves in the record, here as in client-go.
    pub const RELEASED_SECONDS: i64 = 1;

    /// The signature, if it belongs to what the record says now: same term and, unless somebody
    /// emptied it, same holder.
    #[must_use]
    pub fn signed(&self) -> Option<&Signature> {
        self.signature.as_ref().filter(|s| {
            s.term.get() == self.transitions
                && self
                    .holder
                    .as_ref()
                    .is_none_or(|holder| *holder == s.holder)
        })
    }

    /// Whether the holder itself emptied the record, after its tree was empty.
    #[must_use]
    pub fn released_by_its_holder(&self) -> bool {
        self.holder.is_none() && self.signed().is_some_and(|s| s.released)
    }

    /// Whether it looks like client-go's release: holder empty, duration 1, not signed by us.
    #[must_use]
    pub fn released_like_client_go(&self) -> bool {
        self.holder.is_none()
            && self.signed().is_none()
            && self.duration_seconds == Some(Self::RELEASED_SECONDS)
    }

    /// How long a candidate must wait from when it saw this record: the record's own duration or, if a
    /// soloist signed this term, the one that it counts with if that is longer. An edit of the holder or
    /// of the duration does not shorten what the holder was promised.
    ///
    /// A missing, zero or negative duration is counted as `fallback`, and nothing as more than
    /// [`LeaseDuration::LONGEST`].
    #[must_use]
    pub fn promise(&self, fallback: LeaseDuration) -> Duration {
        let written = match self.duration_seconds {
            Some(seconds) if seconds > 0 => Duration::from_secs(seconds.unsigned_abs()),
            _ => fallback.get(),
        };
        let signed = self
            .signature
            .as_ref()
            .filter(|s| s.term.get() == self.transitions)
            .map_or(Duration::ZERO, |s| s.duration.get());
        written.max(signed).min(LeaseDuration::LONGEST.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: LeaseDuration = LeaseDuration::SHORTEST;

    fn name(text: &str) -> Identity {
        Identity::try_new(text).unwrap()
    }

    fn held_by_a() -> Record {
        Record {
            holder: Some(name("a")),
            duration_seconds: Some(15),
            transitions: 4,
            signature: Some(Signature {
                instance: InstanceId::from_random(1),
                pod: None,
                holder: name("a"),
                term: Term::new(4),
                duration: LeaseDuration::try_new(Duration::from_secs(15)).unwrap(),
                write: OpId::new(9),
                base: Version::new(3),
                released: false,
                heir: None,
            }),
            orders: Orders::NONE,
        }
    }

    #[test]
    fn a_signature_that_another_elector_wrote_over_does_not_count() {
        assert!(held_by_a().signed().is_some());
        let taken = Record {
            holder: Some(name("client-go")),
            transitions: 5,
            ..held_by_a()
        };
        assert!(taken.signed().is_none());
        let released = Record {
            holder: None,
            duration_seconds: Some(1),
            ..taken
        };
        assert!(released.released_like_client_go() && !released.released_by_its_holder());
    }

    #[test]
    fn emptying_by_hand_is_no_release_even_with_a_duration_of_one() {
        let emptied = Record {
            holder: None,
            duration_seconds: Some(1),
            ..held_by_a()
        };
        assert!(!emptied.released_by_its_holder() && !emptied.released_like_client_go());
    }

    #[test]
    fn a_duration_shortened_by_hand_does_not_shorten_what_the_holder_was_promised() {
        let shortened = Record {
            duration_seconds: Some(1),
            ..held_by_a()
        };
        assert_eq!(shortened.promise(OWN), Duration::from_secs(15));
    }

    #[test]
    fn odd_durations_are_survived() {
        let foreign = Record {
            signature: None,
            ..held_by_a()
        };
        for (seconds, expected) in [
            (None, OWN.get()),
            (Some(0), OWN.get()),
            (Some(-7), OWN.get()),
            (Some(1), Duration::from_secs(1)),
            (Some(i64::MAX), LeaseDuration::LONGEST.get()),
            (Some(i64::MIN), OWN.get()),
        ] {
            let record = Record {
                duration_seconds: seconds,
                ..foreign.clone()
            };
            assert_eq!(record.promise(OWN), expected, "{seconds:?}");
        }
    }
}
