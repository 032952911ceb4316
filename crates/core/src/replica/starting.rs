//! Starting the child, for the first time and again.

use alloc::vec;
use alloc::vec::Vec;

use super::crashes::Crashes;
use super::state::{Intent, Tree};
use super::{Action, Exit, Outcome, Replica};
use crate::guard::LEFTOVERS_GRACE;
use crate::time::Moment;

/// The kernel kills the child when its guard dies.
const DIED_WITH_ITS_GUARD: Exit = Exit::Signal(9);

impl Replica {
    pub(super) fn spawn(&mut self, now: Moment) -> Vec<Action> {
        // After a freeze the timer may come before the loss of the lease.
        let Some(lease) = self.lease.filter(|lease| {
            let last_moment = lease.kill_by(&self.policy);
            now < last_moment.min(lease.guard_by(&self.policy))
        }) else {
            return self.follow(now, false);
        };
        self.child_exit = None;
        self.crashes.started(now);
        self.intent = Intent::Run;
        self.tree = Tree::Starting {
            ready_by: now + self.policy.start_limit,
        };
        vec![Action::Spawn {
            term: lease.term,
            token: lease.token,
            deadline: lease.guard_by(&self.policy),
        }]
    }

    /// The child ended although nobody had asked it to. What it left behind must go first: the guard asks it to, and
    /// it has a moment for that.
    pub(super) fn child_ended(&mut self, now: Moment, exit: Exit) -> Vec<Action> {
        let grace = LEFTOVERS_GRACE.min(self.policy.ladder.stop());
        self.tree = Tree::Stopping {
            kill_at: now + grace,
        };
        self.over(exit).into_iter().collect()
    }

    /// The child died with its guard. Nobody is left to ask for what it left behind.
    pub(super) fn child_died_with_its_guard(&mut self, now: Moment) -> Vec<Action> {
        self.tree = Tree::killing(now);
        let over = self.over(DIED_WITH_ITS_GUARD);
        over.into_iter().chain([Action::KillTree]).collect()
    }

    fn over(&mut self, exit: Exit) -> Option<Action> {
        self.child_exit = Some(exit);
        if self.policy.once {
            let outcome = Outcome::Child(exit);
            self.intent = Intent::Terminate { outcome };
            return Some(Action::Resign);
        }
        self.intent = Intent::Restart { at: None };
        None
    }

    /// The tree is empty and the lease is ours: start again, at once or after a while, or let another try.
    pub(super) fn restart(&mut self, now: Moment) -> Vec<Action> {
        if self.policy.once {
            let outcome = self.child_exit.map_or(Outcome::Killed, Outcome::Child);
            return self.leave_for_good(outcome);
        }
        match self.crashes.next_start(now, &self.policy) {
            Some(at) if at <= now => self.spawn(now),
            Some(at) => {
                self.intent = Intent::Restart { at: Some(at) };
                vec![]
            }
            None => {
                self.crashes = Crashes::default();
                self.follow(now, true)
            }
        }
    }
}
