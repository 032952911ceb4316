//! One replica, driven by hand. Times are seconds since boot.

mod crashing;
mod killing;
mod losing;
mod once;
mod random;
mod states;
mod stopping;
mod table;

use core::time::Duration;
use std::vec::Vec;

use super::*;
use crate::election::Claim;
use crate::ladder::LadderRequest;
use crate::timings::Preset;

fn t(seconds: f64) -> Moment {
    Moment::since_boot(Duration::from_secs_f64(seconds))
}

/// Lease 15 s, renew deadline 10 s, killed 1.5 s and guarded 0.75 s before its end; stop timeout 25 s.
fn policy() -> Policy {
    let ladder = LadderRequest::from_grace(Duration::from_secs(30));
    Policy {
        timings: Timings::preset(Preset::Standard),
        ladder: Ladder::try_new(ladder).expect("a ladder that fits"),
        on_loss: OnLoss::Strict,
        start_limit: Duration::from_secs(10),
        restarts: Restarts::STANDARD,
        unhealthy_after: 3,
        on_unhealthy: OnUnhealthy::Restart,
        cool_down: Duration::from_secs(20),
        first_process: false,
        once: false,
    }
}

fn once() -> Policy {
    Policy {
        once: true,
        ..policy()
    }
}

fn graceful() -> Policy {
    Policy {
        on_loss: OnLoss::Graceful,
        ..policy()
    }
}

fn stepping_down() -> Policy {
    Policy {
        on_unhealthy: OnUnhealthy::StepDown,
        ..policy()
    }
}

fn elected(valid_until: f64) -> Event {
    Event::Elected(Elected {
        term: Term::new(4),
        token: Token::new(70),
        valid_until: t(valid_until),
        claim: Claim::Released,
    })
}

fn extended(valid_until: f64) -> Event {
    Event::Extended(t(valid_until))
}

fn spawn(deadline: f64) -> Action {
    Action::Spawn {
        term: Term::new(4),
        token: Token::new(70),
        deadline: t(deadline),
    }
}

fn ended(code: u8) -> Event {
    Event::Exited(Exit::Code(code))
}

/// A replica beside a small model of its tree and its lease. Every action is checked against them.
#[derive(Clone, Debug)]
struct Bench {
    policy: Policy,
    replica: Replica,
    tree_lives: bool,
    killed: bool,
    holds: bool,
    valid_until: Moment,
    done: bool,
}

impl Bench {
    fn follower(policy: Policy) -> Self {
        let (replica, actions) = Replica::new(policy);
        assert_eq!(actions, [Action::Stand]);
        Self {
            policy,
            replica,
            tree_lives: false,
            killed: false,
            holds: false,
            valid_until: t(0.0),
            done: false,
        }
    }

    /// Elected at 0, until 15.
    fn starting(policy: Policy) -> Self {
        let mut bench = Self::follower(policy);
        assert_eq!(bench.feed(0.0, elected(15.0)), [spawn(14.25)]);
        bench
    }

    fn leader(policy: Policy) -> Self {
        let mut bench = Self::starting(policy);
        assert_eq!(bench.feed(0.0, Event::Ready), []);
        assert_eq!(bench.state(), StateName::Leader);
        bench
    }

    fn state(&self) -> StateName {
        self.replica.state()
    }

    fn feed(&mut self, seconds: f64, event: Event) -> Vec<Action> {
        self.handle(t(seconds), event)
    }

    fn feed_all(&mut self, seconds: f64, events: &[Event]) -> Vec<Action> {
        let feed = |event: &Event| self.feed(seconds, event.clone());
        events.iter().flat_map(feed).collect()
    }

    fn handle(&mut self, now: Moment, event: Event) -> Vec<Action> {
        match event {
            Event::Elected(elected) if !self.holds && !self.tree_lives => {
                self.holds = true;
                self.valid_until = elected.valid_until;
            }
            Event::Extended(valid_until) => self.valid_until = valid_until,
            Event::Lost(_) => self.holds = false,
            Event::TreeEmpty | Event::SpawnFailed(_) => self.tree_lives = false,
            _ => {}
        }
        let actions = self.replica.handle(now, event);
        self.check(now, &actions);
        actions
    }

    fn handle_timeout(&mut self, now: Moment) -> Vec<Action> {
        let actions = self.replica.handle_timeout(now);
        self.check(now, &actions);
        let next = self.replica.next_deadline();
        assert!(next.is_none_or(|due| due > now), "due {next:?} at {now:?}");
        actions
    }

    /// Time passes, and every deadline is kept.
    fn run_until(&mut self, seconds: f64) -> Vec<Action> {
        let mut actions = Vec::new();
        while let Some(due) = self.replica.next_deadline()
            && due <= t(seconds)
        {
            actions.extend(self.handle_timeout(due));
        }
        actions
    }

    /// The same, while the election renews the lease every 5 s. What the guard is told is left out.
    fn run_renewing(&mut self, from: f64, until: f64) -> Vec<Action> {
        let mut actions = Vec::new();
        let mut seconds = from;
        while seconds <= until {
            actions.extend(self.run_until(seconds));
            actions.extend(self.feed(seconds, extended(seconds + 15.0)));
            seconds += 5.0;
        }
        actions.extend(self.run_until(until));
        actions.retain(|action| !matches!(action, Action::Deadline(_)));
        actions
    }

    fn check(&mut self, now: Moment, actions: &[Action]) {
        let guard_by = self.valid_until - self.policy.timings.guard_margin();
        for action in actions {
            assert!(!self.done, "{action:?} after the end");
            match action {
                Action::Spawn { deadline, .. } => {
                    assert!(!self.tree_lives, "a second tree");
                    assert!(self.holds, "a tree without a lease");
                    assert!(now < self.valid_until, "a tree on an expired lease");
                    assert_eq!(*deadline, guard_by, "the guard's first deadline");
                    self.tree_lives = true;
                    self.killed = false;
                }
                Action::Deadline(deadline) => match self.policy.on_loss {
                    OnLoss::Strict => assert_eq!(*deadline, guard_by, "the guard's deadline"),
                    OnLoss::Graceful => assert!(*deadline >= guard_by, "the guard's deadline"),
                },
                Action::KillTree => self.killed = true,
                Action::Leave => {
                    assert!(!self.tree_lives, "released while the tree lives");
                    self.holds = false;
                }
                Action::Exit(_) => {
                    let kernel_kills = self.policy.first_process && self.killed;
                    assert!(
                        !self.tree_lives || kernel_kills,
                        "the end while the tree lives"
                    );
                    self.done = true;
                }
                Action::Stand | Action::Resign | Action::StopChild | Action::TellOfKill { .. } => {}
            }
        }
    }
}
