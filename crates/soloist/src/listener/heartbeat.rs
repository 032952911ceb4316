//! Whether the main loop still turns.
//!
//! The loop counts its turns, and turns at least every [`BEAT_EVERY`]. The listener looks that often, and counts the looks at which
//! nothing had moved: [`MISSED_AT_MOST`] in a row, and the loop has stalled. It counts its own looks instead of reading a clock, so
//! that a process that was stopped as a whole, or a machine that slept, is not found to have stalled when it goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// The loop turns at least this often, and is looked at this often.
pub(crate) const BEAT_EVERY: Duration = Duration::from_secs(1);

/// More looks in a row without a turn, and the loop has stalled: about ten seconds.
const MISSED_AT_MOST: u32 = 10;

/// The loop's side.
#[derive(Clone, Debug, Default)]
pub(super) struct Heartbeat(Arc<AtomicU64>);

impl Heartbeat {
    /// The loop has turned.
    pub(super) fn beat(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn beats(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The listener's side.
#[derive(Debug, Default)]
pub(super) struct Pulse {
    last: AtomicU64,
    missed: AtomicU32,
}

impl Pulse {
    /// To be called every [`BEAT_EVERY`], by one alone.
    pub(super) fn look(&self, heartbeat: &Heartbeat) {
        let beats = heartbeat.beats();
        match self.last.swap(beats, Ordering::Relaxed) == beats {
            true => {
                let missed = self.missed.load(Ordering::Relaxed).saturating_add(1);
                self.missed.store(missed, Ordering::Relaxed);
            }
            false => self.missed.store(0, Ordering::Relaxed),
        }
    }

    /// For how long the loop has stood still, if that is too long.
    pub(super) fn stalled(&self, heartbeat: &Heartbeat) -> Option<Duration> {
        let missed = self.missed.load(Ordering::Relaxed);
        let moved = heartbeat.beats() != self.last.load(Ordering::Relaxed);
        (missed > MISSED_AT_MOST && !moved).then(|| BEAT_EVERY * missed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_that_turns_has_not_stalled() {
        let (heartbeat, pulse) = (Heartbeat::default(), Pulse::default());
        for _ in 0..100 {
            heartbeat.beat();
            pulse.look(&heartbeat);
            assert_eq!(pulse.stalled(&heartbeat), None);
        }
    }

    #[test]
    fn a_loop_that_stands_still_for_more_than_ten_looks_has_stalled_until_it_turns() {
        let (heartbeat, pulse) = (Heartbeat::default(), Pulse::default());
        heartbeat.beat();
        pulse.look(&heartbeat);
        for _ in 0..10 {
            pulse.look(&heartbeat);
            assert_eq!(pulse.stalled(&heartbeat), None);
        }
        pulse.look(&heartbeat);
        assert_eq!(pulse.stalled(&heartbeat), Some(Duration::from_secs(11)));
        heartbeat.beat();
        assert_eq!(pulse.stalled(&heartbeat), None, "before the next look, too");
        pulse.look(&heartbeat);
        assert_eq!(pulse.stalled(&heartbeat), None);
    }

    #[test]
    fn who_was_stopped_together_with_the_loop_has_missed_one_turn_at_most() {
        let (heartbeat, pulse) = (Heartbeat::default(), Pulse::default());
        heartbeat.beat();
        pulse.look(&heartbeat);
        // An hour, in which neither ran.
        pulse.look(&heartbeat);
        assert_eq!(pulse.stalled(&heartbeat), None);
    }
}
