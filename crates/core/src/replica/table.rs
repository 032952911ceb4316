//! The table: what each event means, given what the tree does and what we intend. Every case is answered.

use alloc::vec;
use alloc::vec::Vec;

use super::crashes::Crashes;
use super::state::{self, Intent, Lease, StateName, Tree};
use super::{Action, Event, Exit, OnUnhealthy, Outcome, Policy, SpawnFailure, Timer};
use crate::election::{Elected, Loss};
use crate::ids::{Term, Token};
use crate::time::Moment;

/// One replica. See the [module](super).
#[derive(Clone, Debug)]
pub struct Replica {
    pub(super) policy: Policy,
    /// Whether the tree lives.
    pub(super) tree: Tree,
    pub(super) intent: Intent,
    /// Whether it may act: from the election until the tree is empty and the lease is given back.
    pub(super) lease: Option<Lease>,
    pub(super) crashes: Crashes,
    /// How the child ended, for `--once`.
    pub(super) child_exit: Option<Exit>,
    /// Whoever ends us waits no longer than this for the tree to be empty.
    pub(super) stop_by: Moment,
}

impl Replica {
    /// A follower, and the first thing to do.
    #[must_use]
    pub fn new(policy: Policy) -> (Self, Vec<Action>) {
        let replica = Self {
            policy,
            tree: Tree::Empty,
            intent: Intent::Run,
            lease: None,
            crashes: Crashes::default(),
            child_exit: None,
            stop_by: Moment::NEVER,
        };
        (replica, vec![Action::Stand])
    }

    /// Takes in what happened; gives what to do, in order.
    #[must_use]
    pub fn handle(&mut self, now: Moment, event: Event) -> Vec<Action> {
        match event {
            Event::Elected(elected) => self.elected(now, elected),
            Event::Extended(valid_until) => self.extended(valid_until),
            Event::Lost(loss) => self.lost(now, &loss),
            Event::Left => self.left(),
            Event::Refused => self.refused(),
            Event::SpawnFailed(failure) => self.spawn_failed(now, failure),
            Event::Ready => self.ready(),
            Event::Healthy => self.healthy(),
            Event::Unhealthy => self.unhealthy(now),
            Event::Exited(exit) => self.exited(now, exit),
            Event::GuardLost => self.guard_lost(now),
            Event::TreeEmpty => self.tree_empty(now),
            Event::StopSignal => self.stop_signal(now),
            Event::HandOver => self.hand_over(now, true),
            Event::Pause => self.hand_over(now, false),
            Event::NamedHeir => self.named_heir(),
            Event::Timer(timer) => self.timer(now, timer),
        }
    }

    /// Time has passed: every deadline that has been reached, in order.
    #[must_use]
    pub fn handle_timeout(&mut self, now: Moment) -> Vec<Action> {
        let mut actions = Vec::new();
        while let Some((at, timer)) = self.next_timer()
            && at <= now
        {
            actions.extend(self.timer(now, timer));
        }
        actions
    }

    /// When to call [`Replica::handle_timeout`], if nothing else happens before.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Moment> {
        self.next_timer().map(|(at, _)| at)
    }

    /// Where we are.
    #[must_use]
    pub const fn state(&self) -> StateName {
        state::name(self.tree, self.intent)
    }

    /// The term that we hold the lease in.
    #[must_use]
    pub const fn term(&self) -> Option<(Term, Token)> {
        match &self.lease {
            Some(lease) => Some((lease.term, lease.token)),
            None => None,
        }
    }

    fn next_timer(&self) -> Option<(Moment, Timer)> {
        state::timer(self.tree, self.intent, self.lease.as_ref(), &self.policy)
    }
}

// What the election says.
impl Replica {
    fn elected(&mut self, now: Moment, elected: Elected) -> Vec<Action> {
        match self.intent {
            Intent::Run | Intent::StayOut { .. }
                if self.tree.is_empty() && self.lease.is_none() =>
            {
                self.lease = Some(Lease::from(elected));
                self.spawn(now)
            }
            // The election begins no term before we stand again.
            Intent::Run
            | Intent::StayOut { .. }
            | Intent::Restart { .. }
            | Intent::StepDown { .. }
            | Intent::Terminate { .. }
            | Intent::Done => vec![],
        }
    }

