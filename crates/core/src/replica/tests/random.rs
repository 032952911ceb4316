//! Any order of events that a child, an election and a user can bring about.

use super::*;
use proptest::collection;
use proptest::prelude::*;
use std::vec;

#[derive(Clone, Debug)]
enum Step {
    /// Elected with a write that was sent this long ago.
    Elect(u64),
    Renew(u64),
    Lose(Loss),
    Left,
    Refused,
    SpawnFails,
    Ready,
    ChildEnds(u8),
    TreeEmpties,
    GuardDies,
    Checked(bool),
    StopSignal,
    HandOver,
    Pause,
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let loss = prop_oneof![
        Just(Loss::RenewDeadline),
        Just(Loss::Emptied),
        Just(Loss::WrittenBack),
        Just(Loss::Deleted),
    ];
    prop_oneof![
        24 => (0u64..9_999).prop_map(Step::Elect),
        24 => (0u64..2_500).prop_map(Step::Renew),
        4 => loss.prop_map(Step::Lose),
        12 => Just(Step::Left),
        1 => Just(Step::Refused),
        4 => Just(Step::SpawnFails),
        24 => Just(Step::Ready),
        8 => any::<u8>().prop_map(Step::ChildEnds),
        24 => Just(Step::TreeEmpties),
        4 => Just(Step::GuardDies),
        12 => any::<bool>().prop_map(Step::Checked),
        1 => Just(Step::StopSignal),
        4 => Just(Step::HandOver),
        2 => Just(Step::Pause),
        40 => (0u64..8_000).prop_map(Step::Wait),
    ]
}

fn any_policy() -> impl Strategy<Value = Policy> {
    (any::<bool>(), any::<bool>(), any::<bool>()).prop_map(|(graceful, step_down, once)| Policy {
        on_loss: match graceful {
            true => OnLoss::Graceful,
            false => OnLoss::Strict,
        },
        on_unhealthy: match step_down {
            true => OnUnhealthy::StepDown,
            false => OnUnhealthy::Restart,
        },
        once,
        ..policy()
    })
}

/// Lets only those steps happen that can.
struct World {
    bench: Bench,
    now: Moment,
    standing: bool,
    leaving: bool,
    child_lives: bool,
    ready: bool,
    /// Until when the election believes in the lease, told of its end or not.
    tenure: Option<Moment>,
}

impl World {
    fn new(policy: Policy) -> Self {
        Self {
            bench: Bench::follower(policy),
            now: t(100.0),
            standing: true,
            leaving: false,
            child_lives: false,
            ready: false,
            tenure: None,
        }
    }

    fn take(&mut self, step: Step) {
        let lease = self.bench.policy.timings.lease().get();
        let possible = match &step {
            Step::Elect(_) => self.standing && !self.leaving && self.tenure.is_none(),
            Step::Renew(_) | Step::Lose(_) => self.tenure.is_some(),
            Step::Left => self.leaving,
            Step::SpawnFails => self.child_lives && !self.ready,
            Step::Ready | Step::ChildEnds(_) | Step::Checked(_) => self.child_lives,
            Step::TreeEmpties => self.bench.tree_lives && !self.child_lives,
            Step::GuardDies => self.bench.tree_lives,
            Step::Refused | Step::StopSignal | Step::HandOver | Step::Pause | Step::Wait(_) => true,
        };
        if !possible {
            return;
        }
        match step {
            Step::Elect(ago) => {
                let valid_until = self.now - Duration::from_millis(ago) + lease;
                self.tenure = Some(valid_until);
                self.event(Event::Elected(Elected {
                    term: Term::new(1),
                    token: Token::new(1),
                    valid_until,
                    claim: Claim::Expired,
                }));
            }
            Step::Renew(ago) => {
                let valid_until = self.now - Duration::from_millis(ago) + lease;
                if self.tenure < Some(valid_until) {
                    self.tenure = Some(valid_until);
                    self.event(Event::Extended(valid_until));
                }
            }
            Step::Lose(loss) => self.lose(loss),
            Step::Left => {
                self.leaving = false;
                self.tenure = None;
                self.event(Event::Left);
            }
            Step::Refused => self.event(Event::Refused),
            Step::SpawnFails => {
                self.child_lives = false;
                self.event(Event::SpawnFailed(SpawnFailure::System));
            }
            Step::Ready => {
                self.ready = true;
                self.event(Event::Ready);
            }
            Step::ChildEnds(code) => {
                self.child_lives = false;
                self.event(Event::Exited(Exit::Code(code)));
            }
            Step::TreeEmpties => self.event(Event::TreeEmpty),
            Step::GuardDies => self.event(Event::GuardLost),
            Step::Checked(true) => self.event(Event::Healthy),
            Step::Checked(false) => self.event(Event::Unhealthy),
            Step::StopSignal => self.event(Event::StopSignal),
            Step::HandOver => self.event(Event::HandOver),
            Step::Pause => self.event(Event::Pause),
            Step::Wait(millis) => self.wait(Duration::from_millis(millis)),
        }
    }

    fn lose(&mut self, loss: Loss) {
        self.standing = false;
        if !loss.leaves_grace() {
            self.tenure = None;
        }
        self.event(Event::Lost(loss));
    }

    fn wait(&mut self, length: Duration) {
        let until = self.now + length;
        loop {
            let due = self.bench.replica.next_deadline();
            let next = due.into_iter().chain(self.tenure).min();
            let Some(next) = next.filter(|at| *at <= until) else {
                break;
            };
            self.now = self.now.max(next);
            let actions = self.bench.handle_timeout(self.now);
            self.told(&actions);
            if self.tenure.is_some_and(|end| end <= self.now) {
                self.lose(Loss::Expired);
            }
        }
        self.now = until;
        self.check();
    }

    fn event(&mut self, event: Event) {
        let actions = self.bench.handle(self.now, event);
        self.told(&actions);
        let actions = self.bench.handle_timeout(self.now);
        self.told(&actions);
        self.check();
    }

    fn told(&mut self, actions: &[Action]) {
        for action in actions {
            match action {
                Action::Stand => self.standing = true,
                Action::Leave => {
                    self.standing = false;
                    self.leaving = true;
                }
                Action::Spawn { .. } => {
                    self.child_lives = true;
                    self.ready = false;
                }
                _ => {}
            }
        }
    }

    fn check(&self) {
        let Bench { policy, .. } = &self.bench;
        let kill_by = self.bench.valid_until - policy.timings.kill_margin();
        if policy.on_loss == OnLoss::Strict && self.bench.tree_lives && self.now >= kill_by {
            assert!(self.bench.killed, "a tree that outlives its lease");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

    #[test]
    fn no_order_of_events_breaks_the_rules(
        policy in any_policy(),
        steps in collection::vec(step(), 1..150),
    ) {
        let mut world = World::new(policy);
        for step in steps {
            world.take(step);
        }
    }
}
