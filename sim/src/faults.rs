//! The faults: what is done to the world, and to whom.

use soloist_core::guard;
use soloist_core::record::Record;
use soloist_core::replica::Event;

use crate::check::Violation;
use crate::clock::{MILLI, Nanos, SECOND, nanos};
use crate::queue::{Happening, HostId, InTree, ToGuard, ToSoloist};
use crate::store::stranger;
use crate::summary::Counter;
use crate::tree::Behaviour;
use crate::world::World;

/// The longest duration that an operator writes into the record here.
pub(crate) const MOST_EDITED_SECONDS: u64 = 30;

macro_rules! faults {
    ($($name:ident),* $(,)?) => {
        /// A kind of fault; [`Counter`] says what each is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Fault { $($name),* }

        impl Fault {
            pub(crate) const ALL: &'static [Self] = &[$(Self::$name),*];

            const fn counter(self) -> Counter {
                match self { $(Self::$name => Counter::$name),* }
            }
        }
    };
}

faults! {
    SlowLink, LossyLink, Deaf, CutLink, CutMany, StoreDown, Refused,
    WatchLags, WatchDiesSilently, WatchBreaks,
    CrashSameIdentity, CrashNewIdentity, StopSignal, TwoStopSignals, HandOver,
    FreezeSoloist, FreezeGuard, FreezeHost, FreezeSoloistAndGuard, KillGuard,
    LeaseDeleted, LeaseEmptied, LeaseTouched, DurationEdited, HolderEdited,
    SignatureStripped, FormerRecordRestored, ReleaseForged,
    SlowDrain, IgnoresStop, CrashesAtOnce, CrashesLater, NeverReady, Sick, Descendants, CannotSpawn,
}

impl World {
    pub(crate) fn inject(&mut self, fault: Fault) -> Result<(), Violation> {
        let host = match self.leading_host() {
            Some(host) if self.dice.percent(65) => host,
            Some(_) | None => self.dice.index(self.hosts.len()),
        };
        let lease = nanos(self.hosts[host].lease(&self.plan, host));
        let length = self.dice.between(lease / 20, lease * 5 / 2);
        let until = self.now + length;
        self.log(host, || {
            format!("FAULT {fault:?} for {} ms", length / MILLI)
        });
        if self.befall(fault, host, until)? {
            self.summary.count(fault.counter());
        }
        if !matches!(
            fault,
            Fault::StopSignal | Fault::HandOver | Fault::SlowDrain | Fault::IgnoresStop
        ) {
            for host in 0..self.hosts.len() {
                self.trouble(host, until);
            }
        }
        Ok(())
    }

    /// Until then, and for as long as it takes to get over it, a planned stop may be cut short.
    pub(crate) fn trouble(&mut self, host: HostId, until: Nanos) {
        let over = until + self.plan.longest_lease();
        let host = &mut self.hosts[host];
        host.troubled_until = host.troubled_until.max(over);
    }

