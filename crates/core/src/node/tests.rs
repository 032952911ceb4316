//! A whole replica, driven by hand. Times are seconds since boot; 15 s of lease, 10 s to renew, retries after 2 s.

use core::time::Duration;
use std::vec::Vec;

use super::*;
use crate::backoff::Backoff;
use crate::election::Purpose;
use crate::ids::{InstanceId, Version};
use crate::ladder::{Ladder, LadderRequest};
use crate::record::Record;
use crate::replica::{OnLoss, OnUnhealthy, Restarts};
use crate::timings::{Preset, Timings};

pub(super) fn t(seconds: f64) -> Moment {
    Moment::since_boot(Duration::from_secs_f64(seconds))
}

fn config() -> Config {
    Config {
        identity: Identity::try_new("me").expect("a name"),
        instance: InstanceId::from_random(1),
        pod: None,
        timings: Timings::preset(Preset::Standard),
        seed: 1,
    }
}

pub(super) fn policy() -> Policy {
    let ladder = LadderRequest::from_grace(Duration::from_secs(30));
    Policy {
        timings: Timings::preset(Preset::Standard),
        ladder: Ladder::try_new(ladder).expect("a ladder that fits"),
        on_loss: OnLoss::Strict,
        start_limit: Duration::from_secs(10),
        restarts: Restarts {
            backoff: Backoff::STANDARD,
            ..Restarts::STANDARD
        },
        unhealthy_after: 3,
        on_unhealthy: OnUnhealthy::Restart,
        cool_down: Duration::from_secs(20),
        first_process: false,
        once: false,
    }
}

fn absent(version: u64) -> Snapshot {
    Snapshot::new(Version::new(version), None)
}

fn at(version: u64, record: Record) -> Snapshot {
    Snapshot::new(Version::new(version), Some(record))
}

fn written(version: u64) -> Answer {
    Answer::Written(Version::new(version))
}

/// client-go holds it.
fn held_by_another(transitions: u64) -> Record {
    Record {
        holder: Identity::found("another"),
        duration_seconds: Some(15),
        transitions,
        signature: None,
        orders: crate::orders::Orders::NONE,
    }
}

/// A node, and what it has under way.
struct Bench {
    node: Node,
    request: Option<(OpId, Option<Purpose>)>,
    watch: WatchId,
}

impl Bench {
    /// It has read that there is no record, and is creating it. And what it did first.
    fn acquiring() -> (Self, Vec<Output>) {
        let mut bench = Self {
            node: Node::new(t(0.0), config(), policy()),
            request: None,
            watch: WatchId::new(0),
        };
        let outputs = bench.outputs();
        bench.answer(0.0, Answer::Read(absent(1)));
        (bench, outputs)
    }

    /// It leads since 0 as version 2, and its first tree is up.
    fn leading() -> Self {
        let (mut bench, _) = Self::acquiring();
        bench.answer(0.0, written(2));
        bench.tree(0.0, 1, TreeEvent::Ready);
        assert_eq!(bench.node.state(), StateName::Leader);
        bench
    }

    fn answer(&mut self, seconds: f64, answer: Answer) -> Vec<Output> {
        let (op, _) = self.request.take().expect("a request under way");
        self.node.handle_answer(t(seconds), op, answer);
        self.outputs()
    }

    fn watch(&mut self, seconds: f64, snapshot: Snapshot) -> Vec<Output> {
        self.node.handle_watch(t(seconds), self.watch, snapshot);
        self.outputs()
    }

    fn tree(&mut self, seconds: f64, tree: u64, event: TreeEvent) -> Vec<Output> {
        self.node.handle_tree(t(seconds), TreeId::new(tree), event);
        self.outputs()
    }

    fn stop(&mut self, seconds: f64) -> Vec<Output> {
        self.node.handle_stop_signal(t(seconds));
        self.outputs()
    }

    fn wake(&mut self, seconds: f64) -> Vec<Output> {
        self.node.handle_timeout(t(seconds));
        self.outputs()
    }

    fn outputs(&mut self) -> Vec<Output> {
        let mut outputs = Vec::new();
        while let Some(output) = self.node.poll_output() {
            if let Output::Store(command) = &output {
                match command.clone() {
                    StoreCommand::Read { op } => self.request = Some((op, None)),
                    StoreCommand::Write { op, purpose, .. } => {
                        self.request = Some((op, Some(purpose)));
                    }
                    StoreCommand::Abandon { .. } => self.request = None,
                    StoreCommand::Watch { watch, .. } => self.watch = watch,
                }
            }
            outputs.push(output);
        }
        outputs
    }

