//! The lease's timings: three numbers from the user, everything else follows from them.

use core::time::Duration;

use crate::time::Human;

/// How long a lease lasts: whole seconds, because that is what the record can hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeaseDuration(u32);

impl LeaseDuration {
    /// Shorter than this, the margins are shorter than a busy machine's hiccups.
    pub const SHORTEST: Self = Self(2);
    /// A record that claims more than this is counted as this, so that a typing error ends some day.
    pub const LONGEST: Self = Self(24 * 60 * 60);

    /// Checks a duration.
    ///
    /// # Errors
    /// When it is not whole seconds (nothing is rounded), too short or too long.
    pub const fn try_new(duration: Duration) -> Result<Self, TimingsError> {
        if duration.subsec_nanos() != 0 {
            return Err(TimingsError::LeaseNotWholeSeconds { lease: duration });
        }
        if duration.as_secs() < Self::SHORTEST.0 as u64 {
            return Err(TimingsError::LeaseTooShort { lease: duration });
        }
        if duration.as_secs() > Self::LONGEST.0 as u64 {
            return Err(TimingsError::LeaseTooLong { lease: duration });
        }
        Ok(Self(duration.as_secs() as u32))
    }

    /// As a duration.
    #[must_use]
    pub const fn get(self) -> Duration {
        Duration::from_secs(self.0 as u64)
    }

    /// As the record has it.
    #[must_use]
    pub const fn seconds(self) -> u32 {
        self.0
    }
}

/// Timings that are known to work together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preset {
    /// Lease 15 s, renew deadline 10 s, retry 2 s.
    Standard,
    /// Lease 10 s, renew deadline 8 s, retry 1 s: a dead leader is replaced sooner.
    HighAvailability,
    /// Lease 60 s, renew deadline 45 s, retry 5 s: few requests.
    LowLoad,
}

/// Checked timings of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings {
    lease: LeaseDuration,
    renew_deadline: Duration,
    retry_period: Duration,
}

/// Which rule the three numbers break, with the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TimingsError {
    /// The record holds whole seconds.
    #[error("the lease duration {} is not whole seconds; the lease record can only hold whole seconds, and rounding would make replicas disagree", Human(*lease))]
    LeaseNotWholeSeconds {
        /// As given.
        lease: Duration,
    },
    /// The margins would be too thin.
    #[error("the lease duration {} is too short; it must be at least {}", Human(*lease), Human(LeaseDuration::SHORTEST.get()))]
    LeaseTooShort {
        /// As given.
        lease: Duration,
    },
    /// Nobody waits that long.
    #[error("the lease duration {} is too long; it must be at most {}", Human(*lease), Human(LeaseDuration::LONGEST.get()))]
    LeaseTooLong {
        /// As given.
        lease: Duration,
    },
    /// The child would get no time to end between the renew deadline and the kill.
    #[error(
        "the renew deadline {} is too late: the child is killed at {} (lease {} - kill margin {}), so the renew deadline must be before that",
        Human(*renew_deadline), Human(*lease - *margin), Human(*lease), Human(*margin)
    )]
    RenewDeadlineTooLate {
        /// As given.
        lease: Duration,
        /// A tenth of the lease.
        margin: Duration,
        /// As given.
        renew_deadline: Duration,
    },
    /// There would be no time for two attempts.
    #[error(
        "the renew deadline {} is too early: the first renewal is at {} (lease {} / 3) and two attempts of at least {} must fit after it, so it must be at least {}",
        Human(*renew_deadline), Human(*lease / 3), Human(*lease), Human(Timings::SHORTEST_ATTEMPT), Human(*lease / 3 + 2 * Timings::SHORTEST_ATTEMPT)
    )]
    RenewDeadlineTooEarly {
        /// As given.
        lease: Duration,
        /// As given.
        renew_deadline: Duration,
    },
    /// A retry must come before the renew deadline, jitter included.
    #[error(
        "the retry period {} is too long: {} x {} (jitter) = {} must be less than the renew deadline {}",
        Human(*retry_period), Human(*retry_period), Timings::JITTER, Human(retry_period.mul_f64(Timings::JITTER)), Human(*renew_deadline)
    )]
    RetryTooLong {
        /// As given.
        retry_period: Duration,
        /// As given.
        renew_deadline: Duration,
    },
    /// Would ask a broken store without a pause.
    #[error("the retry period {} is too short; it must be at least {}", Human(*retry_period), Human(Timings::SHORTEST_RETRY))]
    RetryTooShort {
        /// As given.
        retry_period: Duration,
    },
}

