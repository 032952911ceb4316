//! Whether the store will have us: what a refusal means, given what was granted before.

use core::time::Duration;

use crate::time::Moment;

/// What can be granted or refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Right {
    Read,
    Write,
}

/// What we know of our rights on the record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rights {
    /// When we were first allowed to read.
    may_read: Option<Moment>,
    /// What was never granted, and is refused since then.
    refused: Option<(Right, Moment)>,
    /// We have worked here: whatever is taken away can be given back.
    proven: bool,
}

impl Rights {
    /// Refused from the start and for this long, we give up; and who has read for this long has worked here.
    const PATIENCE: Duration = Duration::from_secs(60);

    pub(super) const fn new() -> Self {
        Self {
            may_read: None,
            refused: None,
            proven: false,
        }
    }

    pub(super) fn granted(&mut self, now: Moment, what: Right) {
        match what {
            Right::Write => self.proven = true,
            Right::Read => {
                self.may_read.get_or_insert(now);
            }
        }
        self.refused.take_if(|(refused, _)| *refused == what);
    }

    /// Whether it is for good: an API server that restarts, or a role that is made anew, refuses for a while.
    pub(super) fn refused(&mut self, now: Moment, what: Right) -> bool {
        let taken_away = self.may_read.is_some() && what == Right::Read;
        let has_worked = self
            .may_read
            .is_some_and(|at| now.since(at) >= Self::PATIENCE);
        if taken_away || (has_worked && self.refused.is_none()) {
            self.proven = true;
        }
        if self.proven {
            return false;
        }
        let (_, since) = *self.refused.get_or_insert((what, now));
        now.since(since) >= Self::PATIENCE
    }
}