    fn extended(&mut self, valid_until: Moment) -> Vec<Action> {
        let Some(lease) = &mut self.lease else {
            return vec![];
        };
        lease.valid_until = valid_until;
        match self.tree {
            Tree::Empty => vec![],
            Tree::Starting { .. }
            | Tree::Up { .. }
            | Tree::Stopping { .. }
            | Tree::Killing { .. } => self.guard_deadline().into_iter().collect(),
        }
    }

    fn lost(&mut self, now: Moment, loss: &Loss) -> Vec<Action> {
        let grace = self.leaves_grace(loss);
        match (self.tree, self.intent) {
            // Our release did not get through before the lease ended.
            (Tree::Empty, Intent::Run) => vec![Action::Stand],
            (Tree::Empty, Intent::Restart { .. } | Intent::StepDown { .. }) => {
                self.follow(now, false)
            }
            (Tree::Empty, Intent::StayOut { .. } | Intent::Terminate { .. } | Intent::Done) => {
                vec![]
            }
            (Tree::Starting { .. } | Tree::Up { .. }, _) => {
                self.intent = Intent::StepDown { cool_down: false };
                match grace {
                    true => self.ask_to_stop(now),
                    false => self.kill_and_tell_guard(now),
                }
            }
            (Tree::Stopping { .. } | Tree::Killing { .. }, Intent::Restart { .. }) => {
                self.intent = Intent::StepDown { cool_down: false };
                match (self.tree, grace) {
                    (Tree::Stopping { .. }, false) => self.kill_and_tell_guard(now),
                    _ => self.graceful_deadline().into_iter().collect(),
                }
            }
            (
                Tree::Stopping { .. },
                Intent::Run
                | Intent::StayOut { .. }
                | Intent::StepDown { .. }
                | Intent::Terminate { .. }
                | Intent::Done,
            ) => match grace {
                true => vec![],
                false => self.kill(now),
            },
            (
                Tree::Killing { .. },
                Intent::Run
                | Intent::StayOut { .. }
                | Intent::StepDown { .. }
                | Intent::Terminate { .. }
                | Intent::Done,
            ) => vec![],
        }
    }

    fn left(&mut self) -> Vec<Action> {
        match self.intent {
            Intent::Terminate { outcome } if self.tree.is_empty() => self.exit(outcome),
            Intent::Run
            | Intent::StayOut { .. }
            | Intent::Restart { .. }
            | Intent::StepDown { .. }
            | Intent::Terminate { .. }
            | Intent::Done => vec![],
        }
    }

    /// Whoever is wanted by name need not stay out any longer.
    fn named_heir(&mut self) -> Vec<Action> {
        match self.intent {
            Intent::StayOut { .. } if self.tree.is_empty() => {
                self.intent = Intent::Run;
                vec![Action::Stand]
            }
            Intent::Run
            | Intent::StayOut { .. }
            | Intent::Restart { .. }
            | Intent::StepDown { .. }
            | Intent::Terminate { .. }
            | Intent::Done => vec![],
        }
    }

    fn refused(&mut self) -> Vec<Action> {
        match self.intent {
            Intent::Run | Intent::StayOut { .. } if self.tree.is_empty() => {
                self.leave_for_good(Outcome::Refused)
            }
            // Whoever has a tree, or wants one again, has a lease for it: the term goes on while it is valid.
            Intent::Run
            | Intent::StayOut { .. }
            | Intent::Restart { .. }
            | Intent::StepDown { .. }
            | Intent::Terminate { .. }
            | Intent::Done => vec![],
        }
    }
}