impl Timings {
    /// A retry is spread over the retry period and up to this much of it.
    pub const JITTER: f64 = 1.2;
    /// Below this an attempt is not worth making.
    pub const SHORTEST_ATTEMPT: Duration = Duration::from_millis(100);
    /// Below this a broken store would be flooded.
    pub const SHORTEST_RETRY: Duration = Duration::from_millis(50);
    /// After a release, who has lost races before waits for up to this long, so that a large group does not write at once.
    pub const LARGEST_CROWD: Duration = Duration::from_millis(256);
    /// How far the *rates* of two replicas' clocks may differ. The margins have room for ten times it.
    pub const RATE_TOLERANCE: f64 = 0.005;

    /// Checks the three numbers, alone and together.
    ///
    /// # Errors
    /// The first rule that they break.
    pub fn try_new(
        lease: Duration,
        renew_deadline: Duration,
        retry_period: Duration,
    ) -> Result<Self, TimingsError> {
        let timings = Self {
            lease: LeaseDuration::try_new(lease)?,
            renew_deadline,
            retry_period,
        };
        let margin = timings.kill_margin();
        if renew_deadline >= lease - margin {
            return Err(TimingsError::RenewDeadlineTooLate {
                lease,
                margin,
                renew_deadline,
            });
        }
        if renew_deadline < timings.renew_interval() + 2 * Self::SHORTEST_ATTEMPT {
            return Err(TimingsError::RenewDeadlineTooEarly {
                lease,
                renew_deadline,
            });
        }
        if retry_period < Self::SHORTEST_RETRY {
            return Err(TimingsError::RetryTooShort { retry_period });
        }
        // Compared before multiplying: an absurd retry period must not overflow.
        if retry_period >= renew_deadline || retry_period.mul_f64(Self::JITTER) >= renew_deadline {
            return Err(TimingsError::RetryTooLong {
                retry_period: retry_period.min(Duration::from_secs(u32::MAX.into())),
                renew_deadline,
            });
        }
        Ok(timings)
    }

    /// Timings by name.
    #[must_use]
    pub const fn preset(preset: Preset) -> Self {
        let (lease, renew_deadline, retry_period) = match preset {
            Preset::Standard => (15, 10, 2),
            Preset::HighAvailability => (10, 8, 1),
            Preset::LowLoad => (60, 45, 5),
        };
        Self {
            lease: LeaseDuration(lease),
            renew_deadline: Duration::from_secs(renew_deadline),
            retry_period: Duration::from_secs(retry_period),
        }
    }

    /// How long a write is good for, counted from when it was sent.
    #[must_use]
    pub const fn lease(&self) -> LeaseDuration {
        self.lease
    }

    /// Without a renewal for this long, the child is asked to stop.
    #[must_use]
    pub const fn renew_deadline(&self) -> Duration {
        self.renew_deadline
    }

    /// The pause between tries when the store fails.
    #[must_use]
    pub const fn retry_period(&self) -> Duration {
        self.retry_period
    }

    /// When all is well, the lease is renewed this often: every third of it.
    #[must_use]
    pub fn renew_interval(&self) -> Duration {
        self.lease.get() / 3
    }

    /// One request may take this long: half of what lies between the first renewal and the renew
    /// deadline, so that one stalled request never costs the leadership.
    #[must_use]
    pub fn attempt_limit(&self) -> Duration {
        (self.renew_deadline - self.renew_interval()) / 2
    }

    /// The pause from the start of one try to the start of the next is at most this, jitter included;
    /// a long retry period does not push the second attempt past the renew deadline.
    #[must_use]
    pub fn longest_retry(&self) -> Duration {
        self.retry_period
            .mul_f64(Self::JITTER)
            .min(self.attempt_limit())
    }

    /// How long a write that lost a race waits for the watch to tell to whom, before it reads: a quarter of the
    /// retry period.
    #[must_use]
    pub fn race_patience(&self) -> Duration {
        self.retry_period / 4
    }

    /// The tree gets SIGKILL this long before the validity ends: a tenth of the lease.
    #[must_use]
    pub fn kill_margin(&self) -> Duration {
        self.lease.get() / 10
    }

    /// The guard kills this long before the validity ends, if soloist did not: a twentieth.
    #[must_use]
    pub fn guard_margin(&self) -> Duration {
        self.lease.get() / 20
    }

    /// The guard is asked this often whether it is there: every sixth of the lease.
    #[must_use]
    pub fn guard_question(&self) -> Duration {
        self.lease.get() / 6
    }

