//! Stopping the child, in order or by force, and giving the lease back.

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use super::state::{Intent, Tree};
use super::{Action, OnLoss, Outcome, Replica};
use crate::election::Loss;
use crate::ladder::Ladder;
use crate::time::Moment;

// With a tree.
impl Replica {
    fn asked(&self, now: Moment) -> Tree {
        Tree::Stopping {
            kill_at: now + self.policy.ladder.stop(),
        }
    }

    /// From now on there is only so much left of the grace period of whoever ends us. A stop becomes shorter by it, never longer.
    #[must_use]
    pub fn shorten_stop(&mut self, now: Moment, left: Duration) -> Vec<Action> {
        self.stop_by = self.stop_by.min(now + Ladder::stop_within(left));
        match self.cut_short() {
            true => self.graceful_deadline().into_iter().collect(),
            false => vec![],
        }
    }

    /// Whether a stop is under way that would have lasted longer.
    fn cut_short(&mut self) -> bool {
        match &mut self.tree {
            Tree::Stopping { kill_at } if *kill_at > self.stop_by => {
                *kill_at = self.stop_by;
                true
            }
            Tree::Stopping { .. }
            | Tree::Empty
            | Tree::Starting { .. }
            | Tree::Up { .. }
            | Tree::Killing { .. } => false,
        }
    }

    pub(super) fn ask_to_stop(&mut self, now: Moment) -> Vec<Action> {
        self.tree = self.asked(now);
        self.cut_short();
        let mut actions = vec![Action::StopChild];
        actions.extend(self.graceful_deadline());
        actions
    }

    pub(super) fn kill(&mut self, now: Moment) -> Vec<Action> {
        if !matches!(self.tree, Tree::Killing { .. }) {
            self.tree = Tree::killing(now);
        }
        if let Intent::Terminate { outcome } = &mut self.intent
            && !matches!(outcome, Outcome::Child(_))
        {
            *outcome = Outcome::Killed;
        }
        vec![Action::KillTree]
    }

    pub(super) fn kill_and_tell_guard(&mut self, now: Moment) -> Vec<Action> {
        let mut actions = self.kill(now);
        actions.extend(self.graceful_deadline());
        actions
    }

    /// Another replica is to lead.
    pub(super) fn step_down(&mut self, now: Moment, cool_down: bool) -> Vec<Action> {
        self.intent = Intent::StepDown { cool_down };
        let mut actions = vec![Action::Resign];
        actions.extend(self.ask_to_stop(now));
        actions
    }

    /// We are to end.
    pub(super) fn terminate(&mut self, now: Moment) -> Vec<Action> {
        let mut actions = self.resign_to_terminate(Outcome::Clean);
        actions.extend(self.ask_to_stop(now));
        actions
    }

    pub(super) fn resign_to_terminate(&mut self, outcome: Outcome) -> Vec<Action> {
        self.intent = Intent::Terminate { outcome };
        vec![Action::Resign]
    }

    /// Where a lost lease leaves the child its stop timeout, it leaves none to what a child that has ended left behind.
    pub(super) fn leaves_grace(&self, loss: &Loss) -> bool {
        let graceful = self.policy.on_loss == OnLoss::Graceful && self.child_exit.is_none();
        loss.leaves_grace() || (graceful && *loss == Loss::Expired)
    }

    /// The guard's deadline: the lease's, or the child's own stop timeout where the user has said that a lost
    /// lease does not cut it short.
    pub(super) fn guard_deadline(&self) -> Option<Action> {
        let by_lease = self.lease.as_ref()?.guard_by(&self.policy);
        let deadline = match (self.policy.on_loss, self.tree) {
            (OnLoss::Graceful, Tree::Stopping { kill_at }) => {
                by_lease.max(kill_at + self.policy.timings.guard_margin())
            }
            (
                OnLoss::Graceful,
                Tree::Empty | Tree::Starting { .. } | Tree::Up { .. } | Tree::Killing { .. },
            )
            | (OnLoss::Strict, _) => by_lease,
        };
        Some(Action::Deadline(deadline))
    }

    pub(super) fn graceful_deadline(&self) -> Option<Action> {
        match self.policy.on_loss {
            OnLoss::Strict => None,
            OnLoss::Graceful => self.guard_deadline(),
        }
    }
}

// Without one.
impl Replica {
    /// The tree is empty: a follower again.
    pub(super) fn follow(&mut self, now: Moment, cool_down: bool) -> Vec<Action> {
        self.lease = None;
        if cool_down {
            let until = now + self.policy.cool_down;
            self.intent = Intent::StayOut { until };
            return vec![Action::Leave];
        }
        self.intent = Intent::Run;
        vec![Action::Leave, Action::Stand]
    }

    /// The tree is empty, the lease is to be released, then we end.
    pub(super) fn leave_for_good(&mut self, outcome: Outcome) -> Vec<Action> {
        self.lease = None;
        self.intent = Intent::Terminate { outcome };
        vec![Action::Leave]
    }

    pub(super) fn exit(&mut self, outcome: Outcome) -> Vec<Action> {
        self.intent = Intent::Done;
        vec![Action::Exit(outcome)]
    }
}