    /// `false` if there was nothing to do it to.
    fn befall(&mut self, fault: Fault, host: HostId, until: Nanos) -> Result<bool, Violation> {
        let link = &mut self.hosts[host].link;
        match fault {
            Fault::SlowLink => link.slow_until = until,
            Fault::LossyLink => link.lossy_until = until,
            Fault::Deaf => link.deaf_until = until,
            Fault::CutLink => link.cut_until = until,
            Fault::CutMany => {
                for host in 0..self.hosts.len() {
                    if self.dice.percent(60) {
                        self.hosts[host].link.cut_until = until;
                    }
                }
            }
            Fault::StoreDown => self.store.down_until = until,
            Fault::Refused => link.refused_until = until,
            Fault::WatchLags => link.watch_lags_until = until,
            Fault::WatchDiesSilently => self.drop_watch(host),
            Fault::WatchBreaks => return Ok(self.break_watch(host)),
            Fault::CrashSameIdentity => return Ok(self.crash(host, false)),
            Fault::CrashNewIdentity => return Ok(self.crash(host, true)),
            Fault::StopSignal => return Ok(self.ask(host, &[Event::StopSignal])),
            Fault::TwoStopSignals => {
                return Ok(self.ask(host, &[Event::StopSignal, Event::StopSignal]));
            }
            Fault::HandOver => return Ok(self.ask(host, &[Event::HandOver])),
            Fault::FreezeSoloist => return Ok(self.freeze_soloist(host, until)),
            Fault::FreezeGuard => return Ok(self.freeze_guard(host, until)),
            Fault::FreezeSoloistAndGuard => {
                return Ok(self.freeze_guard(host, until) && self.freeze_soloist(host, until));
            }
            Fault::FreezeHost => {
                if self.hosts[host].frozen() || self.plan.one_machine {
                    return Ok(false);
                }
                self.hosts[host].frozen_since = Some(self.now);
                self.queue.push(until, Happening::ThawHost { host });
            }
            Fault::KillGuard => return Ok(self.kill_guard(host)),
            Fault::LeaseDeleted
            | Fault::LeaseEmptied
            | Fault::LeaseTouched
            | Fault::DurationEdited
            | Fault::HolderEdited
            | Fault::SignatureStripped
            | Fault::FormerRecordRestored
            | Fault::ReleaseForged => return Ok(self.operate(fault)),
            Fault::SlowDrain
            | Fault::IgnoresStop
            | Fault::CrashesAtOnce
            | Fault::CrashesLater
            | Fault::NeverReady
            | Fault::Sick
            | Fault::Descendants
            | Fault::CannotSpawn => self.spoil_children(fault, host, until),
        }
        Ok(true)
    }

    fn break_watch(&mut self, host: HostId) -> bool {
        let Some(soloist) = &mut self.hosts[host].soloist else {
            return false;
        };
        soloist.watch = None;
        let (id, epoch) = (soloist.id, soloist.watch_epoch);
        self.tell_soloist(host, id, MILLI, ToSoloist::WatchBroken { epoch });
        true
    }

    /// SIGKILL of soloist. In a container everything else dies with it; elsewhere the guard is left.
    fn crash(&mut self, host: HostId, new_identity: bool) -> bool {
        if self.hosts[host].frozen() {
            return false;
        }
        let Some(soloist) = self.hosts[host].soloist.take() else {
            return false;
        };
        if let Some(tree) = soloist.tree.filter(|t| !self.trees[*t].over) {
            let after = self.dice.latency(2 * MILLI);
            if self.hosts[host].container {
                let here = &mut self.trees[tree];
                here.guard.alive = false;
                if !here.born {
                    here.over = true;
                }
                let what = InTree::Kill { by_soloist: false };
                self.queue
                    .push(self.now + after, Happening::InTree { tree, what });
            } else {
                let input = guard::Input::SoloistGone;
                self.tell_guard(tree, after, ToGuard::Input(input));
            }
        }
        self.show_dead_holder(soloist.instance);
        let back = self.now + self.dice.between(50 * MILLI, 6 * SECOND);
        // Same name, but another Pod: a StatefulSet's.
        if !new_identity && self.dice.percent(30) {
            self.next_pod += 1;
            self.hosts[host].pod = self.next_pod;
        }
        self.queue
            .push(back, Happening::Start { host, new_identity });
        true
    }

    fn ask(&mut self, host: HostId, events: &[Event]) -> bool {
        let Some(id) = self.hosts[host].soloist.as_ref().map(|s| s.id) else {
            return false;
        };
        let mut after = 0;
        for event in events {
            after += self.dice.between(MILLI, 500 * MILLI);
            self.tell_soloist(host, id, after, ToSoloist::Asked(event.clone()));
        }
        true
    }

    fn freeze_soloist(&mut self, host: HostId, until: Nanos) -> bool {
        let Some(soloist) = &mut self.hosts[host].soloist else {
            return false;
        };
        soloist.frozen = true;
        let soloist = soloist.id;
        self.queue
            .push(until, Happening::ThawSoloist { host, soloist });
        true
    }

