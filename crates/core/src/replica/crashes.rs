//! When a child that ended is started again.

use alloc::vec::Vec;
use core::time::Duration;

use super::Policy;
use crate::time::Moment;

/// The child's ends after which it is started again: by itself, or because it was not well.
#[derive(Clone, Debug, Default)]
pub(super) struct Crashes {
    recent: Vec<Moment>,
    /// Since the child was last stable.
    in_a_row: u32,
    started: Option<Moment>,
}

impl Crashes {
    pub(super) fn started(&mut self, now: Moment) {
        self.started = Some(now);
    }

    /// When to start the child again after it ended now; `None` if it ended too often.
    pub(super) fn next_start(&mut self, now: Moment, policy: &Policy) -> Option<Moment> {
        let restarts = &policy.restarts;
        let ran = self.started.map_or(Duration::ZERO, |at| now.since(at));
        let before = match ran >= restarts.stable_after {
            true => 0,
            false => self.in_a_row,
        };
        self.in_a_row = before.saturating_add(1);
        self.recent.retain(|at| now.since(*at) < restarts.window);
        self.recent.push(now);
        if self.recent.len() > restarts.most as usize {
            return None;
        }
        Some(match before {
            0 => now,
            n => now + restarts.backoff.delay(n - 1),
        })
    }
}
