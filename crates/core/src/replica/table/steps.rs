//! The steps that the table is made of.

use alloc::vec;
use alloc::vec::Vec;

use super::crashes::Crashes;
use super::{Next, Replica};
use crate::defect;
use crate::election::{Elected, Loss};
use crate::replica::state::{
    Follower, Lease, PreFollower, PreLeader, Start, State, Stop, Terminating,
};
use crate::replica::{Action, Exit, OnLoss, Outcome};
use crate::time::Moment;

impl Replica {
    pub(super) fn start_term(&mut self, now: Moment, elected: Elected) -> Next {
        self.spawn(now, Lease::from(elected))
    }

    pub(super) fn spawn(&mut self, now: Moment, lease: Lease) -> Next {
        // After a freeze the timer may come before the news that the lease has ended.
        if now
            >= lease
                .kill_by(&self.policy)
                .min(lease.guard_by(&self.policy))
        {
            return self.follow(now, false);
        }
        self.child_exit = None;
        self.crashes.started(now);
        let deadline = if defect!(self.policy.defect, GuardArmedLate) {
            Moment::NEVER
        } else {
            lease.guard_by(&self.policy)
        };
        let start = Start::Starting {
            ready_by: now + self.policy.start_limit,
        };
        let Lease { term, token, .. } = lease;
        (
            State::PreLeader(PreLeader { lease, start }),
            vec![Action::Spawn {
                term,
                token,
                deadline,
            }],
        )
    }

    /// The child ended although nobody had asked it to. What it left behind must go first.
    pub(super) fn child_ended(&mut self, lease: Lease, exit: Exit) -> Next {
        self.child_exit = Some(exit);
        if self.policy.once {
            let stop = Stop::Killing;
            let outcome = Outcome::Child(exit);
            let state = Terminating::Stopping {
                lease,
                stop,
                outcome,
            };
            return (
                State::Terminating(state),
                vec![Action::Resign, Action::KillTree],
            );
        }
        let start = Start::Clearing;
        (
            State::PreLeader(PreLeader { lease, start }),
            vec![Action::KillTree],
        )
    }

    /// The tree is empty and the lease is ours: start again, at once or after a while, or let another try.
    pub(super) fn restart(&mut self, now: Moment, lease: Lease) -> Next {
        if self.policy.once {
            return leave_for_good(self.child_exit.map_or(Outcome::Killed, Outcome::Child));
        }
        match self.crashes.next_start(now, &self.policy) {
            Some(until) if until <= now => self.spawn(now, lease),
            Some(until) => {
                let start = Start::Waiting { until };
                (State::PreLeader(PreLeader { lease, start }), vec![])
            }
            None => {
                self.crashes = Crashes::default();
                self.follow(now, true)
            }
        }
    }

    /// The lease is lost or about to end while the tree lives.
    pub(super) fn lose(&self, now: Moment, lease: Lease, stop: Option<Stop>, loss: &Loss) -> Next {
        let kill = !self.leaves_grace(loss);
        let (stop, mut actions) = match stop {
            Some(Stop::Killing) => (Stop::Killing, vec![]),
            _ if kill => (Stop::Killing, vec![Action::KillTree]),
            Some(asked @ Stop::Asked { .. }) => (asked, vec![]),
            None => (self.asked(now), vec![Action::StopChild]),
        };
        actions.extend(self.graceful_deadline(&lease, stop));
        let state = PreFollower {
            lease,
            stop,
            cool_down: false,
        };
        (State::PreFollower(state), actions)
    }

    pub(super) fn lose_while_stopping(
        &self,
        stay: State,
        killing: State,
        stop: Stop,
        loss: &Loss,
    ) -> Next {
        match stop {
            Stop::Asked { .. } if !self.leaves_grace(loss) => (killing, vec![Action::KillTree]),
            Stop::Asked { .. } | Stop::Killing => (stay, vec![]),
        }
    }

    pub(super) fn leaves_grace(&self, loss: &Loss) -> bool {
        loss.leaves_grace()
            || (self.policy.on_loss == OnLoss::Graceful && *loss == Loss::Expired)
            || (*loss == Loss::Expired && defect!(self.policy.defect, NoKillBeforeExpiry))
    }

    /// Our own clock says that the lease is as good as over, whatever the election says.
    pub(super) fn kill_for_lease(&self, lease: Lease) -> Next {
        let state = PreFollower {
            lease,
            stop: Stop::Killing,
            cool_down: false,
        };
        (State::PreFollower(state), vec![Action::KillTree])
    }

    pub(super) fn asked(&self, now: Moment) -> Stop {
        Stop::Asked {
            kill_at: now + self.policy.ladder.stop(),
        }
    }

    /// The guard's deadline while the child is being stopped: the lease's, or the child's own stop
    /// timeout where the user has said that a lost lease does not cut it short.
    pub(super) fn guard_while_stopping(&self, lease: &Lease, stop: Stop) -> Moment {
        let by_lease = lease.guard_by(&self.policy);
        match (self.policy.on_loss, stop) {
            (OnLoss::Graceful, Stop::Asked { kill_at }) => {
                by_lease.max(kill_at + self.policy.timings.guard_margin())
            }
            (OnLoss::Graceful, Stop::Killing) | (OnLoss::Strict, _) => by_lease,
        }
    }

    pub(super) fn graceful_deadline(&self, lease: &Lease, stop: Stop) -> Option<Action> {
        (self.policy.on_loss == OnLoss::Graceful)
            .then(|| Action::Deadline(self.guard_while_stopping(lease, stop)))
    }

    pub(super) fn step_down(&self, now: Moment, lease: Lease) -> Next {
        let stop = self.asked(now);
        let (state, mut actions) = self.stepping_down(lease, stop);
        actions.push(Action::StopChild);
        actions.extend(self.graceful_deadline(&lease, stop));
        (state, actions)
    }

    pub(super) fn stepping_down(&self, lease: Lease, stop: Stop) -> Next {
        let state = PreFollower {
            lease,
            stop,
            cool_down: true,
        };
        (State::PreFollower(state), self.resign())
    }

    pub(super) fn terminate(&self, now: Moment, lease: Lease) -> Next {
        let stop = self.asked(now);
        let (state, mut actions) = self.terminating(lease, stop, Outcome::Clean);
        actions.push(Action::StopChild);
        actions.extend(self.graceful_deadline(&lease, stop));
        (state, actions)
    }

    pub(super) fn terminating(&self, lease: Lease, stop: Stop, outcome: Outcome) -> Next {
        let state = Terminating::Stopping {
            lease,
            stop,
            outcome,
        };
        (State::Terminating(state), self.resign())
    }

    pub(super) fn resign(&self) -> Vec<Action> {
        if defect!(self.policy.defect, ReleaseBeforeEmpty) {
            return vec![Action::Resign, Action::Leave];
        }
        vec![Action::Resign]
    }

    /// The tree is empty: a follower again.
    pub(super) fn follow(&self, now: Moment, cool_down: bool) -> Next {
        if cool_down {
            let until = now + self.policy.cool_down;
            let state = Follower {
                cool_down: Some(until),
            };
            return (State::Follower(state), vec![Action::Leave]);
        }
        let state = Follower { cool_down: None };
        (State::Follower(state), vec![Action::Leave, Action::Stand])
    }
}

/// The tree is empty, the lease is to be released, then we end.
pub(super) fn leave_for_good(outcome: Outcome) -> Next {
    (
        State::Terminating(Terminating::Leaving { outcome }),
        vec![Action::Leave],
    )
}