    fn freeze_guard(&mut self, host: HostId, until: Nanos) -> bool {
        let Some(tree) = self.guarded_tree(host) else {
            return false;
        };
        self.trees[tree].guard.frozen = true;
        self.queue.push(until, Happening::ThawGuard { tree });
        true
    }

    fn kill_guard(&mut self, host: HostId) -> bool {
        let Some(tree) = self
            .guarded_tree(host)
            .filter(|_| !self.hosts[host].frozen())
        else {
            return false;
        };
        self.guard_dies(tree);
        true
    }

    fn guarded_tree(&self, host: HostId) -> Option<usize> {
        let tree = self.hosts[host].soloist.as_ref()?.tree?;
        let here = &self.trees[tree];
        (here.guard.alive && !here.over).then_some(tree)
    }

    /// An operator at the record.
    fn operate(&mut self, fault: Fault) -> bool {
        let before = self.store.record().cloned();
        let dice = &mut self.dice;
        let done = match fault {
            Fault::LeaseDeleted => self.store.delete(dice),
            Fault::LeaseEmptied => self.store.edit(dice, |r| r.holder = None),
            Fault::DurationEdited => {
                self.duration_edited = true;
                let seconds = dice.pick(&[0, 1, 2, 5, MOST_EDITED_SECONDS as i64]);
                self.store
                    .edit(dice, |r| r.duration_seconds = Some(seconds))
            }
            Fault::HolderEdited => {
                let seconds = dice.pick(&[None, Some(1), Some(5)]);
                self.store.edit(dice, |r| {
                    r.holder = Some(stranger());
                    r.duration_seconds = seconds.or(r.duration_seconds);
                })
            }
            Fault::SignatureStripped => self.store.edit(dice, |r| r.signature = None),
            Fault::FormerRecordRestored => self.store.restore(dice),
            Fault::ReleaseForged => self.store.edit(dice, |r| {
                r.holder = None;
                r.duration_seconds = Some(Record::RELEASED_SECONDS);
                r.signature = None;
            }),
            _ => self.store.edit(dice, |_| {}),
        };
        if done {
            // What a replica cannot know that has never seen the holder's own record.
            let no_trace = matches!(
                fault,
                Fault::LeaseDeleted
                    | Fault::SignatureStripped
                    | Fault::FormerRecordRestored
                    | Fault::ReleaseForged
            );
            if no_trace && let Some(signature) = before.and_then(|r| r.signature) {
                self.checks.vacate(signature.instance, signature.term);
            }
            let version = self.store.newest();
            self.tell_watchers(version);
        }
        done
    }

    /// The next children of this host, or of all, and the one that is there, have a flaw.
    fn spoil_children(&mut self, fault: Fault, host: HostId, until: Nanos) {
        let mut behaviour = Behaviour::default();
        match fault {
            Fault::SlowDrain => behaviour.drains_for = self.dice.between(SECOND, 40 * SECOND),
            Fault::IgnoresStop => behaviour.ignores_stop = true,
            Fault::CrashesAtOnce => {
                behaviour.crashes_after = Some(self.dice.between(1, 40 * MILLI));
            }
            Fault::CrashesLater => {
                behaviour.crashes_after = Some(self.dice.between(SECOND, 8 * SECOND));
            }
            Fault::NeverReady => behaviour.ready_after = None,
            Fault::Sick => behaviour.sick = true,
            Fault::CannotSpawn => behaviour.spawns = false,
            _ => behaviour.descendants = self.dice.between(1, 5) as u32,
        }
        if self.dice.percent(40) {
            behaviour.ignores_stop = true;
        }
        let everywhere = self.dice.percent(30);
        for (id, here) in self.hosts.iter_mut().enumerate() {
            if everywhere || id == host {
                here.behaviour = behaviour;
                here.behaviour_until = until;
            }
        }
        if let Some(tree) = self.guarded_tree(host) {
            self.trees[tree].turn(behaviour);
            if let Some(after) = behaviour.crashes_after {
                let what = InTree::Exit;
                self.queue
                    .push(self.now + after, Happening::InTree { tree, what });
            }
        }
    }
}
