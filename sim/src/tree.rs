//! A child's tree and its guard.

use soloist_core::defect;
use soloist_core::guard::{self, Guard};
use soloist_core::ids::{InstanceId, Term, Token};
use soloist_core::replica::{Event, Exit, SpawnFailure};
use soloist_core::time::Moment;

use crate::clock::{MILLI, Nanos, SECOND};
use crate::queue::{Happening, HostId, InTree, SoloistId, ToGuard, ToSoloist, TreeId};
use crate::summary::Counter;
use crate::world::World;

pub(crate) struct Tree {
    pub(crate) host: HostId,
    pub(crate) soloist: SoloistId,
    pub(crate) instance: InstanceId,
    pub(crate) term: Term,
    pub(crate) token: Token,
    pub(crate) guard: GuardProcess,
    /// The last deadline that soloist gave.
    pub(crate) deadline: Moment,
    behaviour: Behaviour,
    pub(crate) born: bool,
    child: bool,
    descendants: u32,
    pub(crate) ready: bool,
    stop_asked: bool,
    killed: bool,
    /// soloist has ordered its death.
    pub(crate) kill_ordered: bool,
    /// No process is left, and none will come.
    pub(crate) over: bool,
    /// Whether soloist or the guard could act at the last step.
    pub(crate) watched: bool,
    /// When one of them could again, after neither could.
    pub(crate) watched_again: Option<Nanos>,
}

pub(crate) struct GuardProcess {
    pub(crate) guard: Option<Guard>,
    pub(crate) alive: bool,
    pub(crate) frozen: bool,
    pub(crate) held_back: Vec<Happening>,
    tick: u32,
}

/// How a child is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Behaviour {
    pub(crate) spawns: bool,
    pub(crate) ready_after: Option<Nanos>,
    pub(crate) drains_for: Nanos,
    pub(crate) ignores_stop: bool,
    pub(crate) crashes_after: Option<Nanos>,
    /// Detached processes that outlive the child and ignore the stop signal.
    pub(crate) descendants: u32,
    pub(crate) sick: bool,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            spawns: true,
            ready_after: Some(50 * MILLI),
            drains_for: 100 * MILLI,
            ignores_stop: false,
            crashes_after: None,
            descendants: 0,
            sick: false,
        }
    }
}

impl Tree {
    pub(crate) fn new(
        host: HostId,
        soloist: SoloistId,
        (instance, term, token): (InstanceId, Term, Token),
        deadline: Moment,
        behaviour: Behaviour,
    ) -> Self {
        Self {
            host,
            soloist,
            instance,
            term,
            token,
            guard: GuardProcess {
                guard: None,
                alive: true,
                frozen: false,
                held_back: Vec::new(),
                tick: 0,
            },
            deadline,
            behaviour,
            born: false,
            child: false,
            descendants: 0,
            ready: false,
            stop_asked: false,
            killed: false,
            kill_ordered: false,
            over: false,
            watched: true,
            watched_again: None,
        }
    }

    pub(crate) fn has_processes(&self) -> bool {
        self.child || self.descendants > 0
    }

    /// A fault befalls a child that is already there.
    pub(crate) fn turn(&mut self, behaviour: Behaviour) {
        self.behaviour = Behaviour {
            ready_after: self.behaviour.ready_after,
            ..behaviour
        };
        if self.child {
            self.descendants = self.descendants.max(behaviour.descendants);
        }
    }
}

impl World {
    pub(crate) fn draw_behaviour(&mut self, host: HostId) -> Behaviour {
        let host = &self.hosts[host];
        let behaviour = if self.now < host.behaviour_until {
            host.behaviour
        } else {
            Behaviour::default()
        };
        Behaviour {
            ready_after: behaviour
                .ready_after
                .map(|most| self.dice.between(MILLI, most)),
            ..behaviour
        }
    }

