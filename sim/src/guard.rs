//! A guard process: the core's [`Guard`] and what `soloist-guard` does around it.
//!
//! One thread and one loop. Every turn reads its socket to the end, then looks after its child, and at the
//! clock last.

use std::collections::VecDeque;

use soloist_core::guard::{Action, Guard, Input};
use soloist_core::node::TreeEvent;
use soloist_core::replica::{Exit, SpawnFailure};
use soloist_core::time::Moment;

use crate::clock::{MILLI, Nanos};
use crate::plan::WAKE_UP;
use crate::queue::{Event, GuardWake, InTree, ToSoloist, TreeIndex};
use crate::summary::Counter;
use crate::world::World;

pub(crate) struct GuardProcess {
    state: State,
    machine: Guard,
    pub(crate) frozen: bool,
    /// What woke it while it was frozen; that it would be itself by now before anything else.
    missed: Option<GuardWake>,
    /// It is about to run, and its host is stalled.
    asleep: bool,
    /// What soloist has written into the socket, with when it can be read.
    socket: VecDeque<(Nanos, Order)>,
    last_arrival: Nanos,
    last_report: Nanos,
    alarm: u32,
    /// What its pipe to the child says of the exec.
    exec: Option<Result<(), SpawnFailure>>,
    told_to_start: bool,
    /// soloist has been told that the child has become its program.
    told_started: bool,
    /// The child has ended and is not reaped yet.
    zombie: Option<Exit>,
    said_last_word: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Forked, and not itself yet.
    Starting,
    Up,
    Dead,
}

/// From soloist to the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Deadline(Moment),
    Stop,
    Kill,
    /// soloist asks whether the guard is there.
    Ping,
    /// soloist's end of the socket is closed.
    Closed,
}

impl GuardProcess {
    pub(crate) fn new() -> Self {
        Self {
            state: State::Starting,
            machine: Guard::new(),
            frozen: false,
            missed: None,
            asleep: false,
            socket: VecDeque::new(),
            last_arrival: 0,
            last_report: 0,
            alarm: 0,
            exec: None,
            told_to_start: false,
            told_started: false,
            zombie: None,
            said_last_word: false,
        }
    }

    pub(crate) fn alive(&self) -> bool {
        self.state != State::Dead
    }

    pub(crate) fn die(&mut self) {
        self.state = State::Dead;
    }

    /// It was up, and is stopped.
    pub(crate) fn is_mute(&self) -> bool {
        self.state == State::Up && self.frozen
    }

    /// soloist knows which process the child is.
    pub(crate) fn told_started(&self) -> bool {
        self.told_started
    }

    pub(crate) fn exec_ended(&mut self, how: Result<(), SpawnFailure>) {
        self.exec = Some(how);
    }

    /// It has been forked and is not itself yet.
    pub(crate) fn is_starting(&self) -> bool {
        self.state == State::Starting
    }

    pub(crate) fn child_ended(&mut self, exit: Exit) {
        // A child that ends before its exec closes the pipe as a successful exec does.
        self.exec.get_or_insert(Ok(()));
        self.zombie = Some(exit);
    }
}

// From and to the guard.
impl World {
    /// soloist writes into the guard's socket: what is written first is read first.
    pub(crate) fn order_guard(&mut self, tree: TreeIndex, order: Order) {
        let latency = self.rng.latency(2 * MILLI);
        let guard = &mut self.trees[tree].guard;
        let at = (self.now + latency).max(guard.last_arrival + 1);
        guard.last_arrival = at;
        guard.socket.push_back((at, order));
        self.wake_guard(tree, at - self.now, GuardWake::Event);
    }

    pub(crate) fn wake_guard(&mut self, tree: TreeIndex, after: Nanos, wake: GuardWake) {
        self.queue
            .push(self.now + after, Event::GuardWakes { tree, wake });
    }

    /// The guard writes into the socket.
    fn report(&mut self, tree: TreeIndex, event: TreeEvent) {
        let latency = self.rng.latency(2 * MILLI);
        let at = (self.now + latency).max(self.trees[tree].guard.last_report + 1);
        self.trees[tree].guard.last_report = at;
        let (host, soloist) = (self.trees[tree].host, self.trees[tree].soloist);
        let what = ToSoloist::Tree { tree, event };
        self.send_to_soloist(host, soloist, at - self.now, what);
    }

    /// SIGKILL of the guard, by whomever. Its child dies with it; what the child has forked does not.
    pub(crate) fn kill_guard(&mut self, tree: TreeIndex) {
        if !self.trees[tree].guard.alive() {
            return;
        }
        self.trees[tree].guard.die();
        let at = self.now + self.rng.latency(2 * MILLI);
        let what = InTree::ParentDeath;
        self.queue.push(at, Event::InTree { tree, what });
        self.announce_dead_holder(self.trees[tree].instance);
        self.report(tree, TreeEvent::GuardLost);
    }

    pub(crate) fn thaw_guard(&mut self, tree: TreeIndex) {
        let guard = &mut self.trees[tree].guard;
        if !std::mem::take(&mut guard.frozen) {
            return;
        }
        if let Some(wake) = guard.missed.take() {
            let after = self.wake_up_delay(self.trees[tree].host);
            self.wake_guard(tree, after, wake);
        }
        let host = self.trees[tree].host;
        self.log(host, || format!("guard of tree {tree} thaws"));
    }
}

