//! The ladder of timeouts: each level of a shutdown must end before the one above it loses patience.

use core::time::Duration;

use crate::time::Human;

/// What the user said about the timeouts. Only the Pod's grace period is needed; the rest follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LadderRequest {
    /// Kubernetes' `terminationGracePeriodSeconds`.
    pub grace: Duration,
    /// Time that the preStop hook takes; it counts against the grace period.
    pub prestop: Duration,
    /// When soloist kills the child's tree.
    pub stop: Option<Duration>,
    /// What the child is told that it has (`SOLOIST_STOP_SECONDS`).
    pub child: Option<Duration>,
    /// What the child's stream is told that it has (`SOLOIST_DRAIN_SECONDS`).
    pub drain: Option<Duration>,
}

impl LadderRequest {
    /// Everything follows from the grace period.
    #[must_use]
    pub const fn from_grace(grace: Duration) -> Self {
        Self {
            grace,
            prestop: Duration::ZERO,
            stop: None,
            child: None,
            drain: None,
        }
    }
}

/// A checked ladder: grace − preStop > stop > child > drain, with a margin between any two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ladder {
    stop: Duration,
    child: Duration,
    drain: Duration,
}

/// The step of the ladder that does not fit, with its sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LadderError {
    /// Nothing is left of the grace period.
    #[error("the preStop time {} leaves nothing of the grace period {}; raise terminationGracePeriodSeconds or shorten preStop", Human(*prestop), Human(*grace))]
    PrestopTakesAll {
        /// As given.
        grace: Duration,
        /// As given.
        prestop: Duration,
    },
    /// Kubernetes would kill soloist before soloist is done.
    #[error(
        "the stop timeout does not fit into the Pod's grace period: stop {} + margin {} = {}, but grace {} - preStop {} = {}",
        Human(*stop), Human(*margin), Human(*stop + *margin), Human(*grace), Human(*prestop), Human(*grace - *prestop)
    )]
    StopDoesNotFit {
        /// As given or derived.
        stop: Duration,
        /// Needed between two steps.
        margin: Duration,
        /// As given.
        grace: Duration,
        /// As given.
        prestop: Duration,
    },
    /// soloist would kill the child before the child is done.
    #[error(
        "the child's timeout does not fit into the stop timeout: child {} + margin {} = {}, but stop {}",
        Human(*child), Human(*margin), Human(*child + *margin), Human(*stop)
    )]
    ChildDoesNotFit {
        /// As given or derived.
        child: Duration,
        /// Needed between two steps.
        margin: Duration,
        /// The step above.
        stop: Duration,
    },
    /// The child would give up before its stream is drained.
    #[error(
        "the drain timeout does not fit into the child's timeout: drain {} + margin {} = {}, but child {}",
        Human(*drain), Human(*margin), Human(*drain + *margin), Human(*child)
    )]
    DrainDoesNotFit {
        /// As given or derived.
        drain: Duration,
        /// Needed between two steps.
        margin: Duration,
        /// The step above.
        child: Duration,
    },
}

impl Ladder {
    /// Between two steps of a long ladder.
    pub const MARGIN: Duration = Duration::from_secs(5);
    /// No step can be longer; keeps every sum in an error message exact.
    const LONGEST: Duration = Duration::from_secs(u32::MAX as u64);

    /// Derives what was not given and checks that every step fits into the one above.
    ///
    /// The margin between two steps is 5 s, or a quarter of what preStop leaves of the grace period
    /// if that is less, so that a short grace period still has four steps.
    ///
    /// # Errors
    /// The highest step that does not fit.
    pub fn try_new(request: LadderRequest) -> Result<Self, LadderError> {
        let grace = request.grace.min(Self::LONGEST);
        let prestop = request.prestop.min(Self::LONGEST);
        let available = grace.saturating_sub(prestop);
        if available.is_zero() {
            return Err(LadderError::PrestopTakesAll { grace, prestop });
        }
        let margin = Self::MARGIN.min(available / 4);
        let step = |given: Option<Duration>, above: Duration| {
            given
                .unwrap_or(above.saturating_sub(margin))
                .min(Self::LONGEST)
        };

        let stop = step(request.stop, available);
        if stop + margin > available {
            return Err(LadderError::StopDoesNotFit {
                stop,
                margin,
                grace,
                prestop,
            });
        }
        let child = step(request.child, stop);
        if child + margin > stop {
            return Err(LadderError::ChildDoesNotFit {
                child,
                margin,
                stop,
            });
        }
        let drain = step(request.drain, child);
        if drain + margin > child {
            return Err(LadderError::DrainDoesNotFit {
                drain,
                margin,
                child,
            });
        }
        Ok(Self { stop, child, drain })
    }

