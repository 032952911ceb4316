//! The world of one schedule: hosts, trees and the store, and what happens next to them.

use soloist_core::mutant::Defect;

use crate::check::{Checks, Violation};
use crate::clock::{MILLI, Nanos, SECOND};
use crate::dice::Dice;
use crate::hosts::{Host, Soloist};
use crate::plan::{HICCUP, Plan};
use crate::queue::{Happening, HostId, Queue, SoloistId, ToGuard, ToSoloist, TreeId};
use crate::store::Store;
use crate::summary::{Counter, Summary};
use crate::trace::Trace;
use crate::tree::Tree;

pub(crate) struct World {
    pub(crate) now: Nanos,
    pub(crate) queue: Queue,
    pub(crate) dice: Dice,
    pub(crate) plan: Plan,
    pub(crate) hosts: Vec<Host>,
    pub(crate) trees: Vec<Tree>,
    /// Trees that may still have processes.
    pub(crate) living: Vec<TreeId>,
    pub(crate) store: Store,
    pub(crate) checks: Checks,
    pub(crate) summary: Summary,
    pub(crate) trace: Trace,
    pub(crate) defect: Defect,
    pub(crate) calm: bool,
    /// An operator wrote a duration into the record.
    pub(crate) duration_edited: bool,
    next_soloist: u32,
    pub(crate) next_pod: u32,
}

impl World {
    pub(crate) fn new(seed: u64, defect: Defect, trace: bool) -> Self {
        let mut dice = Dice::from_seed(seed);
        let plan = Plan::draw(&mut dice, defect);
        let hosts: Vec<_> = (0..plan.replicas)
            .map(|id| Host::draw(&mut dice, id, &plan))
            .collect();
        let mut world = Self {
            now: 0,
            queue: Queue::default(),
            dice,
            next_pod: hosts.len() as u32,
            hosts,
            trees: Vec::new(),
            living: Vec::new(),
            store: Store::default(),
            checks: Checks::default(),
            summary: Summary::default(),
            trace: Trace::new(trace),
            defect,
            calm: false,
            duration_edited: false,
            next_soloist: 0,
            plan,
        };
        world.set_up();
        world
    }

    fn set_up(&mut self) {
        if self.plan.one_machine {
            self.summary.count(Counter::OneMachine);
        } else {
            let drifting = self.hosts.len() as u64;
            self.summary.add(Counter::ClockDrift, drifting);
        }
        if self.plan.shared_identity {
            self.summary.count(Counter::SharedIdentity);
        }
        if self.plan.timings.iter().any(|t| *t != self.plan.timings[0]) {
            self.summary.count(Counter::MixedTimings);
        }
        for host in 0..self.hosts.len() {
            let at = self.dice.between(0, SECOND);
            self.queue.push(
                at,
                Happening::Start {
                    host,
                    new_identity: false,
                },
            );
        }
        for (at, fault) in std::mem::take(&mut self.plan.faults) {
            self.queue.push(at, Happening::Fault(fault));
        }
        self.queue.push(self.plan.calm_at, Happening::Calm);
    }

    /// One step; `false` at the end.
    pub(crate) fn step(&mut self) -> Result<bool, Violation> {
        let Some((at, what)) = self.queue.pop() else {
            return Ok(false);
        };
        self.now = at;
        self.summary.count(Counter::Steps);
        if matches!(what, Happening::End) {
            return Ok(false);
        }
        if let Some(held_back) = self.frozen_place(&what) {
            held_back.push(what);
        } else {
            self.happen(what)?;
        }
        self.check()?;
        Ok(true)
    }

    fn happen(&mut self, what: Happening) -> Result<(), Violation> {
        match what {
            Happening::ToSoloist {
                host,
                soloist,
                what,
            } => self.reach_soloist(host, soloist, what)?,
            Happening::ToGuard { tree, what } => self.reach_guard(tree, what),
            Happening::InTree { tree, what } => self.in_tree(tree, what),
            Happening::AtStore {
                host,
                soloist,
                sent,
                what,
            } => self.at_store(host, soloist, sent, what),
            Happening::Fault(fault) => self.inject(fault)?,
            Happening::ThawSoloist { host, soloist } => self.thaw_soloist(host, soloist),
            Happening::ThawGuard { tree } => self.thaw_guard(tree),
            Happening::ThawHost { host } => self.thaw_host(host),
            Happening::Start { host, new_identity } => self.start(host, new_identity)?,
            Happening::Calm => self.calm_down(),
            Happening::MustLead => self.must_lead()?,
            Happening::End => {}
        }
        Ok(())
    }

    /// Where things wait that happen to a process that does not run.
    fn frozen_place(&mut self, what: &Happening) -> Option<&mut Vec<Happening>> {
        match what {
            Happening::ToSoloist { host, soloist, .. } => {
                let host = &mut self.hosts[*host];
                if host.frozen() {
                    return Some(&mut host.held_back);
                }
                let running = host.soloist.as_mut()?;
                (running.id == *soloist && running.frozen).then_some(&mut running.held_back)
            }
            Happening::ToGuard { tree, .. } => {
                let tree = &mut self.trees[*tree];
                let host = &mut self.hosts[tree.host];
                if host.frozen() {
                    return Some(&mut host.held_back);
                }
                tree.guard.frozen.then_some(&mut tree.guard.held_back)
            }
            Happening::InTree { tree, .. } => {
                let host = &mut self.hosts[self.trees[*tree].host];
                host.frozen().then_some(&mut host.held_back)
            }
            _ => None,
        }
    }

