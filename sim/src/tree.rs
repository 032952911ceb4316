//! The processes of a child's tree.

use soloist_core::ids::{InstanceId, Term, Token};
use soloist_core::keepalive::Keepalive;
use soloist_core::node::TreeEvent;
use soloist_core::replica::{Exit, SpawnFailure};
use soloist_core::time::Moment;
use soloist_core::timings::Timings;

use crate::behaviour::{Behaviour, Kill};
use crate::clock::{MILLI, Nanos, SECOND};
use crate::gaps::Cause;
use crate::guard::GuardProcess;
use crate::queue::{Event, GuardWake, HostId, InTree, SoloistId, ToSoloist, TreeIndex};
use crate::summary::Counter;
use crate::world::World;

pub(crate) struct Tree {
    pub(crate) host: HostId,
    pub(crate) soloist: SoloistId,
    pub(crate) instance: InstanceId,
    pub(crate) term: Option<TreeTerm>,
    pub(crate) guard: GuardProcess,
    /// soloist's question to the guard.
    pub(crate) keepalive: Keepalive,
    pub(crate) keepalive_alarm: u32,
    /// Since when the guard is stopped while soloist could notice it.
    pub(crate) mute_since: Option<Nanos>,
    /// Since when only processes that outlived the child are left, and the guard could act.
    pub(crate) leftovers_since: Option<Nanos>,
    /// The last deadline that soloist gave, and when.
    pub(crate) deadline: Moment,
    pub(crate) deadline_given: Nanos,
    /// Until when soloist believes in the lease.
    pub(crate) valid_until: Moment,
    behaviour: Behaviour,
    child: Process,
    descendants: u32,
    descendants_dying: bool,
    pub(crate) ready: bool,
    stop_asked: bool,
    killed: bool,
    /// soloist has ordered its death.
    pub(crate) kill_ordered: bool,
    /// When soloist asked it to end, by the host's clock.
    pub(crate) stop_ordered: Option<Moment>,
    /// When what had outlived the child was asked to stop, by the host's clock.
    pub(crate) leftovers_asked: Option<Moment>,
    /// When soloist was shown that its lease is gone.
    pub(crate) shown_loss: Option<Nanos>,
    /// The child is going to crash.
    pub(crate) will_crash: bool,
    /// What ended it, or is going to.
    pub(crate) end_cause: Option<Cause>,
    /// Whether soloist or the guard could act at the last step.
    pub(crate) supervised: bool,
    /// When one of them could again, after neither could.
    pub(crate) supervised_again: Option<Nanos>,
    /// When last only the guard could.
    pub(crate) guard_alone: Option<Nanos>,
}

/// The term that a tree belongs to.
#[derive(Clone, Copy)]
pub(crate) struct TreeTerm {
    pub(crate) term: Term,
    pub(crate) token: Token,
    /// When the write that began it landed.
    pub(crate) began: Nanos,
    /// How often the store had been set back by then.
    pub(crate) epoch: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Process {
    NotYet,
    /// Forked, and about to become its program.
    Execs,
    Runs,
    /// Killed: it runs no code any more, but is still there.
    Dying,
    Gone,
}

impl Tree {
    pub(crate) fn new(
        host: HostId,
        soloist: SoloistId,
        instance: InstanceId,
        timings: &Timings,
    ) -> Self {
        Self {
            host,
            soloist,
            instance,
            term: None,
            guard: GuardProcess::new(),
            keepalive: Keepalive::new(timings),
            keepalive_alarm: 0,
            mute_since: None,
            leftovers_since: None,
            deadline: Moment::NEVER,
            deadline_given: 0,
            valid_until: Moment::NEVER,
            behaviour: Behaviour::default(),
            child: Process::NotYet,
            descendants: 0,
            descendants_dying: false,
            ready: false,
            stop_asked: false,
            killed: false,
            kill_ordered: false,
            stop_ordered: None,
            leftovers_asked: None,
            shown_loss: None,
            will_crash: false,
            end_cause: None,
            supervised: true,
            supervised_again: None,
            guard_alone: None,
        }
    }

    /// Its processes can run code.
    pub(crate) fn runs(&self) -> bool {
        matches!(self.child, Process::Execs | Process::Runs)
            || (self.descendants > 0 && !self.descendants_dying)
    }

