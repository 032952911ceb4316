//! Exponential backoff: 1, 2, 4 … at most 30 seconds.

use core::time::Duration;

use crate::time::Human;

/// How long to wait before the next try: `first`, doubled each time, never more than `most`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    first: Duration,
    most: Duration,
}

/// Why two durations are no [`Backoff`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackoffError {
    /// Would try again without end and without a pause.
    #[error(
        "the first backoff is 0s; it must be longer than nothing, else a failing child is restarted in a busy loop"
    )]
    FirstIsZero,
    /// The limit is below the start.
    #[error("the longest backoff ({}) is shorter than the first ({})", Human(*most), Human(*first))]
    MostBelowFirst {
        /// The first wait.
        first: Duration,
        /// The longest wait.
        most: Duration,
    },
}

impl Backoff {
    /// 1, 2, 4, 8, 16, 30, 30 … seconds.
    pub const STANDARD: Self = Self {
        first: Duration::from_secs(1),
        most: Duration::from_secs(30),
    };

    /// Checks the two durations.
    ///
    /// # Errors
    /// When `first` is zero, or `most` is shorter than `first`.
    pub const fn try_new(first: Duration, most: Duration) -> Result<Self, BackoffError> {
        if first.is_zero() {
            return Err(BackoffError::FirstIsZero);
        }
        if most.as_nanos() < first.as_nanos() {
            return Err(BackoffError::MostBelowFirst { first, most });
        }
        Ok(Self { first, most })
    }

    /// The wait after `failures` failures in a row, counted from 0 for the first wait.
    #[must_use]
    pub fn delay(&self, failures: u32) -> Duration {
        let factor = 2u32.saturating_pow(failures);
        self.first.saturating_mul(factor).min(self.most)
    }

    /// The longest wait.
    #[must_use]
    pub const fn most(&self) -> Duration {
        self.most
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;
    use std::vec::Vec;

    #[test]
    fn doubles_from_one_second_to_thirty() {
        let waits: Vec<_> = (0..8)
            .map(|n| Backoff::STANDARD.delay(n).as_secs())
            .collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30, 30]);
        assert_eq!(Backoff::STANDARD.delay(u32::MAX).as_secs(), 30);
    }

    #[test]
    fn a_backoff_that_makes_no_sense_is_refused() {
        assert_eq!(
            Backoff::try_new(Duration::ZERO, Duration::from_secs(1)),
            Err(BackoffError::FirstIsZero)
        );
        assert!(
            BackoffError::FirstIsZero
                .to_string()
                .starts_with("the first backoff is 0s; it must be longer than nothing")
        );
        assert_eq!(
            Backoff::try_new(Duration::from_secs(2), Duration::from_secs(1))
                .unwrap_err()
                .to_string(),
            "the longest backoff (1s) is shorter than the first (2s)"
        );
    }
}