// What the tree says.
impl Replica {
    fn spawn_failed(&mut self, now: Moment, failure: SpawnFailure) -> Vec<Action> {
        if self.tree.is_empty() {
            return vec![];
        }
        self.tree = Tree::Empty;
        match self.intent {
            Intent::Run | Intent::Terminate { .. } if self.policy.once => {
                self.leave_for_good(Outcome::CannotRun(failure))
            }
            Intent::Run | Intent::StayOut { .. } => self.follow(now, true),
            Intent::Restart { .. } => self.restart(now),
            Intent::StepDown { cool_down } => self.follow(now, cool_down),
            Intent::Terminate { outcome } => self.leave_for_good(outcome),
            Intent::Done => vec![],
        }
    }

    fn ready(&mut self) -> Vec<Action> {
        if let Tree::Starting { .. } = self.tree {
            self.tree = Tree::Up { failed_checks: 0 };
        }
        vec![]
    }

    fn healthy(&mut self) -> Vec<Action> {
        if let Tree::Up { failed_checks } = &mut self.tree {
            *failed_checks = 0;
        }
        vec![]
    }

    fn unhealthy(&mut self, now: Moment) -> Vec<Action> {
        let Tree::Up { failed_checks } = &mut self.tree else {
            return vec![];
        };
        *failed_checks += 1;
        if *failed_checks < self.policy.unhealthy_after {
            return vec![];
        }
        match self.policy.on_unhealthy {
            // There is no second run to restart it for.
            _ if self.policy.once => self.terminate(now),
            OnUnhealthy::StepDown => self.step_down(now, true),
            OnUnhealthy::Restart => {
                self.intent = Intent::Restart { at: None };
                self.ask_to_stop(now)
            }
        }
    }

    /// The child ended; others of its tree may live on, and must go first.
    fn exited(&mut self, now: Moment, exit: Exit) -> Vec<Action> {
        match self.tree {
            Tree::Empty => vec![],
            Tree::Starting { .. } | Tree::Up { .. } => self.child_ended(now, exit),
            Tree::Stopping { .. } | Tree::Killing { .. } => {
                self.child_exit = Some(exit);
                vec![]
            }
        }
    }

    fn guard_lost(&mut self, now: Moment) -> Vec<Action> {
        match self.tree {
            Tree::Empty => vec![],
            Tree::Starting { .. } | Tree::Up { .. } => self.child_died_with_its_guard(now),
            Tree::Stopping { .. } | Tree::Killing { .. } => self.kill(now),
        }
    }

    fn tree_empty(&mut self, now: Moment) -> Vec<Action> {
        if self.tree.is_empty() {
            return vec![];
        }
        self.tree = Tree::Empty;
        match self.intent {
            Intent::Run | Intent::StayOut { .. } | Intent::Restart { .. } => self.restart(now),
            Intent::StepDown { cool_down } => self.follow(now, cool_down),
            Intent::Terminate { outcome } => {
                self.leave_for_good(match (self.child_exit, outcome) {
                    (Some(exit), _) if self.policy.once => Outcome::Child(exit),
                    // Stopped before it was started.
                    (None, Outcome::Clean) => Outcome::of_an_idle_end(self.policy.once),
                    (Some(_) | None, outcome) => outcome,
                })
            }
            Intent::Done => vec![],
        }
    }
}

// What people want.
impl Replica {
    /// The first SIGTERM begins an orderly end; the next does not wait.
    fn stop_signal(&mut self, now: Moment) -> Vec<Action> {
        match (self.tree, self.intent) {
            (_, Intent::Done) => vec![],
            (Tree::Empty, Intent::Terminate { outcome }) => self.exit(outcome),
            (
                Tree::Empty,
                Intent::Run
                | Intent::StayOut { .. }
                | Intent::Restart { .. }
                | Intent::StepDown { .. },
            ) => self.leave_for_good(Outcome::of_an_idle_end(self.policy.once)),
            (Tree::Starting { .. } | Tree::Up { .. }, _) => self.terminate(now),
            (Tree::Stopping { .. } | Tree::Killing { .. }, Intent::Terminate { .. }) => {
                self.kill(now)
            }
            (
                Tree::Stopping { .. },
                Intent::Run
                | Intent::StayOut { .. }
                | Intent::Restart { .. }
                | Intent::StepDown { .. },
            ) => self.resign_to_terminate(Outcome::Clean),
            (Tree::Killing { .. }, Intent::StepDown { .. }) => {
                self.resign_to_terminate(Outcome::Killed)
            }
            // The child has ended by itself; only what it left behind is being killed.
            (
                Tree::Killing { .. },
                Intent::Run | Intent::StayOut { .. } | Intent::Restart { .. },
            ) => self.resign_to_terminate(Outcome::Clean),
        }
    }

