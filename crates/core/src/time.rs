//! Local time, and durations as people read them.

use core::fmt;
use core::ops::{Add, Sub};
use core::time::Duration;

/// A reading of this machine's `CLOCK_BOOTTIME`: it goes on counting through suspend, never goes back,
/// and means nothing on another machine. Arithmetic saturates instead of overflowing, and a while before never is never.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(Duration);

impl Moment {
    /// Later than anything that happens.
    pub const NEVER: Self = Self(Duration::MAX);

    /// The moment at which the machine had been up for `uptime`.
    #[must_use]
    pub const fn since_boot(uptime: Duration) -> Self {
        Self(uptime)
    }

    /// How long the machine had been up.
    #[must_use]
    pub const fn uptime(self) -> Duration {
        self.0
    }

    /// How long after `earlier` this is; zero if it is not after it.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, length: Duration) -> Self {
        Self(self.0.saturating_add(length))
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;

    fn sub(self, length: Duration) -> Self {
        match self {
            Self::NEVER => self,
            Self(uptime) => Self(uptime.saturating_sub(length)),
        }
    }
}

/// Shows a duration as it is written in flags: `15s`, `2.5s`, `750ms`, `1m30s`.
#[derive(Clone, Copy, Debug)]
pub struct Human(pub Duration);

impl fmt::Display for Human {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.0.as_secs();
        let millis = self.0.subsec_millis();
        if seconds >= 60 && millis == 0 {
            let (minutes, rest) = (seconds / 60, seconds % 60);
            return match rest {
                0 => write!(f, "{minutes}m"),
                _ => write!(f, "{minutes}m{rest}s"),
            };
        }
        match (seconds, millis) {
            (0, 0) if self.0 > Duration::ZERO => write!(f, "{}us", self.0.subsec_micros()),
            (_, 0) => write!(f, "{seconds}s"),
            (0, _) => write!(f, "{millis}ms"),
            (_, m) if m % 100 == 0 => write!(f, "{seconds}.{}s", m / 100),
            (_, m) if m % 10 == 0 => write!(f, "{seconds}.{:02}s", m / 10),
            (_, m) => write!(f, "{seconds}.{m:03}s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn durations_read_as_they_are_written_in_flags() {
        for (millis, text) in [
            (0, "0s"),
            (15_000, "15s"),
            (2_500, "2.5s"),
            (750, "750ms"),
            (1_667, "1.667s"),
            (1_250, "1.25s"),
            (60_000, "1m"),
            (90_000, "1m30s"),
        ] {
            assert_eq!(Human(Duration::from_millis(millis)).to_string(), text);
        }
        assert_eq!(Human(Duration::from_micros(40)).to_string(), "40us");
    }

    #[test]
    fn moments_saturate_at_both_ends() {
        let early = Moment::since_boot(Duration::from_secs(1));
        assert_eq!(
            early - Duration::from_secs(2),
            Moment::since_boot(Duration::ZERO)
        );
        assert_eq!(Moment::NEVER + Duration::from_secs(1), Moment::NEVER);
        assert_eq!(Moment::NEVER - Duration::from_secs(1), Moment::NEVER);
        assert_eq!(early.since(early + Duration::from_secs(1)), Duration::ZERO);
    }
}