    pub(crate) fn reach_guard(&mut self, tree: TreeId, what: ToGuard) {
        if !self.trees[tree].guard.alive {
            return;
        }
        let host = self.trees[tree].host;
        let now = self.hosts[host].clock.read(self.now);
        let action = match what {
            ToGuard::Arm { deadline } => {
                if self.soloist(host, self.trees[tree].soloist).is_none() {
                    self.trees[tree].guard.alive = false;
                    self.over(tree);
                    return;
                }
                let (guard, action) = Guard::armed(now, deadline);
                self.trees[tree].guard.guard = Some(guard);
                Some(action)
            }
            ToGuard::Forked => self.forked(tree, now),
            ToGuard::Tick { generation } if generation != self.trees[tree].guard.tick => None,
            ToGuard::Tick { .. } => self.guard_input(tree, now, guard::Input::Tick),
            ToGuard::Input(input) => self.guard_input(tree, now, input),
        };
        if let Some(action) = action {
            self.guard_acts(tree, action);
        }
        self.set_guard_alarm(tree);
    }

    fn guard_input(
        &mut self,
        tree: TreeId,
        now: Moment,
        input: guard::Input,
    ) -> Option<guard::Action> {
        if defect!(self.defect, GuardAbsent)
            && matches!(input, guard::Input::Tick | guard::Input::SoloistGone)
        {
            return None;
        }
        match input {
            guard::Input::ChildExited => self.report(tree, Event::Exited(Exit::Code(1))),
            guard::Input::TreeEmpty => self.report(tree, Event::TreeEmpty),
            guard::Input::SpawnFailed => {
                self.report(tree, Event::SpawnFailed(SpawnFailure::NotFound));
            }
            _ => {}
        }
        let killing = matches!(input, guard::Input::Tick | guard::Input::SoloistGone);
        let action = self.trees[tree].guard.guard.as_mut()?.handle(now, input);
        if killing && action == Some(guard::Action::KillTree) {
            self.summary.count(Counter::KillsByGuard);
            let host = self.trees[tree].host;
            self.log(host, || format!("guard kills tree {tree}: {input:?}"));
        }
        action
    }

    fn guard_acts(&mut self, tree: TreeId, action: guard::Action) {
        match action {
            guard::Action::Spawn => {
                let after = self.dice.between(MILLI, 20 * MILLI);
                self.tell_guard(tree, after, ToGuard::Forked);
            }
            guard::Action::KillTree => {
                let at = self.now + self.hiccup();
                let what = InTree::Kill { by_soloist: false };
                self.queue.push(at, Happening::InTree { tree, what });
            }
            guard::Action::Exit => {
                self.trees[tree].guard.alive = false;
                self.show_dead_holder(self.trees[tree].instance);
                if !self.trees[tree].born {
                    self.over(tree);
                    self.report(tree, Event::TreeEmpty);
                }
            }
        }
    }

    fn forked(&mut self, tree: TreeId, now: Moment) -> Option<guard::Action> {
        let behaviour = self.trees[tree].behaviour;
        if !behaviour.spawns {
            return self.guard_input(tree, now, guard::Input::SpawnFailed);
        }
        let new = &mut self.trees[tree];
        new.born = true;
        new.child = true;
        new.descendants = behaviour.descendants;
        let host = new.host;
        let token = new.token;
        self.summary.count(Counter::Children);
        self.log(host, || {
            format!("child of tree {tree} lives, token {token}")
        });
        let mut happens = |after: Nanos, what| {
            self.queue
                .push(self.now + after, Happening::InTree { tree, what });
        };
        if let Some(after) = behaviour.ready_after {
            happens(after, InTree::Ready);
        }
        if let Some(after) = behaviour.crashes_after {
            happens(after, InTree::Exit);
        }
        happens(SECOND, InTree::CheckHealth);
        self.guard_input(tree, now, guard::Input::Spawned)
    }

    fn set_guard_alarm(&mut self, tree: TreeId) {
        let here = &mut self.trees[tree];
        here.guard.tick += 1;
        let generation = here.guard.tick;
        let next = here.guard.guard.as_ref().and_then(Guard::next_deadline);
        let at = next.map_or(u64::MAX, |at| self.hosts[here.host].clock.when(at));
        if here.guard.alive && at < u64::MAX {
            let at = at.max(self.now) + self.hiccup();
            let what = ToGuard::Tick { generation };
            self.queue.push(at, Happening::ToGuard { tree, what });
        }
    }