    /// The stop timeout that fits into what is left of a grace period, with a margin as between any two steps.
    #[must_use]
    pub fn stop_within(left: Duration) -> Duration {
        left.saturating_sub(Self::MARGIN.min(left / 4))
    }

    /// From the stop signal until soloist kills the tree.
    #[must_use]
    pub const fn stop(&self) -> Duration {
        self.stop
    }

    /// What the child has for its own shutdown.
    #[must_use]
    pub const fn child(&self) -> Duration {
        self.child
    }

    /// What the child's stream has for its remaining messages.
    #[must_use]
    pub const fn drain(&self) -> Duration {
        self.drain
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

    fn steps(ladder: Ladder) -> (Duration, Duration, Duration) {
        (ladder.stop(), ladder.child(), ladder.drain())
    }

    #[test]
    fn thirty_seconds_of_grace_give_25_20_and_15() {
        let ladder = Ladder::try_new(LadderRequest::from_grace(s(30))).unwrap();
        assert_eq!(steps(ladder), (s(25), s(20), s(15)));
    }

    #[test]
    fn prestop_time_is_taken_off_the_grace_period() {
        let ladder = Ladder::try_new(LadderRequest {
            prestop: s(5),
            ..LadderRequest::from_grace(s(30))
        });
        assert_eq!(steps(ladder.unwrap()), (s(20), s(15), s(10)));
    }

    #[test]
    fn a_short_grace_period_has_shorter_margins() {
        let ladder = Ladder::try_new(LadderRequest::from_grace(s(8))).unwrap();
        assert_eq!(steps(ladder), (s(6), s(4), s(2)));
    }

    #[test]
    fn a_ladder_that_does_not_fit_is_refused_with_the_sum() {
        let grace = LadderRequest::from_grace(s(30));
        for (request, expected) in [
            (
                LadderRequest {
                    prestop: s(30),
                    ..grace
                },
                "the preStop time 30s leaves nothing of the grace period 30s; raise terminationGracePeriodSeconds or shorten preStop",
            ),
            (
                LadderRequest {
                    stop: Some(s(25)),
                    prestop: s(5),
                    ..grace
                },
                "the stop timeout does not fit into the Pod's grace period: stop 25s + margin 5s = 30s, but grace 30s - preStop 5s = 25s",
            ),
            (
                LadderRequest {
                    child: Some(s(22)),
                    ..grace
                },
                "the child's timeout does not fit into the stop timeout: child 22s + margin 5s = 27s, but stop 25s",
            ),
            (
                LadderRequest {
                    drain: Some(s(16)),
                    ..grace
                },
                "the drain timeout does not fit into the child's timeout: drain 16s + margin 5s = 21s, but child 20s",
            ),
        ] {
            assert_eq!(Ladder::try_new(request).unwrap_err().to_string(), expected);
        }
    }

    #[test]
    fn a_stop_fits_into_whatever_is_left_of_the_grace_period() {
        for (left, stop) in [(30, 25_000), (10, 7_500), (2, 1_500), (0, 0)] {
            assert_eq!(Ladder::stop_within(s(left)), Duration::from_millis(stop));
        }
    }

    #[test]
    fn absurd_durations_do_not_overflow() {
        let request = LadderRequest {
            stop: Some(Duration::MAX),
            ..LadderRequest::from_grace(Duration::MAX)
        };
        assert!(Ladder::try_new(request).is_err());
    }

    proptest! {
        #[test]
        fn every_grace_period_gives_a_ladder_that_fits(millis in 1u64..10_000_000) {
            let grace = Duration::from_millis(millis);
            let ladder = Ladder::try_new(LadderRequest::from_grace(grace)).unwrap();
            prop_assert!(grace > ladder.stop());
            prop_assert!(ladder.stop() > ladder.child());
            prop_assert!(ladder.child() > ladder.drain());
        }
    }
}
