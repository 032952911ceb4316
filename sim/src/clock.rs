//! True time, which nobody in the simulation can read, and each host's own idea of it.

use std::time::Duration;

use soloist_core::time::Moment;

/// True time since the schedule began.
pub(crate) type Nanos = u64;

pub(crate) const MILLI: Nanos = 1_000_000;
pub(crate) const SECOND: Nanos = 1_000 * MILLI;

pub(crate) fn nanos(duration: Duration) -> Nanos {
    Nanos::try_from(duration.as_nanos()).unwrap_or(Nanos::MAX)
}

/// A host's `CLOCK_BOOTTIME`: its own start and its own rate.
pub(crate) struct Clock {
    uptime: Nanos,
    rate: f64,
    /// Time that it did not count: always 0, but for the mutant whose clock stops in suspend.
    lost: Nanos,
}

impl Clock {
    pub(crate) fn new(uptime: Nanos, rate: f64) -> Self {
        Self {
            uptime,
            rate,
            lost: 0,
        }
    }

    pub(crate) fn read(&self, now: Nanos) -> Moment {
        let elapsed = (now - self.lost) as f64 * self.rate;
        Moment::since_boot(Duration::from_nanos(self.uptime + elapsed as Nanos))
    }

    /// The first true time at which [`Clock::read`] gives `moment`; [`Nanos::MAX`] for never.
    pub(crate) fn when(&self, moment: Moment) -> Nanos {
        if moment == Moment::NEVER {
            return Nanos::MAX;
        }
        let elapsed = nanos(moment.uptime()).saturating_sub(self.uptime);
        (elapsed as f64 / self.rate) as Nanos + self.lost + 2
    }

    pub(crate) fn lose(&mut self, length: Nanos) {
        self.lost += length;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_has_reached_a_moment_when_it_says_it_will() {
        for rate in [0.9975, 1.0, 1.0025] {
            let clock = Clock::new(7 * SECOND, rate);
            for millis in [1, 999, 60_000, 1_234_567] {
                let moment = Moment::since_boot(Duration::from_millis(7_000 + millis));
                let at = clock.when(moment);
                assert!(clock.read(at) >= moment && clock.read(at - 10) < moment);
            }
        }
    }
}
