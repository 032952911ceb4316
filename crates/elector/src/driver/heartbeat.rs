//! Signs of life of the election's loop.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use soloist_core::time::Moment;

/// Reads the heartbeat of a driver.
#[derive(Clone, Debug)]
pub struct HeartbeatMonitor(pub(super) Arc<Pulse>);

impl HeartbeatMonitor {
    /// How often the loop has turned, and when last.
    #[must_use]
    pub fn heartbeat(&self) -> Heartbeat {
        self.0.read()
    }
}

/// A sign of life of the election's loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// How often the loop has turned.
    pub turns: u64,
    /// When it last did.
    pub last: Moment,
}

#[derive(Debug, Default)]
pub(super) struct Pulse {
    turns: AtomicU64,
    last_nanos: AtomicU64,
}

impl Pulse {
    pub(super) fn beat(&self, now: Moment) {
        let nanos = u64::try_from(now.uptime().as_nanos()).unwrap_or(u64::MAX);
        self.last_nanos.store(nanos, Ordering::Relaxed);
        self.turns.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> Heartbeat {
        Heartbeat {
            turns: self.turns.load(Ordering::Relaxed),
            last: Moment::since_boot(Duration::from_nanos(
                self.last_nanos.load(Ordering::Relaxed),
            )),
        }
    }
}
