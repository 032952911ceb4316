//! Children that have a flaw.

use super::Fault;
use crate::behaviour::{Behaviour, Kill};
use crate::clock::{MILLI, Nanos, SECOND};
use crate::queue::{Event, HostId, InTree};
use crate::world::World;

impl World {
    /// The next children of this host, or of all, and the one that is there, have a flaw.
    pub(super) fn change_children(&mut self, fault: Fault, host: HostId, until: Nanos) {
        let mut behaviour = Behaviour::default();
        match fault {
            Fault::SlowDrain => behaviour.drains_for = self.rng.between(SECOND, 40 * SECOND),
            Fault::IgnoresStop => behaviour.ignores_stop = true,
            Fault::CrashesAtOnce => {
                behaviour.crashes_after = Some(self.rng.between(1, 40 * MILLI));
            }
            Fault::CrashesLater => {
                behaviour.crashes_after = Some(self.rng.between(SECOND, 8 * SECOND));
            }
            Fault::NeverReady => behaviour.ready_after = None,
            Fault::Sick => behaviour.sick = true,
            Fault::CannotSpawn => behaviour.spawns = false,
            Fault::SlowKill => {
                behaviour.kill = Kill::Takes(self.rng.between(100 * MILLI, 3 * SECOND));
            }
            Fault::StuckKill => behaviour.kill = Kill::Stuck,
            _ => behaviour.descendants = self.rng.between(1, 5) as u32,
        }
        if self.rng.percent(40) {
            behaviour.ignores_stop = true;
        }
        let everywhere = self.rng.percent(30);
        for (id, here) in self.hosts.iter_mut().enumerate() {
            if everywhere || id == host {
                here.behaviour = behaviour;
                here.behaviour_until = until;
            }
        }
        if let Some(tree) = self.guarded_tree(host) {
            self.trees[tree].change_behaviour(behaviour);
            let after = behaviour.crashes_after;
            if let Some(after) = after.filter(|_| self.trees[tree].has_processes()) {
                self.trees[tree].will_crash = true;
                let what = InTree::Exit { code: 1 };
                self.queue
                    .push(self.now + after, Event::InTree { tree, what });
            }
        }
    }
}
