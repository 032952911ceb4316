//! Between a replica and the store: delays, losses, late arrivals, watches that lag or die.

use std::time::Duration;

use soloist_core::election::{Answer, Base, Purpose};
use soloist_core::ids::{InstanceId, Version};
use soloist_core::record::{Record, Snapshot};

use crate::check::Eraser;
use crate::clock::{MILLI, Nanos, SECOND, nanos};
use crate::hosts::Watch;
use crate::plan::LINK;
use crate::queue::{Event, HostId, Request, SoloistId, ToSoloist};
use crate::store::Change;
use crate::summary::Counter;
use crate::world::World;

/// What becomes of a message.
pub(crate) enum Delivery {
    Arrives {
        after: Nanos,
    },
    Lost,
    /// Lost, and the sender's connection breaks.
    Broken {
        after: Nanos,
    },
}

impl World {
    pub(crate) fn send(&mut self, host: HostId, soloist: SoloistId, what: Request) {
        if std::mem::take(&mut self.hosts[host].link.swallow_next) {
            self.log(host, || "its request is swallowed".to_owned());
            return;
        }
        match self.draw_delivery(host) {
            Delivery::Arrives { after } => {
                self.note_late(after);
                let event = Event::AtStore {
                    host,
                    soloist,
                    sent: self.now,
                    what,
                };
                self.queue.push(self.now + after, event);
            }
            Delivery::Lost => self.summary.count(Counter::RequestLost),
            Delivery::Broken { after } => {
                self.summary.count(Counter::RequestLost);
                self.answer_in(host, soloist, after, &what, Answer::Unavailable);
            }
        }
    }

    pub(crate) fn draw_delivery(&mut self, host: HostId) -> Delivery {
        let now = self.now;
        let link = &self.hosts[host].link;
        let (cut, lossy, slow) = (
            now < link.cut_until,
            now < link.lossy_until,
            now < link.slow_until,
        );
        if cut {
            let healed = link.cut_until - now;
            return match self.rng.between(0, 9) {
                0..=4 => Delivery::Lost,
                5..=7 => Delivery::Arrives {
                    after: healed + self.rng.between(MILLI, 2 * SECOND),
                },
                _ => Delivery::Broken {
                    after: self.rng.between(MILLI, SECOND),
                },
            };
        }
        let lost = if lossy { 300 } else { u64::from(!self.calm) };
        if self.rng.per_mille(lost) {
            self.note_disturbance(host, now);
            self.stalled_request = None;
            return match self.rng.percent(50) {
                true => Delivery::Lost,
                false => Delivery::Broken {
                    after: self.rng.between(MILLI, SECOND),
                },
            };
        }
        let after = if slow {
            self.rng
                .between(MILLI, nanos(self.hosts[host].lease(&self.plan, host)) / 4)
        } else {
            self.rng.between(MILLI / 5, LINK)
        };
        Delivery::Arrives { after }
    }

    fn answer_in(
        &mut self,
        host: HostId,
        soloist: SoloistId,
        after: Nanos,
        request: &Request,
        answer: Answer,
    ) {
        let what = match request {
            Request::Read { op } | Request::Write { op, .. } => ToSoloist::Answer {
                op: *op,
                answer,
                epoch: self.store.epoch,
            },
            Request::Watch { watch, .. } => ToSoloist::WatchBroken { watch: *watch },
        };
        self.send_to_soloist(host, soloist, after, what);
    }