    fn writes(&self) -> Option<Purpose> {
        self.request.as_ref()?.1
    }
}

pub(super) fn orders(outputs: &[Output]) -> Vec<(u64, TreeCommand)> {
    let order = |output: &Output| match output {
        Output::Tree(tree, command) => Some((tree.get(), *command)),
        _ => None,
    };
    outputs.iter().filter_map(order).collect()
}

fn exits(outputs: &[Output]) -> bool {
    outputs.iter().any(|o| matches!(o, Output::Exit(_)))
}

fn starts(outputs: &[Output]) -> bool {
    let start = |(_, command): &(u64, TreeCommand)| matches!(command, TreeCommand::Start { .. });
    orders(outputs).iter().any(start)
}

#[test]
fn a_candidate_has_a_guard_ready_that_is_started_in_its_term() {
    let (mut bench, outputs) = Bench::acquiring();
    assert_eq!(orders(&outputs), [(1, TreeCommand::Prepare)]);
    let start = TreeCommand::Start {
        term: Term::new(0),
        token: Token::new(2),
        deadline: t(14.25),
    };
    assert_eq!(orders(&bench.answer(0.1, written(2))), [(1, start)]);
}

#[test]
fn a_lost_race_leaves_the_guard_ready() {
    let (mut bench, _) = Bench::acquiring();
    let mut outputs = bench.answer(0.1, Answer::LostRace);
    outputs.extend(bench.watch(0.2, at(2, held_by_another(0))));
    assert_eq!(orders(&outputs), []);
    outputs = bench.stop(0.3);
    assert_eq!(orders(&outputs), [(1, TreeCommand::Discard)]);
}

#[test]
fn a_replica_that_stays_out_has_no_guard_ready_until_it_stands_again() {
    let mut bench = Bench::leading();
    bench.node.handle_handover(t(1.0), None);
    bench.outputs();
    let mut outputs = bench.tree(1.1, 1, TreeEvent::Empty);
    outputs.extend(bench.answer(1.2, written(3)));
    assert_eq!(orders(&outputs), []);
    let outputs = bench.wake(21.2);
    assert_eq!(orders(&outputs), [(2, TreeCommand::Prepare)]);
}

#[test]
fn a_guard_that_cannot_be_made_ready_is_not_tried_again_before_the_term() {
    let (mut bench, _) = Bench::acquiring();
    let outputs = bench.tree(0.05, 1, TreeEvent::SpawnFailed(SpawnFailure::System));
    assert_eq!(orders(&outputs), []);
    bench.answer(0.1, Answer::LostRace);
    assert_eq!(orders(&bench.watch(0.2, at(2, held_by_another(0)))), []);
}

#[test]
fn a_prepared_guard_that_died_is_replaced() {
    let (mut bench, _) = Bench::acquiring();
    bench.tree(0.05, 1, TreeEvent::SpawnFailed(SpawnFailure::System));
    let outputs = bench.answer(0.1, written(2));
    assert_eq!(orders(&outputs)[0], (2, TreeCommand::Prepare));
    assert!(starts(&outputs));
}

#[test]
fn what_an_earlier_tree_still_says_is_passed_over() {
    let mut bench = Bench::leading();
    bench.tree(1.0, 1, TreeEvent::Exited(Exit::Code(1)));
    let outputs = bench.tree(1.1, 1, TreeEvent::Empty);
    assert!(starts(&outputs));
    for event in [
        TreeEvent::Empty,
        TreeEvent::GuardLost,
        TreeEvent::Ready,
        TreeEvent::Exited(Exit::Code(1)),
    ] {
        assert_eq!(bench.tree(1.2, 1, event), []);
    }
    assert_eq!(bench.node.tree(), Some(TreeId::new(2)));
}

