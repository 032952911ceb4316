//! The states of a replica, and the deadlines that each of them has.

use core::fmt;

use super::{OnLoss, Outcome, Policy, Timer};
use crate::defect;
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Follower(Follower),
    PreLeader(PreLeader),
    Leader(Leader),
    PreFollower(PreFollower),
    Terminating(Terminating),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Follower {
    /// Until then we do not stand.
    pub(super) cool_down: Option<Moment>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PreLeader {
    pub(super) lease: Lease,
    pub(super) start: Start,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// The child was started and is not ready yet.
    Starting { ready_by: Moment },
    /// It is asked to end, to be started again.
    Stopping { kill_at: Moment },
    /// What is left of it is being killed, to be started again.
    Clearing,
    /// Nothing is left; it starts again then.
    Waiting { until: Moment },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leader {
    pub(super) lease: Lease,
    pub(super) failed_checks: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PreFollower {
    pub(super) lease: Lease,
    pub(super) stop: Stop,
    /// Whether to stay out for a while afterwards.
    pub(super) cool_down: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Terminating {
    /// The tree is to end.
    Stopping {
        lease: Lease,
        stop: Stop,
        outcome: Outcome,
    },
    /// The tree is empty and the lease is being released.
    Leaving {
        outcome: Outcome,
    },
    Done,
}

/// A lease as the replica needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) term: Term,
    pub(super) token: Token,
    pub(super) valid_until: Moment,
}

/// The tree's end under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    Asked { kill_at: Moment },
    Killing,
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
            _ if defect!(policy.defect, NoKillBeforeExpiry) => Moment::NEVER,
            OnLoss::Strict => self.valid_until - policy.timings.kill_margin(),
            OnLoss::Graceful => Moment::NEVER,
        }
    }

    /// When the guard does.
    pub(super) fn guard_by(&self, policy: &Policy) -> Moment {
        if defect!(policy.defect, NoKillBeforeExpiry) {
            return Moment::NEVER;
        }
        self.valid_until - policy.timings.guard_margin()
    }
}

impl State {
    pub(super) const fn name(&self) -> StateName {
        match self {
            Self::Follower(_) => StateName::Follower,
            Self::PreLeader(_) => StateName::PreLeader,
            Self::Leader(_) => StateName::Leader,
            Self::PreFollower(_) => StateName::PreFollower,
            Self::Terminating(_) => StateName::Terminating,
        }
    }

    /// The next deadline of this state. Of two at the same moment, the kill comes first.
    pub(super) fn timer(&self, policy: &Policy) -> Option<(Moment, Timer)> {
        let kill = |at, lease: &Lease| Some((lease.kill_by(policy).min(at), Timer::Kill));
        let (kill, other) = match self {
            Self::Follower(f) => (None, f.cool_down.map(|at| (at, Timer::CoolDown))),
            Self::PreLeader(p) => match p.start {
                Start::Starting { ready_by } => (
                    kill(Moment::NEVER, &p.lease),
                    Some((ready_by, Timer::ReadyLimit)),
                ),
                Start::Stopping { kill_at } => (kill(kill_at, &p.lease), None),
                Start::Clearing => (None, None),
                Start::Waiting { until } => {
                    (kill(Moment::NEVER, &p.lease), Some((until, Timer::Restart)))
                }
            },
            Self::Leader(l) => (kill(Moment::NEVER, &l.lease), None),
            Self::PreFollower(p) => (p.stop.timer(&p.lease, policy), None),
            Self::Terminating(Terminating::Stopping { lease, stop, .. }) => {
                (stop.timer(lease, policy), None)
            }
            Self::Terminating(Terminating::Leaving { .. } | Terminating::Done) => (None, None),
        };
        [kill, other]
            .into_iter()
            .flatten()
            .filter(|(at, _)| *at != Moment::NEVER)
            .min_by_key(|(at, _)| *at)
    }
}

impl Stop {
    fn timer(&self, lease: &Lease, policy: &Policy) -> Option<(Moment, Timer)> {
        match self {
            Self::Asked { kill_at } => Some((lease.kill_by(policy).min(*kill_at), Timer::Kill)),
            Self::Killing => None,
        }
    }
}