    pub(crate) fn at_store(
        &mut self,
        host: HostId,
        soloist: SoloistId,
        sent: Nanos,
        request: Request,
    ) {
        if self.now < self.store.down_until {
            if self.rng.percent(50) {
                let answer = self.answer_of_a_store_that_is_down();
                self.answer_in(host, soloist, MILLI, &request, answer);
            }
            return;
        }
        if self.now < self.hosts[host].link.refused_until {
            self.answer_in(host, soloist, MILLI, &request, Answer::Refused);
            return;
        }
        match &request {
            Request::Read { .. } => {
                let change = self.store.read();
                let snapshot = self.snapshot_of(&change);
                self.answer(host, soloist, &request, Answer::Read(snapshot));
            }
            Request::Write {
                base,
                record,
                purpose,
                base_epoch,
                ..
            } => {
                let limit = nanos(self.plan.timings[host].attempt_limit());
                if self.now > sent + limit {
                    self.summary.count(Counter::LateWrite);
                }
                let stamp = self.hosts[host].wall(sent);
                let before = self.store.record().cloned();
                let answer = self
                    .store
                    .write(&mut self.rng, *base, record.clone(), stamp);
                let age = (self.now - sent) / MILLI;
                self.log(host, || {
                    format!("write on {base:?}, sent {age} ms ago: {answer:?}")
                });
                if let Answer::Written(version) = answer {
                    let stale = *base_epoch < self.store.epoch && *base != Base::Absent;
                    if !stale {
                        self.note_taken(host, sent, before.as_ref(), *purpose);
                    }
                    self.note_written(before, record, *purpose, stale);
                    self.tell_watchers(version);
                }
                self.answer(host, soloist, &request, answer);
            }
            Request::Watch { watch, after } => {
                let watch = *watch;
                let now = self.now;
                let Some(running) = self.hosts[host]
                    .soloist
                    .as_mut()
                    .filter(|s| s.id == soloist)
                else {
                    return;
                };
                if running.listens_to != Some(watch) {
                    return;
                }
                if *after > self.store.newest() {
                    // "Too large resource version": the store has been set back since.
                    self.answer_in(host, soloist, LINK, &request, Answer::Unknown);
                    return;
                }
                running.watch = Some(Watch {
                    id: watch,
                    last_delivery: now,
                });
                let missed: Vec<_> = self.store.changes_after(*after).cloned().collect();
                for change in missed {
                    self.deliver(host, &change);
                }
                self.tell_pods(host);
            }
        }
    }

    /// An error, or a plea for patience that nobody can rely on: whoever is in front of the store may ask for more than is needed.
    fn answer_of_a_store_that_is_down(&mut self) -> Answer {
        match self.rng.percent(30) {
            true => {
                let wait = self.rng.between(SECOND, 60 * SECOND);
                self.note_patience(wait);
                Answer::Throttled {
                    wait: Duration::from_nanos(wait),
                }
            }
            false => Answer::Unavailable,
        }
    }

    /// For the checks: what a write means for the terms. It may have gone through although it was meant for a state
    /// that the store has lost.
    fn note_written(
        &mut self,
        before: Option<Record>,
        record: &Record,
        purpose: Purpose,
        stale: bool,
    ) {
        let Some(signature) = &record.signature else {
            return;
        };
        let holding = (signature.instance, signature.term);
        match purpose {
            Purpose::Acquire => {
                let epoch = self.store.epoch;
                self.checks.terms.landed(holding, self.now, epoch);
            }
            Purpose::Renew => self.checks.renewed(holding),
            Purpose::Release => {}
        }
        if stale {
            self.note_erased_client_go(before.as_ref());
            self.note_erased(before, Eraser::StaleWrite);
            self.checks.claimed_by_anybody(self.now);
        }
    }

    /// The store asks somebody to wait, from when that one hears of it. Nobody waits for longer than a lease.
    pub(crate) fn note_patience(&mut self, wait: Nanos) {
        let lease = self.plan.longest_lease();
        self.note_late(wait.min(lease) + lease / 100 + SECOND);
    }

    /// Something is under way that arrives then, or somebody waits until then.
    pub(crate) fn note_late(&mut self, after: Nanos) {
        self.late_until = self.late_until.max(self.now + after);
    }