    /// The child has ended, and others of its tree run on.
    pub(crate) fn is_leftovers(&self) -> bool {
        self.child == Process::Gone && self.runs()
    }

    /// The child does its work.
    pub(crate) fn works(&self) -> bool {
        self.child == Process::Runs
    }

    pub(crate) fn has_processes(&self) -> bool {
        let child = matches!(self.child, Process::Execs | Process::Runs | Process::Dying);
        child || self.descendants > 0
    }

    /// There was something, and nothing is left of it.
    pub(crate) fn is_empty(&self) -> bool {
        self.child == Process::Gone && self.descendants == 0
    }

    /// No process is left, and none will come.
    pub(crate) fn is_over(&self) -> bool {
        !self.guard.alive() && !self.has_processes()
    }

    pub(crate) fn token(&self) -> Token {
        self.term.map_or(Token::new(0), |t| t.token)
    }

    /// A fault changes a child that is already there.
    pub(crate) fn change_behaviour(&mut self, behaviour: Behaviour) {
        self.behaviour = Behaviour {
            ready_after: self.behaviour.ready_after,
            completes_after: self.behaviour.completes_after,
            ..behaviour
        };
        if self.works() {
            self.descendants = self.descendants.max(behaviour.descendants);
        }
    }

    /// Whether the child is as it should be.
    pub(crate) fn is_flawed(&self) -> bool {
        self.behaviour.is_flawed() || self.descendants > 0 || self.will_crash
    }

    /// The guard or the child is being started.
    pub(crate) fn is_starting(&self) -> bool {
        self.guard.is_starting() || self.child == Process::Execs
    }

    /// What cannot be killed can be from now on.
    pub(crate) fn end_stuck_kill(&mut self) {
        self.behaviour.kill = Kill::AtOnce;
    }
}

// What happens to the processes.
impl World {
    /// The child exists from now on, and becomes its program in a while.
    pub(crate) fn fork_child(&mut self, tree: TreeIndex) {
        let host = self.trees[tree].host;
        let behaviour = self.draw_behaviour(host);
        let new = &mut self.trees[tree];
        new.behaviour = behaviour;
        new.child = Process::Execs;
        let token = new.token();
        self.summary.count(Counter::Children);
        self.log(host, || {
            format!("child of tree {tree} lives, token {token}")
        });
        let after = self.exec_delay(host);
        self.later_in_tree(tree, after, InTree::Exec);
    }

    fn later_in_tree(&mut self, tree: TreeIndex, after: Nanos, what: InTree) {
        self.queue
            .push(self.now + after, Event::InTree { tree, what });
    }

    pub(crate) fn send_stop_signal(&mut self, tree: TreeIndex) {
        let after = self.rng.latency(2 * MILLI);
        self.later_in_tree(tree, after, InTree::StopSignal);
    }

    /// SIGKILL is on its way to every process.
    pub(crate) fn send_kill(&mut self, tree: TreeIndex) {
        let after = self.wake_up_delay(self.trees[tree].host);
        self.later_in_tree(tree, after, InTree::Kill);
    }

    /// The child tells soloist, not by way of the guard.
    fn child_tells(&mut self, tree: TreeIndex, event: TreeEvent) {
        let after = self.rng.latency(2 * MILLI);
        let (host, soloist) = (self.trees[tree].host, self.trees[tree].soloist);
        self.send_to_soloist(host, soloist, after, ToSoloist::Tree { tree, event });
    }

