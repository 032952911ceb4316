//! What a replica is: what its tree does, and what it intends with it.

use core::fmt;
use core::time::Duration;

use super::{OnLoss, Outcome, Policy, Timer};
use crate::election::Elected;
use crate::ids::{Term, Token};
use crate::time::Moment;

/// The states by name, as people see them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateName {
    /// Another one leads, or nobody.
    Follower,
    /// We hold the lease; the child is not up yet, or not up again.
    PreLeader,
    /// We hold the lease and the child is up.
    Leader,
    /// The term ends; the child is being stopped.
    PreFollower,
    /// We were told to stop.
    Terminating,
}

impl fmt::Display for StateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What the tree does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tree {
    /// There is none.
    Empty,
    /// The child was started and is not ready yet.
    Starting { ready_by: Moment },
    /// The child is up.
    Up { failed_checks: u32 },
    /// The child is asked to end.
    Stopping { kill_at: Moment },
    /// What is left is being killed.
    Killing { since: Moment, remind_at: Moment },
}

impl Tree {
    pub(super) const fn is_empty(self) -> bool {
        matches!(self, Self::Empty)
    }

    pub(super) fn killing(now: Moment) -> Self {
        Self::Killing {
            since: now,
            remind_at: now + Self::REMIND_EVERY,
        }
    }

    /// A kill that takes long is told again and again.
    pub(super) const REMIND_EVERY: Duration = Duration::from_secs(5);
}

/// What we want.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Intent {
    /// To lead, and to run the child for as long as we do.
    Run,
    /// Not to lead until then, so that another replica does.
    StayOut { until: Moment },
    /// To run the child anew: when its tree is empty, or then.
    Restart { at: Option<Moment> },
    /// Not to lead any more when the tree is empty; perhaps not for a while.
    StepDown { cool_down: bool },
    /// To end when the tree is empty and the lease is released.
    Terminate { outcome: Outcome },
    /// Nothing more.
    Done,
}

/// A lease as the replica needs it: the tree may act in this term, until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) term: Term,
    pub(super) token: Token,
    pub(super) valid_until: Moment,
}

impl From<Elected> for Lease {
    fn from(elected: Elected) -> Self {
        Self {
            term: elected.term,
            token: elected.token,
            valid_until: elected.valid_until,
        }
    }
}

impl Lease {
    /// When soloist kills the tree because of the lease.
    pub(super) fn kill_by(&self, policy: &Policy) -> Moment {
        match policy.on_loss {
            OnLoss::Strict => self.valid_until - policy.timings.kill_margin(),
            OnLoss::Graceful => Moment::NEVER,
        }
    }

    /// When the guard does.
    pub(super) fn guard_by(&self, policy: &Policy) -> Moment {
        self.valid_until - policy.timings.guard_margin()
    }

    /// When the first process of a container gives up on a kill that was ordered at `since`: the kernel can kill
    /// what we cannot (who has become another user, say), and must before the lease ends. While the lease can be renewed there is no
    /// hurry, but no sense in waiting for ever either: nobody runs the program meanwhile.
    fn give_up_by(&self, policy: &Policy, since: Moment) -> Option<Moment> {
        let margin = policy.timings.guard_margin() / 2;
        let longest = since + policy.timings.lease().get();
        (policy.first_process && policy.on_loss == OnLoss::Strict)
            .then(|| (self.valid_until - margin).min(longest).max(since + margin))
    }
}

pub(super) const fn name(tree: Tree, intent: Intent) -> StateName {
    match (intent, tree) {
        (Intent::Terminate { .. } | Intent::Done, _) => StateName::Terminating,
        (Intent::StepDown { .. }, _) => StateName::PreFollower,
        (Intent::Restart { .. }, _) => StateName::PreLeader,
        (Intent::StayOut { .. }, _) => StateName::Follower,
        (Intent::Run, Tree::Empty) => StateName::Follower,
        (Intent::Run, Tree::Up { .. }) => StateName::Leader,
        (Intent::Run, Tree::Starting { .. } | Tree::Stopping { .. } | Tree::Killing { .. }) => {
            StateName::PreLeader
        }
    }
}

/// The next deadline. Of two at the same moment, the kill comes first.
pub(super) fn timer(
    tree: Tree,
    intent: Intent,
    lease: Option<&Lease>,
    policy: &Policy,
) -> Option<(Moment, Timer)> {
    let kill_by = lease.map_or(Moment::NEVER, |lease| lease.kill_by(policy));
    let kill = (kill_by, Timer::Kill);
    let (first, second) = match (tree, intent) {
        (Tree::Empty, Intent::Restart { at: Some(at) }) => (Some(kill), Some((at, Timer::Restart))),
        (Tree::Empty, Intent::StayOut { until }) => (Some((until, Timer::CoolDown)), None),
        (
            Tree::Empty,
            Intent::Run
            | Intent::Restart { at: None }
            | Intent::StepDown { .. }
            | Intent::Terminate { .. }
            | Intent::Done,
        ) => (None, None),
        (Tree::Starting { ready_by }, _) => (Some(kill), Some((ready_by, Timer::ReadyLimit))),
        (Tree::Up { .. }, _) => (Some(kill), None),
        (Tree::Stopping { kill_at }, _) => (Some((kill_by.min(kill_at), Timer::Kill)), None),
        (Tree::Killing { since, remind_at }, _) => {
            let give_up = lease.and_then(|lease| lease.give_up_by(policy, since));
            let reminder = (remind_at, Timer::KillReminder);
            (give_up.map(|at| (at, Timer::GiveUp)), Some(reminder))
        }
    };
    [first, second]
        .into_iter()
        .flatten()
        .filter(|(at, _)| *at != Moment::NEVER)
        .min_by_key(|(at, _)| *at)
}
