//! The timeouts that this replica runs with, for people.

use std::time::Duration;

use serde_json::{Value, json};
use soloist_core::ladder::Ladder;
use soloist_core::timings::Timings;

/// As set, or as they follow from what is set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeouts {
    pub(crate) grace: Duration,
    pub(crate) ladder: Ladder,
    pub(crate) timings: Timings,
    /// What a lost lease leaves the child between SIGTERM and SIGKILL.
    pub(crate) loss_grace: Duration,
}

impl Timeouts {
    pub(super) const fn lease(&self) -> Duration {
        self.timings.lease().get()
    }

    /// For the end of a Pod.
    pub(super) fn ladder(&self) -> Value {
        json!({
            "grace_seconds": self.grace.as_secs_f64(),
            "stop_seconds": self.ladder.stop().as_secs_f64(),
            "child_seconds": self.ladder.child().as_secs_f64(),
            "drain_seconds": self.ladder.drain().as_secs_f64(),
        })
    }

    /// For a lease that is lost.
    pub(super) fn loss(&self) -> Value {
        json!({
            "lease_seconds": self.lease().as_secs_f64(),
            "renew_deadline_seconds": self.timings.renew_deadline().as_secs_f64(),
            "child_seconds": self.loss_grace.as_secs_f64(),
        })
    }
}

#[cfg(test)]
impl Timeouts {
    #[allow(clippy::unwrap_used)]
    pub(super) fn for_test() -> Self {
        use soloist_core::ladder::LadderRequest;
        use soloist_core::timings::Preset;
        let timings = Timings::preset(Preset::Standard);
        let grace = Duration::from_secs(30);
        Self {
            grace,
            ladder: Ladder::try_new(LadderRequest::from_grace(grace)).unwrap(),
            timings,
            loss_grace: timings.loss_grace(),
        }
    }
}
