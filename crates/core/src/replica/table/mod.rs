//! The table: state × event → next state and actions. Every pair is answered, one function a state.

mod crashes;
mod steps;

use alloc::vec;
use alloc::vec::Vec;

use super::state::{
    Follower, Leader, Lease, PreFollower, PreLeader, Start, State, StateName, Stop, Terminating,
};
use super::{Action, Event, Exit, OnUnhealthy, Outcome, Policy, Timer};
use crate::defect;
use crate::ids::{Term, Token};
use crate::time::Moment;
use crashes::Crashes;
use steps::leave_for_good;

/// One replica. See the [module](super).
#[derive(Clone, Debug)]
pub struct Replica {
    policy: Policy,
    state: State,
    crashes: Crashes,
    /// How the child ended, for `--once`.
    child_exit: Option<Exit>,
}

/// The kernel kills the child when its guard dies.
const DIED_WITH_ITS_GUARD: Exit = Exit::Signal(9);

type Next = (State, Vec<Action>);

impl Replica {
    /// A follower, and the first thing to do.
    #[must_use]
    pub fn new(policy: Policy) -> (Self, Vec<Action>) {
        let replica = Self {
            policy,
            state: State::Follower(Follower { cool_down: None }),
            crashes: Crashes::default(),
            child_exit: None,
        };
        (replica, vec![Action::Stand])
    }

    /// Takes in what happened; gives what to do, in order.
    #[must_use]
    pub fn handle(&mut self, now: Moment, event: Event) -> Vec<Action> {
        let (state, actions) = match self.state {
            State::Follower(state) => self.in_follower(now, state, event),
            State::PreLeader(state) => self.in_pre_leader(now, state, event),
            State::Leader(state) => self.in_leader(now, state, event),
            State::PreFollower(state) => self.in_pre_follower(now, state, event),
            State::Terminating(state) => self.in_terminating(state, event),
        };
        self.state = state;
        actions
    }

    /// Time has passed: every deadline that has been reached, in order.
    #[must_use]
    pub fn handle_timeout(&mut self, now: Moment) -> Vec<Action> {
        let mut actions = Vec::new();
        while let Some((at, timer)) = self.state.timer(&self.policy)
            && at <= now
        {
            actions.extend(self.handle(now, Event::Timer(timer)));
        }
        actions
    }