    /// A process or a host runs again: what it missed reaches it now, in order, but its timers may come
    /// before or after the rest.
    fn catch_up(&mut self, mut missed: Vec<Happening>) {
        let timers_first = self.dice.percent(50);
        missed.sort_by_key(|what| {
            let timer = matches!(
                what,
                Happening::ToSoloist {
                    what: ToSoloist::Wake { .. },
                    ..
                } | Happening::ToGuard {
                    what: ToGuard::Tick { .. },
                    ..
                }
            );
            timer != timers_first
        });
        let mut at = self.now + self.dice.latency(HICCUP);
        for what in missed {
            at += self.dice.between(100, 10_000);
            self.queue.push(at, what);
        }
    }

    fn thaw_soloist(&mut self, host: HostId, id: SoloistId) {
        let Some(soloist) = self.hosts[host].soloist.as_mut().filter(|s| s.id == id) else {
            return;
        };
        if std::mem::take(&mut soloist.frozen) {
            let missed = std::mem::take(&mut soloist.held_back);
            self.catch_up(missed);
            self.log(host, || "soloist thaws".to_owned());
        }
    }

    fn thaw_guard(&mut self, tree: TreeId) {
        let guard = &mut self.trees[tree].guard;
        if std::mem::take(&mut guard.frozen) {
            // The guard reads its socket to the end before it looks at the clock.
            let mut missed = std::mem::take(&mut guard.held_back);
            missed.sort_by_key(|what| {
                matches!(
                    what,
                    Happening::ToGuard {
                        what: ToGuard::Tick { .. },
                        ..
                    }
                )
            });
            let mut at = self.now + self.dice.latency(HICCUP);
            for what in missed {
                at += 1_000;
                self.queue.push(at, what);
            }
            let host = self.trees[tree].host;
            self.log(host, || format!("guard of tree {tree} thaws"));
        }
    }

    fn thaw_host(&mut self, host: HostId) {
        if let Some(since) = self.hosts[host].frozen_since.take() {
            if soloist_core::defect!(self.defect, ClockStopsInSuspend) {
                let asleep = self.now - since;
                self.hosts[host].clock.lose(asleep);
            }
            let missed = std::mem::take(&mut self.hosts[host].held_back);
            self.catch_up(missed);
            self.log(host, || "host thaws".to_owned());
        }
    }

    fn start(&mut self, host: HostId, new_identity: bool) -> Result<(), Violation> {
        if self.hosts[host].soloist.is_some() {
            return Ok(());
        }
        if self.hosts[host].frozen() {
            let at = self.now + SECOND;
            self.queue.push(at, Happening::Start { host, new_identity });
            return Ok(());
        }
        if new_identity {
            self.next_pod += 1;
            let here = &mut self.hosts[host];
            here.pod = self.next_pod;
            if !self.plan.shared_identity {
                let name = format!("host-{host}-{}", self.next_pod);
                here.identity = soloist_core::ids::Identity::try_new(&name).expect("a plain word");
            }
        }
        self.next_soloist += 1;
        let id = SoloistId(self.next_soloist);
        let (soloist, actions) =
            self.hosts[host].new_soloist(&mut self.dice, id, &self.plan, host, self.defect);
        self.log(host, || format!("soloist {} starts", id.0));
        self.run_soloist(host, soloist, actions)
    }

    pub(crate) fn soloist(&self, host: HostId, id: SoloistId) -> Option<&Soloist> {
        self.hosts[host].soloist.as_ref().filter(|s| s.id == id)
    }

    pub(crate) fn tell_soloist(
        &mut self,
        host: HostId,
        id: SoloistId,
        after: Nanos,
        what: ToSoloist,
    ) {
        self.queue.push(
            self.now + after,
            Happening::ToSoloist {
                host,
                soloist: id,
                what,
            },
        );
    }

    pub(crate) fn tell_guard(&mut self, tree: TreeId, after: Nanos, what: ToGuard) {
        self.queue
            .push(self.now + after, Happening::ToGuard { tree, what });
    }

    pub(crate) fn hiccup(&mut self) -> Nanos {
        self.dice.latency(HICCUP)
    }

    pub(crate) fn log(&mut self, host: HostId, text: impl FnOnce() -> String) {
        self.trace.line(self.now, &self.hosts[host].name, text);
    }

    /// The faults are over: what is broken is mended, what is dead comes back, what is frozen thaws.
    fn calm_down(&mut self) {
        self.calm = true;
        self.trace
            .line(self.now, "---", || "calm: no more faults".to_owned());
        self.store.down_until = 0;
        for host in 0..self.hosts.len() {
            let here = &mut self.hosts[host];
            here.link = crate::hosts::Link::default();
            here.behaviour_until = 0;
            let soloist = here.soloist.as_ref().map(|s| s.id);
            self.thaw_host(host);
            if let Some(soloist) = soloist {
                self.thaw_soloist(host, soloist);
            }
            let at = self.now + self.dice.between(MILLI, SECOND);
            let new_identity = self.dice.percent(50);
            self.queue.push(at, Happening::Start { host, new_identity });
        }
        for tree in self.living.clone() {
            self.thaw_guard(tree);
        }
        let bound = self.plan.bound(self.duration_edited);
        self.queue.push(self.now + bound, Happening::MustLead);
    }
}