    fn answer(&mut self, host: HostId, soloist: SoloistId, request: &Request, answer: Answer) {
        let landed = matches!(answer, Answer::Written(_));
        let deaf = self.now < self.hosts[host].link.deaf_until;
        let delivery = match deaf {
            true if self.rng.percent(50) => Delivery::Lost,
            true => Delivery::Broken { after: MILLI },
            false => self.draw_delivery(host),
        };
        match delivery {
            Delivery::Arrives { after } => self.answer_in(host, soloist, after, request, answer),
            Delivery::Lost => {
                if landed {
                    self.summary.count(Counter::AnswerLost);
                }
            }
            Delivery::Broken { after } => {
                if landed {
                    self.summary.count(Counter::AnswerLost);
                }
                self.answer_in(host, soloist, after, request, Answer::Unknown);
            }
        }
    }

    /// Everyone who watches hears of the change that made this version.
    pub(crate) fn tell_watchers(&mut self, version: Version) {
        let before = Version::new(version.get() - 1);
        let changes: Vec<_> = self.store.changes_after(before).cloned().collect();
        for change in changes {
            for host in 0..self.hosts.len() {
                self.deliver(host, &change);
            }
        }
    }

    fn deliver(&mut self, host: HostId, change: &Change) {
        let now = self.now;
        let Some(soloist) = &self.hosts[host].soloist else {
            return;
        };
        let Some(watch) = &soloist.watch else {
            return;
        };
        let (id, watch, last) = (soloist.id, watch.id, watch.last_delivery);
        let lags = now < self.hosts[host].link.watch_lags_until;
        let lease = nanos(self.hosts[host].lease(&self.plan, host));
        match self.draw_delivery(host) {
            Delivery::Arrives { after } => {
                let lag = match lags {
                    true => self.rng.between(0, lease),
                    false => 0,
                };
                // One connection: nothing overtakes.
                let at = (now + after + lag).max(last + 1);
                let snapshot = self.snapshot_of(change);
                if let Some(open) = self.watch_mut(host) {
                    open.last_delivery = at;
                }
                let what = ToSoloist::Watch {
                    watch,
                    snapshot,
                    epoch: self.store.epoch,
                };
                self.send_to_soloist(host, id, at - now, what);
            }
            Delivery::Lost => self.drop_watch(host),
            Delivery::Broken { after } => {
                self.drop_watch(host);
                let after = after.max(last.saturating_sub(now) + 1);
                self.send_to_soloist(host, id, after, ToSoloist::WatchBroken { watch });
            }
        }
    }

    /// On one machine, everyone who watches sees that the holder's processes are gone.
    pub(crate) fn announce_dead_holder(&mut self, instance: InstanceId) {
        if self.plan.one_machine && self.holder_gone(instance) {
            let change = self.store.read();
            for host in 0..self.hosts.len() {
                self.deliver(host, &change);
            }
        }
    }

    /// No soloist and no guard of this instance lives.
    fn holder_gone(&self, instance: InstanceId) -> bool {
        let soloist = self
            .hosts
            .iter()
            .any(|h| h.soloist.as_ref().is_some_and(|s| s.instance == instance));
        let guard = self
            .living
            .iter()
            .any(|t| self.trees[*t].instance == instance && self.trees[*t].guard.alive());
        !soloist && !guard
    }

    fn watch_mut(&mut self, host: HostId) -> Option<&mut Watch> {
        self.hosts[host].soloist.as_mut()?.watch.as_mut()
    }

    pub(crate) fn drop_watch(&mut self, host: HostId) {
        if let Some(soloist) = &mut self.hosts[host].soloist
            && let Some(watch) = soloist.watch.take()
        {
            // What it has sent still arrives.
            self.late_until = self.late_until.max(watch.last_delivery);
        }
    }

    fn snapshot_of(&self, change: &Change) -> Snapshot {
        let mut snapshot = change.snapshot();
        let signed = change.record.as_ref().and_then(|r| r.signed());
        snapshot.holder_gone =
            self.plan.one_machine && signed.is_some_and(|s| self.holder_gone(s.instance));
        snapshot
    }
}
