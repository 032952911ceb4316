//! The world of one schedule: hosts, trees and the store, and what happens next to them.

use crate::check::{Checks, RESTART, Violation};
use crate::clock::{MILLI, Nanos, SECOND};
use crate::gaps::GapMeter;
use crate::hosts::{Host, Soloist};
use crate::plan::{Plan, WAKE_UP};
use crate::pods::Pods;
use crate::queue::{Event, HostId, InTree, Queue, SoloistId, ToSoloist, TreeIndex};
use crate::rng::Rng;
use crate::run::Options;
use crate::store::Store;
use crate::summary::{Counter, Summary, Without};
use crate::trace::Trace;
use crate::tree::Tree;

pub(crate) struct World {
    pub(crate) now: Nanos,
    pub(crate) queue: Queue,
    pub(crate) rng: Rng,
    pub(crate) plan: Plan,
    pub(crate) hosts: Vec<Host>,
    pub(crate) trees: Vec<Tree>,
    /// Trees that may still have processes.
    pub(crate) living: Vec<TreeIndex>,
    pub(crate) store: Store,
    pub(crate) pods: Pods,
    pub(crate) checks: Checks,
    pub(crate) summary: Summary,
    pub(crate) trace: Trace,
    pub(crate) calm: bool,
    pub(crate) without: Without,
    pub(crate) gaps: GapMeter,
    /// Somebody may count with a duration that an operator wrote into the record.
    pub(crate) edited_promise: Option<EditedPromise>,
    /// The last message that is under way arrives then.
    pub(crate) late_until: Nanos,
    /// The last stop signal or wish for a handover arrives then.
    pub(crate) asked_until: Nanos,
    /// When the last preStop hook is over.
    pub(crate) hooks_until: Nanos,
    /// One request was swallowed, and nothing else is wrong.
    pub(crate) stalled_request: Option<StalledRequest>,
    /// Somebody has run the job to its end.
    pub(crate) job_done: bool,
    pub(crate) next_soloist: u32,
    pub(crate) next_pod: u32,
}

/// How long, and until when somebody may count with it; who has seen it remembers it, and counts with it anew when what
/// went on before is unclear.
#[derive(Clone, Copy)]
pub(crate) struct EditedPromise {
    pub(crate) length: Nanos,
    pub(crate) until: Nanos,
}

/// A leader whose request was swallowed must not lose its lease until then.
pub(crate) struct StalledRequest {
    pub(crate) host: HostId,
    pub(crate) until: Nanos,
}

