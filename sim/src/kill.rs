//! What soloist does at its end of a guard's socket without asking the node: it kills directly until the tree
//! is empty, asks the guard whether it is there, and does away with one that is not.

use soloist_core::keepalive::Check;
use soloist_core::node::TreeEvent;
use soloist_core::time::Moment;

use crate::check::Violation;
use crate::clock::{MILLI, Nanos};
use crate::guard::Order;
use crate::plan::WAKE_UP;
use crate::queue::{Event, HostId, InTree, SoloistId, ToSoloist, TreeIndex};
use crate::summary::Counter;
use crate::world::World;

/// Between two passes of a kill.
const FIRST_PAUSE: Nanos = 5 * MILLI;
const LONGEST_PAUSE: Nanos = 100 * MILLI;

impl World {
    /// SIGKILL to every process of the tree, through the guard and directly.
    pub(crate) fn kill_by_soloist(&mut self, tree: TreeIndex) {
        let (host, soloist) = (self.trees[tree].host, self.trees[tree].soloist);
        self.log(host, || format!("soloist kills tree {tree}"));
        self.summary.count(Counter::KillsBySoloist);
        self.trees[tree].kill_ordered = true;
        self.order_guard(tree, Order::Kill);
        self.send_kill(tree);
        self.ask_guard_of(tree);
        let since = self.now;
        let what = ToSoloist::KillPass { tree, since };
        self.send_to_soloist(host, soloist, FIRST_PAUSE, what);
    }

    pub(crate) fn kill_pass(
        &mut self,
        host: HostId,
        id: SoloistId,
        tree: TreeIndex,
        since: Nanos,
    ) -> Result<(), Violation> {
        if !self.holds(host, id, tree) {
            return Ok(());
        }
        let here = &self.trees[tree];
        let (guarded, stopped) = (here.guard.alive(), here.guard.frozen);
        if here.has_processes() {
            self.send_kill(tree);
        } else if !guarded {
            let event = TreeEvent::Empty;
            return self.deliver_to_soloist(host, id, ToSoloist::Tree { tree, event });
        }
        if guarded && stopped {
            self.replace_guard(tree);
        }
        let pause = ((self.now - since) / 2).clamp(FIRST_PAUSE, LONGEST_PAUSE);
        self.send_to_soloist(host, id, pause, ToSoloist::KillPass { tree, since });
        Ok(())
    }

    /// soloist is no more: its sockets are closed, and in a container everything dies with it.
    pub(crate) fn close_sockets(
        &mut self,
        host: HostId,
        trees: impl IntoIterator<Item = TreeIndex>,
    ) {
        for tree in trees {
            if !self.hosts[host].container {
                self.order_guard(tree, Order::Closed);
                continue;
            }
            self.trees[tree].guard.die();
            let at = self.now + self.rng.latency(2 * MILLI);
            let what = InTree::Kill;
            self.queue.push(at, Event::InTree { tree, what });
        }
    }
}

// Is the guard there?
impl World {
    /// The guard was told to start the child.
    pub(crate) fn begin_to_ask_guard(&mut self, tree: TreeIndex) {
        self.trees[tree].keepalive.begin();
        self.set_keepalive_alarm(tree);
    }

    pub(crate) fn ask_guard(&mut self, host: HostId, id: SoloistId, tree: TreeIndex) {
        if self.holds(host, id, tree) {
            self.ask_guard_of(tree);
        }
    }

    fn ask_guard_of(&mut self, tree: TreeIndex) {
        let now = self.clock_of(tree);
        let check = self.trees[tree].keepalive.ask(now);
        self.act_on(tree, check);
    }

    pub(crate) fn check_guard(&mut self, host: HostId, id: SoloistId, tree: TreeIndex, alarm: u32) {
        if self.holds(host, id, tree) && self.trees[tree].keepalive_alarm == alarm {
            let now = self.clock_of(tree);
            let check = self.trees[tree].keepalive.handle_timeout(now);
            self.act_on(tree, check);
        }
    }

    pub(crate) fn hear_guard(&mut self, host: HostId, id: SoloistId, tree: TreeIndex) {
        if self.holds(host, id, tree) {
            let now = self.clock_of(tree);
            self.trees[tree].keepalive.heard(now);
            self.set_keepalive_alarm(tree);
        }
    }

    fn act_on(&mut self, tree: TreeIndex, check: Option<Check>) {
        match check {
            None => {}
            Some(Check::Ask) => self.order_guard(tree, Order::Ping),
            Some(Check::Replace) => self.replace_guard(tree),
        }
        self.set_keepalive_alarm(tree);
    }

    /// The guard does not answer.
    fn replace_guard(&mut self, tree: TreeIndex) {
        let host = self.trees[tree].host;
        self.log(host, || format!("the guard of tree {tree} does not answer"));
        if self.trees[tree].guard.alive() {
            self.summary.count(Counter::GuardsReplaced);
        }
        self.kill_guard(tree);
    }

    fn set_keepalive_alarm(&mut self, tree: TreeIndex) {
        let here = &mut self.trees[tree];
        here.keepalive_alarm += 1;
        if !here.guard.alive() {
            return;
        }
        let (host, soloist, alarm) = (here.host, here.soloist, here.keepalive_alarm);
        let next = here.keepalive.next_deadline();
        let at = next.map_or(u64::MAX, |at| self.hosts[host].clock.when(at));
        if at < u64::MAX {
            let after = at.saturating_sub(self.now) + self.rng.latency(WAKE_UP);
            let what = ToSoloist::CheckGuard { tree, alarm };
            self.send_to_soloist(host, soloist, after, what);
        }
    }

    fn clock_of(&self, tree: TreeIndex) -> Moment {
        self.hosts[self.trees[tree].host].clock.read(self.now)
    }

    fn holds(&self, host: HostId, id: SoloistId, tree: TreeIndex) -> bool {
        let held = |s: &crate::hosts::Soloist| s.trees.iter().any(|t| t.tree == tree);
        self.soloist(host, id).is_some_and(held)
    }
}
