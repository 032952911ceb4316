//! The table: state × event → next state and actions. Every pair is answered, one function a state.

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use super::state::{
    Follower, Leader, Lease, PreFollower, PreLeader, Start, State, StateName, Stop, Terminating,
};
use super::{Action, Event, Exit, OnLoss, OnUnhealthy, Outcome, Policy, Timer};
use crate::defect;
use crate::election::{Elected, Loss};
use crate::ids::{Term, Token};
use crate::time::Moment;

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

// The steps that the table is made of.
impl Replica {
    fn start_term(&mut self, now: Moment, elected: Elected) -> Next {
        self.spawn(now, Lease::from(elected))
    }

    fn spawn(&mut self, now: Moment, lease: Lease) -> Next {
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
    fn child_ended(&mut self, lease: Lease, exit: Exit) -> Next {
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
    fn restart(&mut self, now: Moment, lease: Lease) -> Next {
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
    fn lose(&self, now: Moment, lease: Lease, stop: Option<Stop>, loss: &Loss) -> Next {
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

    fn lose_while_stopping(&self, stay: State, killing: State, stop: Stop, loss: &Loss) -> Next {
        match stop {
            Stop::Asked { .. } if !self.leaves_grace(loss) => (killing, vec![Action::KillTree]),
            Stop::Asked { .. } | Stop::Killing => (stay, vec![]),
        }
    }

    fn leaves_grace(&self, loss: &Loss) -> bool {
        loss.leaves_grace()
            || (self.policy.on_loss == OnLoss::Graceful && *loss == Loss::Expired)
            || (*loss == Loss::Expired && defect!(self.policy.defect, NoKillBeforeExpiry))
    }

    /// Our own clock says that the lease is as good as over, whatever the election says.
    fn kill_for_lease(&self, lease: Lease) -> Next {
        let state = PreFollower {
            lease,
            stop: Stop::Killing,
            cool_down: false,
        };
        (State::PreFollower(state), vec![Action::KillTree])
    }

    fn asked(&self, now: Moment) -> Stop {
        Stop::Asked {
            kill_at: now + self.policy.ladder.stop(),
        }
    }

    /// The guard's deadline while the child is being stopped: the lease's, or the child's own stop
    /// timeout where the user has said that a lost lease does not cut it short.
    fn guard_while_stopping(&self, lease: &Lease, stop: Stop) -> Moment {
        let by_lease = lease.guard_by(&self.policy);
        match (self.policy.on_loss, stop) {
            (OnLoss::Graceful, Stop::Asked { kill_at }) => {
                by_lease.max(kill_at + self.policy.timings.guard_margin())
            }
            (OnLoss::Graceful, Stop::Killing) | (OnLoss::Strict, _) => by_lease,
        }
    }

    fn graceful_deadline(&self, lease: &Lease, stop: Stop) -> Option<Action> {
        (self.policy.on_loss == OnLoss::Graceful)
            .then(|| Action::Deadline(self.guard_while_stopping(lease, stop)))
    }

    fn step_down(&self, now: Moment, lease: Lease) -> Next {
        let stop = self.asked(now);
        let (state, mut actions) = self.stepping_down(lease, stop);
        actions.push(Action::StopChild);
        actions.extend(self.graceful_deadline(&lease, stop));
        (state, actions)
    }

    fn stepping_down(&self, lease: Lease, stop: Stop) -> Next {
        let state = PreFollower {
            lease,
            stop,
            cool_down: true,
        };
        (State::PreFollower(state), self.resign())
    }

    fn terminate(&self, now: Moment, lease: Lease) -> Next {
        let stop = self.asked(now);
        let (state, mut actions) = self.terminating(lease, stop, Outcome::Clean);
        actions.push(Action::StopChild);
        actions.extend(self.graceful_deadline(&lease, stop));
        (state, actions)
    }

    fn terminating(&self, lease: Lease, stop: Stop, outcome: Outcome) -> Next {
        let state = Terminating::Stopping {
            lease,
            stop,
            outcome,
        };
        (State::Terminating(state), self.resign())
    }

    fn resign(&self) -> Vec<Action> {
        if defect!(self.policy.defect, ReleaseBeforeEmpty) {
            return vec![Action::Resign, Action::Leave];
        }
        vec![Action::Resign]
    }

    /// The tree is empty: a follower again.
    fn follow(&self, now: Moment, cool_down: bool) -> Next {
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
fn leave_for_good(outcome: Outcome) -> Next {
    (
        State::Terminating(Terminating::Leaving { outcome }),
        vec![Action::Leave],
    )
}

/// The child's ends after which it is started again: by itself, or because it was not well.
#[derive(Clone, Debug, Default)]
struct Crashes {
    recent: Vec<Moment>,
    /// Since the child was last stable.
    in_a_row: u32,
    started: Option<Moment>,
}

impl Crashes {
    fn started(&mut self, now: Moment) {
        self.started = Some(now);
    }

    /// When to start the child again after it ended now; `None` if it ended too often.
    fn next_start(&mut self, now: Moment, policy: &Policy) -> Option<Moment> {
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