    /// What the guard tells soloist.
    fn report(&mut self, tree: TreeId, event: Event) {
        let after = self.dice.latency(2 * MILLI);
        let (host, soloist) = (self.trees[tree].host, self.trees[tree].soloist);
        self.tell_soloist(host, soloist, after, ToSoloist::Child { tree, event });
    }

    fn over(&mut self, tree: TreeId) {
        self.trees[tree].over = true;
    }

    pub(crate) fn in_tree(&mut self, tree: TreeId, what: InTree) {
        match what {
            InTree::Ready => {
                if self.trees[tree].child {
                    self.trees[tree].ready = true;
                    self.summary.count(Counter::ChildrenReady);
                    self.report(tree, Event::Ready);
                }
            }
            InTree::StopSignal => {
                let here = &mut self.trees[tree];
                here.stop_asked = true;
                if !here.behaviour.ignores_stop {
                    let at = self.now + here.behaviour.drains_for;
                    let what = InTree::Exit;
                    self.queue.push(at, Happening::InTree { tree, what });
                }
            }
            InTree::Exit => {
                let here = &mut self.trees[tree];
                if here.child && !(here.behaviour.ignores_stop && here.stop_asked) {
                    here.child = false;
                    let after = self.dice.latency(2 * MILLI);
                    let input = ToGuard::Input(guard::Input::ChildExited);
                    self.tell_guard(tree, after, input);
                    self.see_if_empty(tree, 2 * MILLI);
                }
            }
            InTree::ParentDeath => {
                self.trees[tree].child = false;
                self.see_if_empty(tree, 0);
            }
            InTree::Kill { by_soloist } => self.killed(tree, by_soloist),
            InTree::CheckHealth => {
                let here = &self.trees[tree];
                if here.child {
                    let event = match here.behaviour.sick {
                        true => Event::Unhealthy,
                        false => Event::Healthy,
                    };
                    self.report(tree, event);
                    let at = self.now + SECOND;
                    self.queue.push(at, Happening::InTree { tree, what });
                }
            }
        }
    }

    fn killed(&mut self, tree: TreeId, by_soloist: bool) {
        let here = &mut self.trees[tree];
        if here.has_processes() {
            here.killed = true;
        }
        here.child = false;
        here.descendants = 0;
        if !by_soloist {
            self.see_if_empty(tree, 0);
            return;
        }
        // A guard that does not answer goes too: nobody may start anything any more.
        let unresponsive = here.guard.frozen || !here.guard.alive;
        if unresponsive {
            here.guard.alive = false;
            self.over(tree);
            self.report(tree, Event::TreeEmpty);
        } else {
            self.see_if_empty(tree, 0);
            if !self.trees[tree].over {
                let at = self.now + 20 * MILLI;
                let what = InTree::Kill { by_soloist: true };
                self.queue.push(at, Happening::InTree { tree, what });
            }
        }
    }

    fn see_if_empty(&mut self, tree: TreeId, after: Nanos) {
        let here = &self.trees[tree];
        if here.over || !here.born || here.has_processes() {
            return;
        }
        let (host, killed, guarded) = (here.host, here.killed, here.guard.alive);
        self.over(tree);
        if !killed {
            self.summary.count(Counter::EndedInOrder);
        }
        self.log(host, || format!("tree {tree} is empty"));
        let after = after + self.dice.latency(2 * MILLI);
        if guarded {
            self.tell_guard(tree, after, ToGuard::Input(guard::Input::TreeEmpty));
        } else {
            self.report(tree, Event::TreeEmpty);
        }
    }

    /// The guard dies: its child dies with it, what the child has forked does not.
    pub(crate) fn guard_dies(&mut self, tree: TreeId) {
        let here = &mut self.trees[tree];
        here.guard.alive = false;
        if !here.born {
            self.over(tree);
        }
        let at = self.now + self.dice.latency(2 * MILLI);
        let what = InTree::ParentDeath;
        self.queue.push(at, Happening::InTree { tree, what });
        self.show_dead_holder(self.trees[tree].instance);
        self.report(tree, Event::GuardLost);
    }
}
