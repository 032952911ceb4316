//! Processes and hosts that do not run for a while, and what they find when they run again.

use crate::check::Violation;
use crate::hosts::Soloist;
use crate::queue::{Event, HostId, SoloistId, ToSoloist};
use crate::world::World;

impl World {
    /// Where things wait that happen to a process that does not run.
    pub(crate) fn held_back_for(&mut self, what: &Event) -> Option<&mut Vec<Event>> {
        match what {
            Event::ToSoloist {
                host: host_id,
                soloist,
                ..
            } => {
                let host = &self.hosts[*host_id];
                if host.frozen() {
                    return Some(&mut self.hosts[*host_id].held_back);
                }
                let running = host.soloist.as_ref().filter(|s| s.id == *soloist)?;
                if !running.frozen && !running.asleep && !self.soloist_sleeps_on(*host_id) {
                    return None;
                }
                let running = self.hosts[*host_id].soloist.as_mut()?;
                Some(&mut running.held_back)
            }
            Event::GuardWakes { tree, .. } | Event::InTree { tree, .. } => {
                let host = &mut self.hosts[self.trees[*tree].host];
                host.frozen().then_some(&mut host.held_back)
            }
            _ => None,
        }
    }

    /// On a stalled host it takes soloist a while until it runs, whatever has happened by then.
    fn soloist_sleeps_on(&mut self, host: HostId) -> bool {
        let Some(after) = self.stall_delay(host) else {
            return false;
        };
        let at = self.now + after;
        let Some(soloist) = &mut self.hosts[host].soloist else {
            return false;
        };
        soloist.asleep = true;
        let soloist = soloist.id;
        self.queue.push(at, Event::SoloistRuns { host, soloist });
        true
    }

    /// It runs, and finds everything that has happened, its timers first or last.
    pub(crate) fn soloist_runs(&mut self, host: HostId, id: SoloistId) -> Result<(), Violation> {
        let frozen = self.hosts[host].frozen();
        let Some(soloist) = self.hosts[host].soloist.as_mut().filter(|s| s.id == id) else {
            return Ok(());
        };
        soloist.asleep = false;
        if soloist.frozen || frozen {
            return Ok(());
        }
        let missed = std::mem::take(&mut soloist.held_back);
        for what in self.in_some_order(missed) {
            if let Event::ToSoloist { what, .. } = what {
                self.deliver_to_soloist(host, id, what)?;
            }
        }
        // It is awake, so what is due is done without another wait.
        let now = self.hosts[host].clock.read(self.now);
        let due = |s: &&Soloist| s.node.next_deadline().is_some_and(|at| at <= now);
        if let Some(soloist) = self.soloist(host, id).filter(due) {
            let generation = soloist.wake;
            self.deliver_to_soloist(host, id, ToSoloist::Wake { generation })?;
        }
        Ok(())
    }

    /// Its timers may come before or after the rest, which stays in order.
    fn in_some_order(&mut self, mut missed: Vec<Event>) -> Vec<Event> {
        let timers_first = self.rng.percent(50);
        missed.sort_by_key(|what| {
            let timer = matches!(
                what,
                Event::ToSoloist {
                    what: ToSoloist::Wake { .. },
                    ..
                }
            );
            timer != timers_first
        });
        missed
    }

    /// soloist may run again, and does so in a moment; nothing overtakes what it has missed.
    fn wake_soloist(&mut self, host: HostId, soloist: SoloistId) {
        let at = self.now + self.wake_up_delay(host);
        self.queue.push(at, Event::SoloistRuns { host, soloist });
    }

    pub(crate) fn thaw_soloist(&mut self, host: HostId, id: SoloistId) {
        let Some(soloist) = self.hosts[host].soloist.as_mut().filter(|s| s.id == id) else {
            return;
        };
        if std::mem::take(&mut soloist.frozen) {
            soloist.asleep = true;
            self.wake_soloist(host, id);
            self.log(host, || "soloist thaws".to_owned());
        }
    }

    pub(crate) fn thaw_host(&mut self, host: HostId) {
        let here = &mut self.hosts[host];
        let Some(since) = here.frozen_since.take() else {
            return;
        };
        if std::mem::take(&mut here.paused) {
            here.clock.lose(self.now, self.now - since);
            if self.late_until > since {
                self.late_until += self.now - since;
            }
        }
        here.thawed_at = self.now;
        let missed = std::mem::take(&mut here.held_back);
        let (for_soloist, for_others): (Vec<_>, Vec<_>) = missed
            .into_iter()
            .partition(|what| matches!(what, Event::ToSoloist { .. }));
        if let Some(soloist) = &mut here.soloist {
            let id = soloist.id;
            // What was meant for an earlier process has nobody to come to.
            let for_this_one =
                |what: &Event| matches!(what, Event::ToSoloist { soloist, .. } if *soloist == id);
            let missed = for_soloist.into_iter().filter(for_this_one);
            soloist.held_back.extend(missed);
            soloist.asleep = true;
            self.wake_soloist(host, id);
        }
        let mut at = self.now + self.wake_up_delay(host);
        for what in for_others {
            at += self.rng.between(100, 10_000);
            self.queue.push(at, what);
        }
        self.log(host, || "host thaws".to_owned());
    }
}