    /// With a cool-down another replica is to have the next term; without one, whoever is first when somebody may.
    fn hand_over(&mut self, now: Moment, cool_down: bool) -> Vec<Action> {
        match (self.tree, self.intent) {
            (_, Intent::Terminate { .. } | Intent::Done) => vec![],
            (Tree::Empty, Intent::Restart { .. }) => self.follow(now, cool_down),
            (Tree::Empty, Intent::Run | Intent::StayOut { .. } | Intent::StepDown { .. }) => vec![],
            (Tree::Starting { .. } | Tree::Up { .. }, _) => self.step_down(now, cool_down),
            (
                Tree::Stopping { .. } | Tree::Killing { .. },
                Intent::Run | Intent::StayOut { .. } | Intent::Restart { .. },
            ) => {
                self.intent = Intent::StepDown { cool_down };
                vec![Action::Resign]
            }
            // Whatever ends the term, another replica is to have the next one.
            (
                Tree::Stopping { .. } | Tree::Killing { .. },
                Intent::StepDown { cool_down: before },
            ) => {
                self.intent = Intent::StepDown {
                    cool_down: cool_down || before,
                };
                vec![]
            }
        }
    }
}

// What time brings about.
impl Replica {
    fn timer(&mut self, now: Moment, timer: Timer) -> Vec<Action> {
        match (timer, self.tree, self.intent) {
            (Timer::Restart, Tree::Empty, Intent::Restart { .. }) => self.spawn(now),
            (Timer::CoolDown, Tree::Empty, Intent::StayOut { .. }) => {
                self.intent = Intent::Run;
                vec![Action::Stand]
            }
            (Timer::ReadyLimit, Tree::Starting { .. }, _) => self.step_down(now, true),
            (Timer::Kill, Tree::Empty, Intent::Restart { .. }) => self.follow(now, false),
            // Our own clock says that the lease is as good as over, whatever the election says.
            (Timer::Kill, Tree::Starting { .. } | Tree::Up { .. }, _) => {
                self.intent = Intent::StepDown { cool_down: false };
                self.kill(now)
            }
            (Timer::Kill, Tree::Stopping { .. }, Intent::Restart { .. }) => {
                // Else only the restart has taken too long, and the lease is fine.
                let lease_ends = self
                    .lease
                    .is_none_or(|lease| now >= lease.kill_by(&self.policy));
                if lease_ends {
                    self.intent = Intent::StepDown { cool_down: false };
                }
                self.kill(now)
            }
            (Timer::Kill, Tree::Stopping { .. }, _) => self.kill(now),
            (Timer::KillReminder, Tree::Killing { since, .. }, _) => {
                let remind_at = now + Tree::REMIND_EVERY;
                self.tree = Tree::Killing { since, remind_at };
                vec![Action::TellOfKill { since }]
            }
            (Timer::GiveUp, Tree::Killing { .. }, _) if self.policy.first_process => {
                let outcome = match self.intent {
                    Intent::Terminate { outcome } => outcome,
                    Intent::Run
                    | Intent::StayOut { .. }
                    | Intent::Restart { .. }
                    | Intent::StepDown { .. }
                    | Intent::Done => Outcome::Killed,
                };
                self.tree = Tree::Empty;
                self.exit(outcome)
            }
            // A deadline of a state that has been left.
            (
                Timer::Restart
                | Timer::CoolDown
                | Timer::ReadyLimit
                | Timer::Kill
                | Timer::KillReminder
                | Timer::GiveUp,
                _,
                _,
            ) => vec![],
        }
    }
}