    pub(crate) fn in_tree(&mut self, tree: TreeIndex, what: InTree) {
        match what {
            InTree::Exec => self.child_execs(tree),
            InTree::Ready => {
                if self.trees[tree].works() {
                    self.trees[tree].ready = true;
                    self.summary.count(Counter::ChildrenReady);
                    self.child_tells(tree, TreeEvent::Ready);
                }
            }
            InTree::StopSignal => {
                let here = &mut self.trees[tree];
                here.stop_asked = true;
                if !here.behaviour.ignores_stop {
                    let after = here.behaviour.drains_for;
                    self.later_in_tree(tree, after, InTree::Exit { code: 0 });
                }
            }
            // When the faults are over, no child crashes any more.
            InTree::Exit { code } if code != 0 && self.calm => {}
            InTree::Exit { code } => {
                let here = &mut self.trees[tree];
                let ignores = here.behaviour.ignores_stop && here.stop_asked;
                if matches!(here.child, Process::Execs | Process::Runs) && !ignores {
                    here.end_cause.get_or_insert(Cause::FailingChild);
                    self.child_ends(tree, Exit::Code(code));
                }
            }
            InTree::ParentDeath => {
                let here = &mut self.trees[tree];
                if matches!(here.child, Process::Execs | Process::Runs) {
                    here.end_cause.get_or_insert(Cause::Crash);
                    self.child_ends(tree, Exit::Signal(9));
                }
            }
            InTree::Kill => self.kill_arrives(tree),
            InTree::Reaped => self.killed_processes_go(tree),
            InTree::CheckHealth => {
                let here = &self.trees[tree];
                if here.works() {
                    let event = match here.behaviour.sick {
                        true => TreeEvent::Unhealthy,
                        false => TreeEvent::Healthy,
                    };
                    self.child_tells(tree, event);
                    self.later_in_tree(tree, SECOND, what);
                }
            }
        }
    }

    fn child_execs(&mut self, tree: TreeIndex) {
        let after = self.rng.latency(2 * MILLI);
        let here = &mut self.trees[tree];
        if here.child != Process::Execs {
            return;
        }
        let behaviour = here.behaviour;
        if !behaviour.spawns {
            here.child = Process::Gone;
            here.guard.exec_ended(Err(SpawnFailure::NotFound));
            self.wake_guard(tree, after, GuardWake::Event);
            return;
        }
        here.child = Process::Runs;
        here.guard.exec_ended(Ok(()));
        here.descendants = behaviour.descendants;
        self.wake_guard(tree, after, GuardWake::Event);
        if let Some(after) = behaviour.ready_after {
            self.later_in_tree(tree, after, InTree::Ready);
        }
        if let Some(after) = behaviour.crashes_after {
            self.later_in_tree(tree, after, InTree::Exit { code: 1 });
        }
        if let Some(after) = behaviour.completes_after {
            self.later_in_tree(tree, after, InTree::Exit { code: 0 });
        }
        self.later_in_tree(tree, SECOND, InTree::CheckHealth);
    }

    fn child_ends(&mut self, tree: TreeIndex, exit: Exit) {
        let here = &mut self.trees[tree];
        here.child = Process::Gone;
        here.guard.child_ended(exit);
        let (host, soloist) = (here.host, here.soloist);
        if here.guard.told_started() {
            let after = self.rng.latency(2 * MILLI);
            self.send_to_soloist(host, soloist, after, ToSoloist::ChildEnded { tree });
        }
        self.processes_ended(tree);
    }

    fn kill_arrives(&mut self, tree: TreeIndex) {
        let here = &mut self.trees[tree];
        if !here.runs() {
            return;
        }
        here.killed = true;
        if matches!(here.child, Process::Execs | Process::Runs) {
            here.child = Process::Dying;
        }
        here.descendants_dying = here.descendants > 0;
        match here.behaviour.kill {
            Kill::AtOnce => self.killed_processes_go(tree),
            Kill::Takes(long) => {
                self.summary.count(Counter::SlowKill);
                self.later_in_tree(tree, long, InTree::Reaped);
            }
            Kill::Stuck => {
                let host = here.host;
                self.summary.count(Counter::StuckKill);
                self.log(host, || {
                    format!("tree {tree} is killed, and stuck in the kernel")
                });
            }
        }
    }

    fn killed_processes_go(&mut self, tree: TreeIndex) {
        let here = &mut self.trees[tree];
        let child = here.child == Process::Dying;
        if !child && !here.descendants_dying {
            return;
        }
        if child {
            here.child = Process::Gone;
            here.guard.child_ended(Exit::Signal(9));
        }
        if std::mem::take(&mut here.descendants_dying) {
            here.descendants = 0;
        }
        self.processes_ended(tree);
    }

    /// SIGCHLD.
    fn processes_ended(&mut self, tree: TreeIndex) {
        let after = self.rng.latency(2 * MILLI);
        self.wake_guard(tree, after, GuardWake::Event);
        let here = &self.trees[tree];
        if here.is_empty() {
            let (host, killed) = (here.host, here.killed);
            if !killed {
                self.summary.count(Counter::EndedInOrder);
            }
            self.log(host, || format!("tree {tree} is empty"));
        }
    }
}
