//! Between a replica and the store: delays, losses, late arrivals, watches that lag or die.

use soloist_core::election::Answer;
use soloist_core::ids::{InstanceId, Version};
use soloist_core::record::Snapshot;

use crate::clock::{MILLI, Nanos, SECOND, nanos};
use crate::hosts::Watch;
use crate::queue::{Happening, HostId, Request, SoloistId, ToSoloist};
use crate::store::Change;
use crate::summary::Counter;
use crate::world::World;

/// What becomes of a message.
enum Fate {
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
        match self.fate(host) {
            Fate::Arrives { after } => {
                let happening = Happening::AtStore {
                    host,
                    soloist,
                    sent: self.now,
                    what,
                };
                self.queue.push(self.now + after, happening);
            }
            Fate::Lost => self.summary.count(Counter::RequestLost),
            Fate::Broken { after } => {
                self.summary.count(Counter::RequestLost);
                self.answer_in(host, soloist, after, &what, Answer::Unavailable);
            }
        }
    }

    fn fate(&mut self, host: HostId) -> Fate {
        let now = self.now;
        let link = &self.hosts[host].link;
        let (cut, lossy, slow) = (
            now < link.cut_until,
            now < link.lossy_until,
            now < link.slow_until,
        );
        if cut {
            let healed = link.cut_until - now;
            return match self.dice.between(0, 9) {
                0..=4 => Fate::Lost,
                5..=7 => Fate::Arrives {
                    after: healed + self.dice.between(MILLI, 2 * SECOND),
                },
                _ => Fate::Broken {
                    after: self.dice.between(MILLI, SECOND),
                },
            };
        }
        let lost = if lossy { 300 } else { u64::from(!self.calm) };
        if self.dice.per_mille(lost) {
            self.trouble(host, now);
            return match self.dice.percent(50) {
                true => Fate::Lost,
                false => Fate::Broken {
                    after: self.dice.between(MILLI, SECOND),
                },
            };
        }
        let after = if slow {
            self.dice
                .between(MILLI, nanos(self.hosts[host].lease(&self.plan, host)) / 4)
        } else {
            self.dice.between(MILLI / 5, 8 * MILLI)
        };
        Fate::Arrives { after }
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
            Request::Read { op } | Request::Write { op, .. } => {
                ToSoloist::Answer { op: *op, answer }
            }
            Request::Watch { epoch, .. } => ToSoloist::WatchBroken { epoch: *epoch },
        };
        self.tell_soloist(host, soloist, after, what);
    }

    pub(crate) fn at_store(
        &mut self,
        host: HostId,
        soloist: SoloistId,
        sent: Nanos,
        request: Request,
    ) {
        if self.now < self.store.down_until {
            if self.dice.percent(50) {
                self.answer_in(host, soloist, MILLI, &request, Answer::Unavailable);
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
                let snapshot = self.as_seen_by(host, &change);
                self.answer(host, soloist, &request, Answer::Read(snapshot));
            }
            Request::Write { base, record, .. } => {
                let limit = nanos(self.plan.timings[host].attempt_limit());
                if self.now > sent + limit {
                    self.summary.count(Counter::LateWrite);
                }
                let stamp = self.hosts[host].wall(sent);
                let answer = self
                    .store
                    .write(&mut self.dice, *base, record.clone(), stamp);
                let age = (self.now - sent) / MILLI;
                self.log(host, || {
                    format!("write on {base:?}, sent {age} ms ago: {answer:?}")
                });
                if let Answer::Written(version) = answer {
                    self.tell_watchers(version);
                }
                self.answer(host, soloist, &request, answer);
            }
            Request::Watch { epoch, after } => {
                let epoch = *epoch;
                let now = self.now;
                let Some(running) = self.hosts[host]
                    .soloist
                    .as_mut()
                    .filter(|s| s.id == soloist)
                else {
                    return;
                };
                if epoch != running.watch_epoch {
                    return;
                }
                running.watch = Some(Watch {
                    epoch,
                    last_delivery: now,
                });
                let missed: Vec<_> = self.store.changes_after(*after).cloned().collect();
                for change in missed {
                    self.deliver(host, &change);
                }
            }
        }
    }

    fn answer(&mut self, host: HostId, soloist: SoloistId, request: &Request, answer: Answer) {
        let landed = matches!(answer, Answer::Written(_));
        let deaf = self.now < self.hosts[host].link.deaf_until;
        let fate = match deaf {
            true if self.dice.percent(50) => Fate::Lost,
            true => Fate::Broken { after: MILLI },
            false => self.fate(host),
        };
        match fate {
            Fate::Arrives { after } => self.answer_in(host, soloist, after, request, answer),
            Fate::Lost => {
                if landed {
                    self.summary.count(Counter::AnswerLost);
                }
            }
            Fate::Broken { after } => {
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
        let (id, epoch, last) = (soloist.id, watch.epoch, watch.last_delivery);
        let lags = now < self.hosts[host].link.watch_lags_until;
        let lease = nanos(self.hosts[host].lease(&self.plan, host));
        match self.fate(host) {
            Fate::Arrives { after } => {
                let lag = match lags {
                    true => self.dice.between(0, lease),
                    false => 0,
                };
                // One connection: nothing overtakes.
                let at = (now + after + lag).max(last + 1);
                let snapshot = self.as_seen_by(host, change);
                if let Some(watch) = self.watch_mut(host) {
                    watch.last_delivery = at;
                }
                let what = ToSoloist::Watch { epoch, snapshot };
                self.tell_soloist(host, id, at - now, what);
            }
            Fate::Lost => self.drop_watch(host),
            Fate::Broken { after } => {
                self.drop_watch(host);
                let after = after.max(last.saturating_sub(now) + 1);
                self.tell_soloist(host, id, after, ToSoloist::WatchBroken { epoch });
            }
        }
    }

    /// On one machine, everyone who watches sees that the holder's processes are gone.
    pub(crate) fn show_dead_holder(&mut self, instance: InstanceId) {
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
            .any(|t| self.trees[*t].instance == instance && self.trees[*t].guard.alive);
        !soloist && !guard
    }

    fn watch_mut(&mut self, host: HostId) -> Option<&mut Watch> {
        self.hosts[host].soloist.as_mut()?.watch.as_mut()
    }

    pub(crate) fn drop_watch(&mut self, host: HostId) {
        if let Some(soloist) = &mut self.hosts[host].soloist {
            soloist.watch = None;
        }
    }

    #[cfg_attr(not(feature = "mutants"), allow(unused_variables))]
    fn as_seen_by(&self, host: HostId, change: &Change) -> Snapshot {
        let mut snapshot = change.snapshot();
        let signed = change.record.as_ref().and_then(|r| r.signed());
        snapshot.holder_gone =
            self.plan.one_machine && signed.is_some_and(|s| self.holder_gone(s.instance));
        #[cfg(feature = "mutants")]
        {
            snapshot.stamped_end = self.stamped_end(host, change);
        }
        snapshot
    }

    /// When the record ends on this host's clock, if one believes its timestamps.
    #[cfg(feature = "mutants")]
    fn stamped_end(&self, host: HostId, change: &Change) -> Option<soloist_core::time::Moment> {
        let record = change.record.as_ref()?;
        record.holder.as_ref()?;
        let here = &self.hosts[host];
        let lease = nanos(record.promise(self.plan.timings[host].lease()));
        let left = change.renewed_at + lease as i64 - here.wall(self.now);
        let now = here.clock.read(self.now);
        let length = std::time::Duration::from_nanos(left.unsigned_abs());
        Some(if left < 0 { now - length } else { now + length })
    }
}
