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
    /// Time that it did not count.
    lost: Nanos,
    /// When it stood still, by its own reading, and for how long.
    losses: Vec<(Moment, Nanos)>,
}

impl Clock {
    pub(crate) fn new(uptime: Nanos, rate: f64) -> Self {
        Self {
            uptime,
            rate,
            lost: 0,
            losses: Vec::new(),
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

    /// It has stood still for `length`, until `now`.
    pub(crate) fn lose(&mut self, now: Nanos, length: Nanos) {
        self.lost += length;
        self.losses.push((self.read(now), length));
    }

    /// How much time it has not counted since it showed `moment`.
    pub(crate) fn lost_since(&self, moment: Moment) -> Nanos {
        let since = self.losses.iter().rev().take_while(|(at, _)| *at >= moment);
        since.map(|(_, length)| length).sum()
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

    #[test]
    fn a_pause_that_it_does_not_count_is_missing_from_its_reading() {
        let mut clock = Clock::new(0, 1.0);
        let before = clock.read(2 * SECOND);
        clock.lose(5 * SECOND, 3 * SECOND);
        assert_eq!(clock.read(5 * SECOND), before);
        assert_eq!(clock.lost_since(before), 3 * SECOND);
        assert_eq!(clock.lost_since(clock.read(6 * SECOND)), 0);
    }
}