    /// A guard that leaves a question unanswered for this long is replaced: a third of the lease. With
    /// [`Timings::guard_question`] that is half of it.
    #[must_use]
    pub fn guard_patience(&self) -> Duration {
        self.lease.get() / 3
    }

    /// Candidates spread their takeover of an expired lease over this long.
    #[must_use]
    pub fn spread(&self) -> Duration {
        (self.lease.get() / 20).min(Duration::from_millis(500))
    }

    /// After a release that names an heir, the others let it go first for this long: a third of the lease.
    #[must_use]
    pub fn heir_patience(&self) -> Duration {
        self.lease.get() / 3
    }

    /// What a lost lease leaves the child between SIGTERM and SIGKILL.
    #[must_use]
    pub fn loss_grace(&self) -> Duration {
        self.lease.get() - self.kill_margin() - self.renew_deadline
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::string::ToString;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn the_presets_keep_every_rule() {
        for preset in [Preset::Standard, Preset::HighAvailability, Preset::LowLoad] {
            let t = Timings::preset(preset);
            let checked = Timings::try_new(t.lease().get(), t.renew_deadline(), t.retry_period());
            assert_eq!(checked, Ok(t));
        }
    }

    #[test]
    fn the_standard_preset_renews_at_5s_in_attempts_of_2_5s_and_leaves_3_5s_of_grace() {
        let t = Timings::preset(Preset::Standard);
        assert_eq!(t.renew_interval(), s(5));
        assert_eq!(t.attempt_limit(), ms(2500));
        assert_eq!(t.kill_margin(), ms(1500));
        assert_eq!(t.guard_margin(), ms(750));
        assert_eq!(t.loss_grace(), ms(3500));
    }

    #[test]
    fn each_broken_rule_has_its_own_message_with_the_sum() {
        let message = |lease, renew, retry| {
            Timings::try_new(lease, renew, retry)
                .unwrap_err()
                .to_string()
        };
        for (lease, renew, retry, expected) in [
            (
                ms(1500),
                s(1),
                ms(200),
                "the lease duration 1.5s is not whole seconds; the lease record can only hold whole seconds, and rounding would make replicas disagree",
            ),
            (
                s(1),
                ms(500),
                ms(200),
                "the lease duration 1s is too short; it must be at least 2s",
            ),
            (
                s(90_000),
                s(10),
                s(2),
                "the lease duration 1500m is too long; it must be at most 1440m",
            ),
            (
                s(10),
                s(15),
                s(2),
                "the renew deadline 15s is too late: the child is killed at 9s (lease 10s - kill margin 1s), so the renew deadline must be before that",
            ),
            (
                s(15),
                s(5),
                s(2),
                "the renew deadline 5s is too early: the first renewal is at 5s (lease 15s / 3) and two attempts of at least 100ms must fit after it, so it must be at least 5.2s",
            ),
            (
                s(15),
                s(10),
                s(9),
                "the retry period 9s is too long: 9s x 1.2 (jitter) = 10.8s must be less than the renew deadline 10s",
            ),
            (
                s(15),
                s(10),
                ms(10),
                "the retry period 10ms is too short; it must be at least 50ms",
            ),
        ] {
            assert_eq!(message(lease, renew, retry), expected);
        }
    }

    #[test]
    fn absurd_numbers_are_refused_and_not_computed_with() {
        assert!(Timings::try_new(s(15), Duration::MAX, s(2)).is_err());
        let refused = Timings::try_new(s(15), s(10), Duration::MAX).unwrap_err();
        assert!(refused.to_string().contains("too long"));
        assert!(Timings::try_new(Duration::MAX, s(10), s(2)).is_err());
    }

    proptest! {
        #[test]
        fn whatever_is_accepted_leaves_room_for_two_attempts_and_for_the_kill(
            lease in 1u64..200, renew in 0u64..200_000, retry in 0u64..200_000,
        ) {
            if let Ok(t) = Timings::try_new(s(lease), ms(renew), ms(retry)) {
                prop_assert!(t.renew_interval() + 2 * t.attempt_limit() <= t.renew_deadline());
                prop_assert!(t.longest_retry() <= t.attempt_limit());
                prop_assert!(t.loss_grace() > Duration::ZERO);
                prop_assert!(t.guard_margin() < t.kill_margin());
                prop_assert!(t.lease().get().mul_f64(10.0 * Timings::RATE_TOLERANCE) <= t.guard_margin());
            }
        }
    }
}