    /// When to call [`Replica::handle_timeout`], if nothing else happens before.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Moment> {
        self.state.timer(&self.policy).map(|(at, _)| at)
    }

    /// Where we are.
    #[must_use]
    pub const fn state(&self) -> StateName {
        self.state.name()
    }

    /// The term that we hold the lease in.
    #[must_use]
    pub const fn term(&self) -> Option<(Term, Token)> {
        let lease = match &self.state {
            State::PreLeader(PreLeader { lease, .. })
            | State::Leader(Leader { lease, .. })
            | State::PreFollower(PreFollower { lease, .. })
            | State::Terminating(Terminating::Stopping { lease, .. }) => lease,
            State::Follower(_)
            | State::Terminating(Terminating::Leaving { .. } | Terminating::Done) => return None,
        };
        Some((lease.term, lease.token))
    }

    fn in_follower(&mut self, now: Moment, state: Follower, event: Event) -> Next {
        let stay = State::Follower(state);
        match event {
            Event::Elected(elected) => self.start_term(now, elected),
            // Our release did not get through before the lease ended.
            Event::Lost(_) => match state.cool_down {
                None => (stay, vec![Action::Stand]),
                Some(_) => (stay, vec![]),
            },
            Event::Refused => leave_for_good(Outcome::Refused),
            Event::StopSignal => leave_for_good(Outcome::Clean),
            Event::Timer(Timer::CoolDown) => (
                State::Follower(Follower { cool_down: None }),
                vec![Action::Stand],
            ),
            Event::Extended(_)
            | Event::Left
            | Event::SpawnFailed(_)
            | Event::Ready
            | Event::Exited(_)
            | Event::TreeEmpty
            | Event::GuardLost
            | Event::Healthy
            | Event::Unhealthy
            | Event::HandOver
            | Event::Timer(Timer::Kill | Timer::ReadyLimit | Timer::Restart) => (stay, vec![]),
        }
    }

    fn in_pre_leader(&mut self, now: Moment, state: PreLeader, event: Event) -> Next {
        let PreLeader { lease, start } = state;
        let stay = State::PreLeader(state);
        let clearing = State::PreLeader(PreLeader {
            lease,
            start: Start::Clearing,
        });
        match (event, start) {
            (Event::Extended(valid_until), _) => {
                let lease = Lease {
                    valid_until,
                    ..lease
                };
                let actions = match start {
                    Start::Waiting { .. } => vec![],
                    Start::Starting { .. } | Start::Stopping { .. } | Start::Clearing => {
                        vec![Action::Deadline(lease.guard_by(&self.policy))]
                    }
                };
                (State::PreLeader(PreLeader { lease, start }), actions)
            }

            (Event::Lost(_), Start::Waiting { .. }) => self.follow(now, false),
            (Event::Lost(loss), Start::Starting { .. }) => self.lose(now, lease, None, &loss),
            (Event::Lost(loss), Start::Stopping { kill_at }) => {
                self.lose(now, lease, Some(Stop::Asked { kill_at }), &loss)
            }
            (Event::Lost(loss), Start::Clearing) => {
                self.lose(now, lease, Some(Stop::Killing), &loss)
            }

            (Event::SpawnFailed(failure), Start::Starting { .. }) if self.policy.once => {
                leave_for_good(Outcome::CannotRun(failure))
            }
            (Event::SpawnFailed(_), Start::Starting { .. }) => self.follow(now, true),
            (Event::SpawnFailed(_), Start::Stopping { .. } | Start::Clearing) => {
                self.restart(now, lease)
            }

            (Event::Ready, Start::Starting { .. }) => {
                let actions = if defect!(self.policy.defect, GuardArmedLate) {
                    vec![Action::Deadline(lease.guard_by(&self.policy))]
                } else {
                    vec![]
                };
                (
                    State::Leader(Leader {
                        lease,
                        failed_checks: 0,
                    }),
                    actions,
                )
            }

            (Event::Exited(exit), Start::Starting { .. }) => self.child_ended(lease, exit),
            (
                Event::TreeEmpty,
                Start::Starting { .. } | Start::Stopping { .. } | Start::Clearing,
            ) => self.restart(now, lease),
            (Event::GuardLost, Start::Starting { .. }) => {
                self.child_ended(lease, DIED_WITH_ITS_GUARD)
            }
            (Event::GuardLost, Start::Stopping { .. } | Start::Clearing) => {
                (clearing, vec![Action::KillTree])
            }

            (Event::StopSignal, Start::Waiting { .. }) => leave_for_good(Outcome::Clean),
            (Event::StopSignal, Start::Starting { .. }) => self.terminate(now, lease),
            (Event::StopSignal, Start::Stopping { kill_at }) => {
                self.terminating(lease, Stop::Asked { kill_at }, Outcome::Clean)
            }
            // The child has ended by itself; only what it left behind is being killed.
            (Event::StopSignal, Start::Clearing) => {
                self.terminating(lease, Stop::Killing, Outcome::Clean)
            }

            (Event::HandOver, Start::Waiting { .. }) => self.follow(now, true),
            (Event::HandOver, Start::Starting { .. }) => self.step_down(now, lease),
            (Event::HandOver, Start::Stopping { kill_at }) => {
                self.stepping_down(lease, Stop::Asked { kill_at })
            }
            (Event::HandOver, Start::Clearing) => self.stepping_down(lease, Stop::Killing),

            (Event::Timer(Timer::ReadyLimit), Start::Starting { .. }) => self.step_down(now, lease),
            (Event::Timer(Timer::Restart), Start::Waiting { .. }) => self.spawn(now, lease),
            (Event::Timer(Timer::Kill), Start::Waiting { .. }) => self.follow(now, false),
            // Only the restart has taken too long; the lease is fine.
            (Event::Timer(Timer::Kill), Start::Stopping { .. })
                if now < lease.kill_by(&self.policy) =>
            {
                (clearing, vec![Action::KillTree])
            }
            (Event::Timer(Timer::Kill), Start::Starting { .. } | Start::Stopping { .. }) => {
                self.kill_for_lease(lease)
            }

            (
                Event::Elected(_)
                | Event::Left
                | Event::Refused
                | Event::Healthy
                | Event::Unhealthy
                | Event::Timer(Timer::CoolDown),
                _,
            )
            | (
                Event::SpawnFailed(_) | Event::TreeEmpty | Event::GuardLost,
                Start::Waiting { .. },
            )
            | (
                Event::Ready | Event::Exited(_),
                Start::Stopping { .. } | Start::Clearing | Start::Waiting { .. },
            )
            | (
                Event::Timer(Timer::ReadyLimit),
                Start::Stopping { .. } | Start::Clearing | Start::Waiting { .. },
            )
            | (
                Event::Timer(Timer::Restart),
                Start::Starting { .. } | Start::Stopping { .. } | Start::Clearing,
            )
            | (Event::Timer(Timer::Kill), Start::Clearing) => (stay, vec![]),
        }
    }

    fn in_leader(&mut self, now: Moment, state: Leader, event: Event) -> Next {
        let Leader {
            lease,
            failed_checks,
        } = state;
        let stay = State::Leader(state);
        match event {
            Event::Extended(valid_until) => {
                let lease = Lease {
                    valid_until,
                    ..lease
                };
                let deadline = lease.guard_by(&self.policy);
                (
                    State::Leader(Leader { lease, ..state }),
                    vec![Action::Deadline(deadline)],
                )
            }
            Event::Lost(loss) => self.lose(now, lease, None, &loss),
            Event::Exited(exit) => self.child_ended(lease, exit),
            Event::TreeEmpty => self.restart(now, lease),
            Event::GuardLost => self.child_ended(lease, DIED_WITH_ITS_GUARD),
            Event::Healthy => (
                State::Leader(Leader {
                    lease,
                    failed_checks: 0,
                }),
                vec![],
            ),
            Event::Unhealthy if failed_checks + 1 < self.policy.unhealthy_after => {
                let failed_checks = failed_checks + 1;
                (
                    State::Leader(Leader {
                        lease,
                        failed_checks,
                    }),
                    vec![],
                )
            }
            // There is no second run to restart it for.
            Event::Unhealthy if self.policy.once => self.terminate(now, lease),
            Event::Unhealthy => match self.policy.on_unhealthy {
                OnUnhealthy::Restart => {
                    let kill_at = now + self.policy.ladder.stop();
                    let start = Start::Stopping { kill_at };
                    (
                        State::PreLeader(PreLeader { lease, start }),
                        vec![Action::StopChild],
                    )
                }
                OnUnhealthy::StepDown => self.step_down(now, lease),
            },
            Event::StopSignal => self.terminate(now, lease),
            Event::HandOver => self.step_down(now, lease),
            Event::Timer(Timer::Kill) => self.kill_for_lease(lease),
            Event::Elected(_)
            | Event::Left
            | Event::Refused
            | Event::SpawnFailed(_)
            | Event::Ready
            | Event::Timer(Timer::ReadyLimit | Timer::Restart | Timer::CoolDown) => (stay, vec![]),
        }
    }

    fn in_pre_follower(&mut self, now: Moment, state: PreFollower, event: Event) -> Next {
        let PreFollower {
            lease,
            stop,
            cool_down,
        } = state;
        let stay = State::PreFollower(state);
        let killing = State::PreFollower(PreFollower {
            stop: Stop::Killing,
            ..state
        });
        match event {
            Event::Extended(valid_until) => {
                let lease = Lease {
                    valid_until,
                    ..lease
                };
                let deadline = self.guard_while_stopping(&lease, stop);
                (
                    State::PreFollower(PreFollower { lease, ..state }),
                    vec![Action::Deadline(deadline)],
                )
            }
            Event::Lost(loss) => self.lose_while_stopping(stay, killing, stop, &loss),
            Event::TreeEmpty | Event::SpawnFailed(_) => self.follow(now, cool_down),
            Event::GuardLost | Event::Timer(Timer::Kill) => (killing, vec![Action::KillTree]),
            Event::StopSignal => {
                let outcome = match stop {
                    Stop::Asked { .. } => Outcome::Clean,
                    Stop::Killing => Outcome::Killed,
                };
                self.terminating(lease, stop, outcome)
            }
            // Whatever ends the term, another replica is to have the next one.
            Event::HandOver => (
                State::PreFollower(PreFollower {
                    cool_down: true,
                    ..state
                }),
                vec![],
            ),
            Event::Exited(exit) => {
                self.child_exit = Some(exit);
                (stay, vec![])
            }
            Event::Elected(_)
            | Event::Left
            | Event::Refused
            | Event::Ready
            | Event::Healthy
            | Event::Unhealthy
            | Event::Timer(Timer::ReadyLimit | Timer::Restart | Timer::CoolDown) => (stay, vec![]),
        }
    }

    fn in_terminating(&mut self, state: Terminating, event: Event) -> Next {
        let stay = State::Terminating(state);
        match state {
            Terminating::Stopping {
                lease,
                stop,
                outcome,
            } => {
                let killing = State::Terminating(Terminating::Stopping {
                    lease,
                    stop: Stop::Killing,
                    outcome: match outcome {
                        Outcome::Child(_) => outcome,
                        _ => Outcome::Killed,
                    },
                });
                match event {
                    Event::Extended(valid_until) => {
                        let lease = Lease {
                            valid_until,
                            ..lease
                        };
                        let deadline = self.guard_while_stopping(&lease, stop);
                        let state = Terminating::Stopping {
                            lease,
                            stop,
                            outcome,
                        };
                        (State::Terminating(state), vec![Action::Deadline(deadline)])
                    }
                    Event::Lost(loss) => self.lose_while_stopping(stay, killing, stop, &loss),
                    Event::Exited(exit) => {
                        self.child_exit = Some(exit);
                        (stay, vec![])
                    }
                    Event::SpawnFailed(failure) if self.policy.once => {
                        leave_for_good(Outcome::CannotRun(failure))
                    }
                    Event::TreeEmpty | Event::SpawnFailed(_) => {
                        let outcome = match self.child_exit {
                            Some(exit) if self.policy.once => Outcome::Child(exit),
                            Some(_) | None => outcome,
                        };
                        leave_for_good(outcome)
                    }
                    Event::GuardLost | Event::StopSignal | Event::Timer(Timer::Kill) => {
                        (killing, vec![Action::KillTree])
                    }
                    Event::Elected(_)
                    | Event::Left
                    | Event::Refused
                    | Event::Ready
                    | Event::Healthy
                    | Event::Unhealthy
                    | Event::HandOver
                    | Event::Timer(Timer::ReadyLimit | Timer::Restart | Timer::CoolDown) => {
                        (stay, vec![])
                    }
                }
            }
            Terminating::Leaving { outcome } => match event {
                // The second signal does not wait for the release.
                Event::Left | Event::StopSignal => (
                    State::Terminating(Terminating::Done),
                    vec![Action::Exit(outcome)],
                ),
                Event::Elected(_)
                | Event::Extended(_)
                | Event::Lost(_)
                | Event::Refused
                | Event::SpawnFailed(_)
                | Event::Ready
                | Event::Exited(_)
                | Event::TreeEmpty
                | Event::GuardLost
                | Event::Healthy
                | Event::Unhealthy
                | Event::HandOver
                | Event::Timer(_) => (stay, vec![]),
            },
            Terminating::Done => (stay, vec![]),
        }
    }
}