impl World {
    pub(crate) fn new(seed: u64, options: Options) -> Self {
        let mut rng = Rng::from_seed(seed);
        let mut plan = Plan::draw(&mut rng, options.without);
        plan.draw_orders(seed, options.without);
        plan.draw_deaths(seed, options.without);
        plan.draw_hooks(seed, options.without);
        let hosts: Vec<_> = (0..plan.replicas + usize::from(plan.client_go))
            .map(|id| Host::draw(&mut rng, id, &plan))
            .collect();
        let mut world = Self {
            now: 0,
            queue: Queue::default(),
            rng,
            next_pod: hosts.len() as u32,
            hosts,
            trees: Vec::new(),
            living: Vec::new(),
            store: Store::default(),
            pods: Pods::new(seed),
            checks: Checks::default(),
            summary: Summary::default(),
            trace: Trace::new(options.trace),
            calm: false,
            without: options.without,
            gaps: GapMeter::default(),
            edited_promise: None,
            late_until: 0,
            asked_until: 0,
            hooks_until: 0,
            stalled_request: None,
            job_done: false,
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
        let features = [
            (self.plan.client_go, Counter::ClientGo),
            (self.plan.crash_loop, Counter::CrashLoop),
            (self.plan.once, Counter::Once),
            (self.plan.graceful(), Counter::Graceful),
            (self.plan.deaths_reported, Counter::DeathsReported),
        ];
        for (_, counter) in features.into_iter().filter(|(on, _)| *on) {
            self.summary.count(counter);
            self.trace.line(0, "---", || counter.text().to_owned());
        }
        let plan = &self.plan;
        self.trace.line(0, "---", || {
            format!(
                "{} replicas, {:?}, one machine: {}",
                plan.replicas, plan.timings, plan.one_machine
            )
        });
        for host in 0..self.hosts.len() {
            let at = self.rng.between(0, SECOND);
            self.queue.push(
                at,
                Event::Start {
                    host,
                    new_identity: false,
                },
            );
        }
        for (at, fault) in std::mem::take(&mut self.plan.faults) {
            self.queue.push(at, Event::Fault(fault));
        }
        self.queue.push(self.plan.calm_at, Event::Calm);
    }

    /// One step; `false` at the end.
    pub(crate) fn step(&mut self) -> Result<bool, Violation> {
        let Some((at, what)) = self.queue.pop() else {
            return Ok(false);
        };
        self.now = at;
        self.summary.count(Counter::Steps);
        if matches!(what, Event::End) {
            return Ok(false);
        }
        if let Some(held_back) = self.held_back_for(&what) {
            held_back.push(what);
        } else {
            self.dispatch(what)?;
        }
        self.check()?;
        Ok(true)
    }

    fn dispatch(&mut self, what: Event) -> Result<(), Violation> {
        match what {
            Event::ToSoloist {
                host,
                soloist,
                what,
            } => self.deliver_to_soloist(host, soloist, what)?,
            Event::GuardWakes { tree, wake } => self.guard_wakes(tree, wake),
            Event::InTree { tree, what } => self.in_tree(tree, what),
            Event::AtStore {
                host,
                soloist,
                sent,
                what,
            } => self.at_store(host, soloist, sent, what),
            Event::ToClientGo { host, run, what } => self.deliver_to_client_go(host, run, what)?,
            Event::ClientGoAtStore { host, run, what } => self.client_go_at_store(host, run, what),
            Event::Fault(fault) => self.inject(fault),
            Event::KubeletLooks { instance } => self.kubelet_looks(instance),
            Event::PodIsWatched { pod, host } => self.tell_pod_to(pod, host),
            Event::SoloistRuns { host, soloist } => self.soloist_runs(host, soloist)?,
            Event::ThawSoloist { host, soloist } => self.thaw_soloist(host, soloist),
            Event::ThawGuard { tree } => self.thaw_guard(tree),
            Event::ThawHost { host } => self.thaw_host(host),
            Event::Start { host, new_identity } => self.start(host, new_identity)?,
            Event::Calm => self.end_faults(),
            Event::PausesAreOver { until } => self.end_pauses(until),
            Event::CheckLeader => self.check_leader()?,
            Event::Probe => self.probe(),
            Event::ProbeEnds => self.probe_ends()?,
            Event::End => {}
        }
        Ok(())
    }

    fn start(&mut self, host: HostId, new_identity: bool) -> Result<(), Violation> {
        if self.is_client_go(host) {
            self.start_client_go(host);
            return Ok(());
        }
        if self.hosts[host].soloist.is_some() || self.hosts[host].done {
            return Ok(());
        }
        if self.hosts[host].frozen() || self.former_container_is_there(host) {
            let at = self.now + SECOND;
            self.queue.push(at, Event::Start { host, new_identity });
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
        let soloist = self.hosts[host].new_soloist(&mut self.rng, self.now, id, &self.plan, host);
        self.log(host, || format!("soloist {} starts", id.0));
        self.container_starts(host, soloist.instance);
        self.run_soloist(host, soloist)
    }

    /// A container's successor is started when nothing is left of it.
    fn former_container_is_there(&self, host: HostId) -> bool {
        let here = |t: &usize| self.trees[*t].host == host && self.trees[*t].has_processes();
        self.hosts[host].container && self.living.iter().any(here)
    }

    /// soloist is dead, and somebody starts it again: at once or after a while, or as the kubelet does.
    pub(crate) fn restart(&mut self, host: HostId, most: Nanos, new_identity: bool) {
        let here = &mut self.hosts[host];
        let after = match self.plan.crash_loop && here.container && !self.calm {
            true => {
                let doubled = (10 * SECOND) << here.ends_in_a_row.min(5);
                here.ends_in_a_row += 1;
                doubled.min(300 * SECOND)
            }
            false => self.rng.between(50 * MILLI, most),
        };
        self.queue
            .push(self.now + after, Event::Start { host, new_identity });
    }

    pub(crate) fn is_client_go(&self, host: HostId) -> bool {
        host >= self.plan.replicas
    }

    pub(crate) fn soloist(&self, host: HostId, id: SoloistId) -> Option<&Soloist> {
        self.hosts[host].soloist.as_ref().filter(|s| s.id == id)
    }

    pub(crate) fn send_to_soloist(
        &mut self,
        host: HostId,
        id: SoloistId,
        after: Nanos,
        what: ToSoloist,
    ) {
        self.queue.push(
            self.now + after,
            Event::ToSoloist {
                host,
                soloist: id,
                what,
            },
        );
    }

    /// How long it takes a process of this host to run again, or to feel a kill.
    pub(crate) fn wake_up_delay(&mut self, host: HostId) -> Nanos {
        let usual = self.rng.latency(WAKE_UP);
        self.stall_delay(host).map_or(usual, |d| d.max(usual))
    }

    /// How long it takes beyond that, if the host is stalled.
    pub(crate) fn stall_delay(&mut self, host: HostId) -> Option<Nanos> {
        let here = &self.hosts[host];
        if self.now >= here.stall_until {
            return None;
        }
        Some(match self.rng.percent(30) {
            true => here.stall,
            false => self.rng.between(0, here.stall),
        })
    }

    pub(crate) fn log(&mut self, host: HostId, text: impl FnOnce() -> String) {
        self.trace.line(self.now, &self.hosts[host].name, text);
    }

    /// The faults are over: what is broken is mended, what is dead comes back, what is frozen thaws.
    fn end_faults(&mut self) {
        self.calm = true;
        let bound = self.recovery_bound();
        self.trace
            .line(self.now, "---", || "calm: no more faults".to_owned());
        self.store.down_until = 0;
        for host in 0..self.hosts.len() {
            let here = &mut self.hosts[host];
            here.link = crate::hosts::Link::default();
            here.behaviour_until = 0;
            here.slow_exec_until = 0;
            here.stall_until = here.stall_until.min(self.now);
            let soloist = here.soloist.as_ref().map(|s| s.id);
            self.thaw_host(host);
            if let Some(soloist) = soloist {
                self.thaw_soloist(host, soloist);
            }
            let at = self.now + self.rng.between(MILLI, RESTART);
            let new_identity = self.rng.percent(50);
            self.queue.push(at, Event::Start { host, new_identity });
        }
        for tree in self.living.clone() {
            self.thaw_guard(tree);
            self.trees[tree].end_stuck_kill();
            let what = InTree::Reaped;
            self.queue.push(self.now, Event::InTree { tree, what });
        }
        self.stalled_request = None;
        self.end_pauses(self.now + bound);
        self.log(0, || format!("must lead within {} ms", bound / MILLI));
        self.queue.push(self.now + bound, Event::CheckLeader);
    }
}
