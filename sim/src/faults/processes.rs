//! Faults of processes and connections: they break, die, freeze, or are told to stop.

use crate::clock::{MILLI, Nanos, SECOND, nanos};
use crate::gaps::Cause;
use crate::queue::{Event, HostId, ToSoloist};
use crate::world::{StalledRequest, World};

impl World {
    pub(super) fn break_watch(&mut self, host: HostId) -> bool {
        let Some(soloist) = &mut self.hosts[host].soloist else {
            return false;
        };
        let Some(watch) = soloist.listens_to else {
            return false;
        };
        soloist.watch = None;
        let id = soloist.id;
        self.send_to_soloist(host, id, MILLI, ToSoloist::WatchBroken { watch });
        true
    }

    /// SIGKILL of soloist. In a container everything else dies with it; elsewhere the guard is left.
    pub(crate) fn crash(&mut self, host: HostId, new_identity: bool) -> bool {
        if self.hosts[host].frozen() {
            return false;
        }
        if self.is_client_go(host) {
            return self.crash_client_go(host);
        }
        let Some(soloist) = self.hosts[host].soloist.take() else {
            return false;
        };
        for held in &soloist.trees {
            self.trees[held.tree].end_cause.get_or_insert(Cause::Crash);
        }
        self.close_sockets(host, soloist.trees.iter().map(|t| t.tree));
        self.announce_dead_holder(soloist.instance);
        self.container_ends(soloist.instance);
        // Same name, but another Pod: a StatefulSet's.
        if !new_identity && self.rng.percent(30) {
            self.next_pod += 1;
            self.hosts[host].pod = self.next_pod;
        }
        self.restart(host, 6 * SECOND, new_identity);
        true
    }

    pub(super) fn ask(
        &mut self,
        host: HostId,
        wishes: impl IntoIterator<Item = ToSoloist>,
    ) -> bool {
        if self.is_client_go(host) {
            return self.stop_client_go(host);
        }
        let Some(id) = self.hosts[host].soloist.as_ref().map(|s| s.id) else {
            return false;
        };
        let mut after = 0;
        for wish in wishes {
            after += self.rng.between(MILLI, 500 * MILLI);
            self.send_to_soloist(host, id, after, wish);
        }
        self.asked_until = self.asked_until.max(self.now + after);
        true
    }

    /// The preStop hook tells soloist that its end is near. Mostly SIGTERM follows; a hook may also fail, or give up.
    pub(super) fn begin_hook(&mut self, host: HostId, until: Nanos) -> bool {
        if self.is_client_go(host) {
            return false;
        }
        let Some(id) = self.hosts[host].soloist.as_ref().map(|s| s.id) else {
            return false;
        };
        let end = match self.rng.percent(70) {
            true => ToSoloist::StopSignal,
            false => ToSoloist::HookEnds,
        };
        self.send_to_soloist(host, id, MILLI, ToSoloist::HookBegins);
        self.send_to_soloist(host, id, until - self.now, end);
        self.hooks_until = self.hooks_until.max(until);
        true
    }

    pub(super) fn freeze_soloist(&mut self, host: HostId, until: Nanos) -> bool {
        let Some(soloist) = &mut self.hosts[host].soloist else {
            return false;
        };
        soloist.frozen = true;
        let soloist = soloist.id;
        self.queue.push(until, Event::ThawSoloist { host, soloist });
        true
    }

    /// The whole host stops. If it is a paused virtual machine, its clock does too.
    pub(super) fn freeze_host(&mut self, host: HostId, until: Nanos, paused: bool) -> bool {
        if self.hosts[host].frozen() || self.plan.one_machine || self.is_client_go(host) {
            return false;
        }
        self.hosts[host].frozen_since = Some(self.now);
        self.hosts[host].paused = paused;
        self.queue.push(until, Event::ThawHost { host });
        true
    }

    /// Wake-ups and kills take up to this much of the lease, which is more than the margins have room for at its
    /// upper end.
    pub(super) fn stall(&mut self, host: HostId, until: Nanos) -> bool {
        if self.is_client_go(host) {
            return false;
        }
        let lease = nanos(self.hosts[host].lease(&self.plan, host));
        let most = self
            .rng
            .pick(&[lease / 50, lease / 20, lease / 10, lease / 4]);
        let stall = self.rng.between(most / 10, most);
        let here = &mut self.hosts[host];
        // What is under way still takes as long as it was to take.
        let before = match self.now <= here.stall_until + 2 * here.stall {
            true => here.stall,
            false => 0,
        };
        here.stall = stall.max(before);
        here.stall_until = until.max(here.stall_until);
        // It shows when a lease ends meanwhile.
        if self.rng.percent(60) {
            self.hosts[host].link.cut_until = until;
        }
        true
    }

    /// Exactly one request of a leader vanishes. If nothing else is wrong within a lease before and after, it costs
    /// nothing.
    pub(super) fn swallow_a_request(&mut self) -> bool {
        let Some(host) = self.leading_soloist() else {
            return false;
        };
        self.hosts[host].link.swallow_next = true;
        let quiet = self.hosts.iter().all(|h| h.disturbed_until < self.now);
        let works = self.living.iter().any(|t| {
            let tree = &self.trees[*t];
            tree.host == host && tree.works() && tree.ready
        });
        let until = self.now + self.plan.longest_lease();
        // Two are not one.
        let quiet = quiet && self.stalled_request.is_none();
        self.stalled_request = (quiet && works).then_some(StalledRequest { host, until });
        true
    }

    pub(super) fn freeze_guard(&mut self, host: HostId, until: Nanos) -> bool {
        let Some(tree) = self.guarded_tree(host) else {
            return false;
        };
        self.trees[tree].guard.frozen = true;
        self.queue.push(until, Event::ThawGuard { tree });
        true
    }

    pub(super) fn kill_a_guard(&mut self, host: HostId) -> bool {
        let Some(tree) = self
            .guarded_tree(host)
            .filter(|_| !self.hosts[host].frozen())
        else {
            return false;
        };
        self.kill_guard(tree);
        true
    }

    pub(super) fn guarded_tree(&self, host: HostId) -> Option<usize> {
        let held = &self.hosts[host].soloist.as_ref()?.trees;
        let guarded = |tree: &usize| self.trees[*tree].guard.alive();
        held.iter().map(|t| t.tree).find(guarded)
    }
}
