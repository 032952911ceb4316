//! Deliberate defects, so that the simulator can show that it would find them.
//!
//! Each breaks one rule. They exist only with the feature `mutants`, which only tests turn on; without
//! it every check for one is `false` at compile time, and there is no way to make one.

/// What is broken.
#[cfg(feature = "mutants")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Rule 1: a candidate believes the record's timestamps.
    TrustTimestamps,
    /// Rule 2: a clock that stands still while the host is suspended.
    ClockStopsInSuspend,
    /// Rule 3: validity counts from the answer instead of from the send.
    CountFromAnswer,
    /// Rule 4: a candidate counts a version from when it saw the one before.
    CountFromVersionBefore,
    /// Rule 4: a candidate counts its own duration instead of the record's.
    IgnoreRecordDuration,
    /// Rule 4: takeover without the version check.
    TakeOverBlindly,
    /// Rule 5: an unknown outcome is taken as success.
    UnknownIsSuccess,
    /// Rule 5: any record of one's own is taken as proof that the last write landed.
    OwnRecordConfirms,
    /// Rule 6: no kill before the validity ends.
    NoKillBeforeExpiry,
    /// Rule 7: no renewals while the child drains.
    NoRenewalWhileDraining,
    /// Rule 8: the lease is released when the stop begins, not when the tree is empty.
    ReleaseBeforeEmpty,
    /// Rule 9: the guard gets its first deadline only when the child is ready.
    GuardArmedLate,
    /// Rule 9: no guard.
    GuardAbsent,
    /// Rule 9: nobody but the guard kills what is left when the guard is gone.
    NoSubreaper,
    /// Rule 10: a record with one's own name is one's own.
    TrustIdentity,
    /// Rule 11: the token is the number of the term.
    TokenFromTransitions,
    /// Rule 12: any empty holder is believed at once.
    BelieveAnyEmptyHolder,
    /// Rule 12: a leader that sees its lease gone carries on until its validity ends.
    IgnoreTakenLease,
}

#[cfg(feature = "mutants")]
impl Mutant {
    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::TrustTimestamps,
        Self::ClockStopsInSuspend,
        Self::CountFromAnswer,
        Self::CountFromVersionBefore,
        Self::IgnoreRecordDuration,
        Self::TakeOverBlindly,
        Self::UnknownIsSuccess,
        Self::OwnRecordConfirms,
        Self::NoKillBeforeExpiry,
        Self::NoRenewalWhileDraining,
        Self::ReleaseBeforeEmpty,
        Self::GuardArmedLate,
        Self::GuardAbsent,
        Self::NoSubreaper,
        Self::TrustIdentity,
        Self::TokenFromTransitions,
        Self::BelieveAnyEmptyHolder,
        Self::IgnoreTakenLease,
    ];
}

/// The defect that a machine is built with: none, except under test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Defect {
    #[cfg(feature = "mutants")]
    mutant: Option<Mutant>,
}

impl Defect {
    /// As it should be.
    pub const NONE: Self = Self {
        #[cfg(feature = "mutants")]
        mutant: None,
    };

    /// Broken on purpose.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub const fn of(mutant: Mutant) -> Self {
        Self {
            mutant: Some(mutant),
        }
    }

    /// Whether it is this defect.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub fn is(self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }
}

/// `defect!(self.defect, CountFromAnswer)`: whether the machine has this defect; `false` without the feature.
#[macro_export]
#[doc(hidden)]
macro_rules! defect {
    ($defect:expr, $mutant:ident) => {{
        #[cfg(feature = "mutants")]
        let broken = $defect.is($crate::mutant::Mutant::$mutant);
        #[cfg(not(feature = "mutants"))]
        let broken = {
            let _ = $defect;
            false
        };
        broken
    }};
}