// The guard's loop.
impl World {
    pub(crate) fn guard_wakes(&mut self, tree: TreeIndex, wake: GuardWake) {
        let guard = &mut self.trees[tree].guard;
        if wake == GuardWake::Late {
            guard.asleep = false;
        }
        if guard.frozen {
            guard.missed = match wake {
                GuardWake::Started => Some(wake),
                GuardWake::Event | GuardWake::Timer { .. } | GuardWake::Late => {
                    guard.missed.or(Some(GuardWake::Event))
                }
            };
            return;
        }
        match (guard.state, wake) {
            (State::Dead, _)
            | (State::Starting, GuardWake::Event | GuardWake::Timer { .. } | GuardWake::Late) => {
                return;
            }
            (State::Starting, GuardWake::Started) => guard.state = State::Up,
            (State::Up, GuardWake::Timer { alarm }) if alarm != guard.alarm => return,
            (State::Up, _) => {}
        }
        if wake != GuardWake::Late && self.guard_sleeps_on(tree) {
            return;
        }
        self.guard_turns(tree);
        self.set_guard_alarm(tree);
    }

    /// On a stalled host it takes a while until it runs, whatever has happened by then.
    fn guard_sleeps_on(&mut self, tree: TreeIndex) -> bool {
        if self.trees[tree].guard.asleep {
            return true;
        }
        let Some(after) = self.stall_delay(self.trees[tree].host) else {
            return false;
        };
        self.trees[tree].guard.asleep = true;
        self.wake_guard(tree, after, GuardWake::Late);
        true
    }

    fn guard_turns(&mut self, tree: TreeIndex) {
        while let Some(order) = self.next_order(tree) {
            match order {
                Order::Deadline(deadline) => {
                    // The first is the order to start, and is acknowledged.
                    if !std::mem::replace(&mut self.trees[tree].guard.told_to_start, true) {
                        self.answer_ping(tree);
                    }
                    self.feed_guard(tree, Input::Deadline(deadline));
                }
                Order::Stop => self.feed_guard(tree, Input::Stop),
                Order::Kill => self.feed_guard(tree, Input::Kill),
                Order::Closed => self.feed_guard(tree, Input::SoloistGone),
                Order::Ping => self.answer_ping(tree),
            }
        }
        match self.trees[tree].guard.exec.take() {
            Some(Ok(())) => {
                self.trees[tree].guard.told_started = true;
                self.feed_guard(tree, Input::Spawned);
            }
            Some(Err(failure)) => {
                self.report_last(tree, TreeEvent::SpawnFailed(failure));
                self.feed_guard(tree, Input::SpawnFailed);
            }
            None => {}
        }
        if let Some(exit) = self.trees[tree].guard.zombie.take() {
            self.report(tree, TreeEvent::Exited(exit));
            self.feed_guard(tree, Input::ChildExited);
        }
        if self.trees[tree].is_empty() {
            self.feed_guard(tree, Input::TreeEmpty);
        }
        self.feed_guard(tree, Input::Tick);
    }

    fn next_order(&mut self, tree: TreeIndex) -> Option<Order> {
        let now = self.now;
        let socket = &mut self.trees[tree].guard.socket;
        let (_, order) = socket.pop_front_if(|(at, _)| *at <= now)?;
        Some(order)
    }

    fn answer_ping(&mut self, tree: TreeIndex) {
        if self.trees[tree].guard.alive() {
            let after = self.rng.latency(2 * MILLI);
            let (host, soloist) = (self.trees[tree].host, self.trees[tree].soloist);
            self.send_to_soloist(host, soloist, after, ToSoloist::Pong { tree });
        }
    }

    fn feed_guard(&mut self, tree: TreeIndex, input: Input) {
        let here = &mut self.trees[tree];
        let host = here.host;
        if !here.guard.alive() {
            return;
        }
        let now = self.hosts[host].clock.read(self.now);
        match here.guard.machine.handle(now, input) {
            None => {}
            Some(Action::Spawn) => self.fork_child(tree),
            Some(Action::StopChild) => self.send_stop_signal(tree),
            // Descendants do not care, here.
            Some(Action::StopLeftovers) => here.leftovers_asked = Some(now),
            Some(Action::KillLeftovers) => {
                self.summary.count(Counter::LeftoversKilled);
                self.send_kill(tree);
            }
            Some(Action::KillTree) => {
                if matches!(input, Input::Tick | Input::SoloistGone) {
                    self.summary.count(Counter::KillsByGuard);
                    self.log(host, || format!("guard kills tree {tree}: {input:?}"));
                }
                self.send_kill(tree);
            }
            Some(Action::Exit) => {
                self.report_last(tree, TreeEvent::Empty);
                self.trees[tree].guard.die();
                self.announce_dead_holder(self.trees[tree].instance);
            }
        }
    }

    /// The last word of a guard: nothing is left, or nothing was ever there.
    fn report_last(&mut self, tree: TreeIndex, event: TreeEvent) {
        if !std::mem::replace(&mut self.trees[tree].guard.said_last_word, true) {
            self.report(tree, event);
        }
    }

    fn set_guard_alarm(&mut self, tree: TreeIndex) {
        let here = &mut self.trees[tree];
        here.guard.alarm += 1;
        let alarm = here.guard.alarm;
        let next = here.guard.machine.next_deadline();
        let at = next.map_or(u64::MAX, |at| self.hosts[here.host].clock.when(at));
        if here.guard.alive() && at < u64::MAX {
            let after = at.saturating_sub(self.now) + self.rng.latency(WAKE_UP);
            self.wake_guard(tree, after, GuardWake::Timer { alarm });
        }
    }
}