/// The answer to the release lets the next takeover go out at once. A SIGTERM after that must not take that release's
/// end for its own.
#[test]
fn a_stop_signal_after_a_release_waits_for_the_takeover_that_followed_it() {
    let mut bench = Bench::leading();
    bench.wake(10.0);
    bench.answer(10.0, Answer::Unavailable);
    bench.tree(10.1, 1, TreeEvent::Exited(Exit::Code(0)));
    bench.tree(10.2, 1, TreeEvent::Empty);
    assert_eq!(bench.node.state(), StateName::Follower);
    while bench.writes() != Some(Purpose::Release) {
        let next = bench.node.next_deadline().expect("a release to come");
        bench.node.handle_timeout(next);
        bench.outputs();
    }
    let outputs = bench.answer(12.5, written(3));
    assert!(outputs.contains(&Output::Notice(Notice::Left)));
    assert_eq!(bench.writes(), Some(Purpose::Acquire));

    assert!(!exits(&bench.stop(12.6)));
    let outputs = bench.answer(12.7, written(4));
    assert!(!starts(&outputs) && !exits(&outputs));
    assert_eq!(bench.writes(), Some(Purpose::Release));
    assert!(exits(&bench.answer(12.8, written(5))));
}

#[test]
fn a_child_is_not_restarted_after_the_lease_is_known_to_be_taken() {
    let mut bench = Bench::leading();
    for tree in 1..=2 {
        bench.tree(1.0, tree, TreeEvent::Exited(Exit::Code(1)));
        bench.tree(1.0, tree, TreeEvent::Empty);
    }
    let restart_at = bench.node.next_deadline().expect("a restart to come");
    assert_eq!(restart_at, t(2.0));
    bench.watch(2.0, at(3, held_by_another(1)));
    assert!(!starts(&bench.wake(2.0)));
}

#[test]
fn after_a_freeze_the_lost_lease_comes_before_the_restart_that_is_due() {
    let mut bench = Bench::leading();
    for tree in 1..=2 {
        bench.tree(1.0, tree, TreeEvent::Exited(Exit::Code(1)));
        bench.tree(1.0, tree, TreeEvent::Empty);
    }
    let outputs = bench.wake(100.0);
    assert!(!starts(&outputs));
    assert!(outputs.contains(&Output::Notice(Notice::Lost(Loss::Expired))));
}

#[test]
fn a_lost_lease_kills_the_tree_of_its_term() {
    let mut bench = Bench::leading();
    let outputs = bench.watch(3.0, absent(3));
    assert_eq!(orders(&outputs), [(1, TreeCommand::Kill)]);
    assert_eq!(bench.node.tenure(), None);
    assert_eq!(bench.node.tree(), Some(TreeId::new(1)));
}

#[test]
fn a_replica_that_is_told_to_stop_lets_a_prepared_guard_go_before_it_exits() {
    let (mut bench, _) = Bench::acquiring();
    assert_eq!(orders(&bench.stop(0.1)), [(1, TreeCommand::Discard)]);
    let mut outputs = bench.answer(0.2, written(2));
    outputs.extend(bench.answer(0.3, written(3)));
    assert!(exits(&outputs));
    assert_eq!(orders(&outputs), []);
}

/// What is in the store after the first write.
fn own_record() -> Record {
    let mut node = Node::new(t(0.0), config(), policy());
    while let Some(output) = node.poll_output() {
        if let Output::Store(StoreCommand::Read { op }) = output {
            node.handle_answer(t(0.0), op, Answer::Read(absent(1)));
        }
        if let Output::Store(StoreCommand::Write { record, .. }) = output {
            return record;
        }
    }
    panic!("it writes at once");
}

#[test]
fn an_order_in_the_record_stops_the_child_and_a_later_one_for_that_term_does_nothing() {
    use crate::orders::{Handover, Orders, Pause};
    let handover = Handover {
        term: Term::new(0),
        to: None,
    };
    let pause = Some(Pause {
        stop: true,
        until: None,
    });
    for orders in [
        Orders {
            handover: Some(handover.into()),
            pause: None,
        },
        Orders {
            handover: None,
            pause,
        },
    ] {
        let mut bench = Bench::leading();
        let ordered = Record {
            orders,
            ..own_record()
        };
        let outputs = bench.watch(1.0, at(3, ordered.clone()));
        assert_eq!(self::orders(&outputs), [(1, TreeCommand::Stop)]);
        assert_eq!(bench.node.state(), StateName::PreFollower);
        let outputs = bench.watch(1.1, at(4, ordered));
        assert_eq!(self::orders(&outputs), []);
    }
}
