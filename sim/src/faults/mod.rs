//! The faults: what is done to the world, and to whom.

mod children;
mod orders;
mod processes;
mod record;

use crate::clock::{MILLI, Nanos, nanos};
use crate::queue::{HostId, ToSoloist};
use crate::summary::Counter;
use crate::world::World;

pub(crate) use orders::wall_time;

/// The longest duration that an operator writes into the record here.
pub(crate) const MOST_EDITED_SECONDS: u64 = 30;

macro_rules! faults {
    ($($name:ident),*; orders: $($order:ident),*; pods: $($pod:ident),*; hooks: $($hook:ident),* $(,)?) => {
        /// A kind of fault; [`Counter`] says what each is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Fault { $($name,)* $($order,)* $($pod,)* $($hook),* }

        impl Fault {
            pub(crate) const ALL: &'static [Self] = &[$(Self::$name),*];
            /// What people order; in some schedules only.
            pub(crate) const ORDERS: &'static [Self] = &[$(Self::$order),*];
            /// What is told of Pods, where it is.
            pub(crate) const PODS: &'static [Self] = &[$(Self::$pod),*];
            /// preStop hooks, where there are any.
            pub(crate) const HOOKS: &'static [Self] = &[$(Self::$hook),*];

            const fn counter(self) -> Counter {
                match self {
                    $(Self::$name => Counter::$name,)*
                    $(Self::$order => Counter::$order,)*
                    $(Self::$pod => Counter::$pod,)*
                    $(Self::$hook => Counter::$hook),*
                }
            }
        }
    };
}

faults! {
    SlowLink, LossyLink, Deaf, CutLink, CutMany, StoreDown, Refused,
    WatchLags, WatchDiesSilently, WatchBreaks,
    CrashSameIdentity, CrashNewIdentity, StopSignal, TwoStopSignals, HandOver,
    FreezeSoloist, FreezeGuard, FreezeHost, FreezeSoloistAndGuard, KillGuard, PauseHost, Stall,
    StalledRequest, StoreSetBack,
    LeaseDeleted, LeaseEmptied, LeaseTouched, DurationEdited, HolderEdited,
    SignatureStripped, FormerRecordRestored, ReleaseForged,
    SlowDrain, IgnoresStop, CrashesAtOnce, CrashesLater, NeverReady, Sick, Descendants, CannotSpawn,
    SlowExec, SlowKill, StuckKill;
    orders: OrderHandover, OrderForAnotherTerm, OrderPause, OrderPauseStop, OrderResume;
    pods: PodDeleted, PodFailed, SidecarEnds, RuntimeLosesTrack, KubeletMute;
    hooks: HookBegins,
}

impl World {
    pub(crate) fn inject(&mut self, fault: Fault) {
        let host = match self.leading_host() {
            Some(host) if self.rng.percent(65) => host,
            Some(_) | None => self.rng.index(self.hosts.len()),
        };
        let lease = nanos(self.hosts[host].lease(&self.plan, host));
        let length = self.rng.between(lease / 20, lease * 5 / 2);
        let until = self.now + length;
        if self.without.contains(fault.counter()) {
            return;
        }
        self.log(host, || {
            format!("FAULT {fault:?} for {} ms", length / MILLI)
        });
        if self.apply(fault, host, until) {
            self.count(fault);
        }
        if fault != Fault::StalledRequest {
            self.stalled_request = None;
        }
        if !Fault::ORDERS.contains(&fault)
            && !matches!(
                fault,
                Fault::StopSignal
                    | Fault::HandOver
                    | Fault::SlowDrain
                    | Fault::IgnoresStop
                    | Fault::HookBegins
            )
        {
            for host in 0..self.hosts.len() {
                self.note_disturbance(host, until);
            }
        }
    }

    /// Those of a kill are counted when one takes place.
    fn count(&mut self, fault: Fault) {
        if !matches!(fault, Fault::SlowKill | Fault::StuckKill) {
            self.summary.count(fault.counter());
        }
    }

    /// Until then, and for as long as it takes to get over it, a planned stop may be cut short.
    pub(crate) fn note_disturbance(&mut self, host: HostId, until: Nanos) {
        let over = until + self.plan.longest_lease();
        let host = &mut self.hosts[host];
        host.disturbed_until = host.disturbed_until.max(over);
    }

    /// `false` if there was nothing to do it to.
    fn apply(&mut self, fault: Fault, host: HostId, until: Nanos) -> bool {
        let link = &mut self.hosts[host].link;
        match fault {
            Fault::SlowLink => link.slow_until = until,
            Fault::LossyLink => link.lossy_until = until,
            Fault::Deaf => link.deaf_until = until,
            Fault::CutLink => link.cut_until = until,
            Fault::CutMany => {
                for host in 0..self.hosts.len() {
                    if self.rng.percent(60) {
                        self.hosts[host].link.cut_until = until;
                    }
                }
            }
            Fault::StoreDown => self.store.down_until = until,
            Fault::Refused => link.refused_until = until,
            Fault::WatchLags => link.watch_lags_until = until,
            Fault::WatchDiesSilently => self.drop_watch(host),
            Fault::WatchBreaks => return self.break_watch(host),
            Fault::CrashSameIdentity => return self.crash(host, false),
            Fault::CrashNewIdentity => return self.crash(host, true),
            Fault::StopSignal => return self.ask(host, [ToSoloist::StopSignal]),
            Fault::TwoStopSignals => {
                return self.ask(host, [ToSoloist::StopSignal, ToSoloist::StopSignal]);
            }
            Fault::HandOver => return self.ask(host, [ToSoloist::HandOver]),
            Fault::FreezeSoloist => return self.freeze_soloist(host, until),
            Fault::FreezeGuard => return self.freeze_guard(host, until),
            Fault::FreezeSoloistAndGuard => {
                return self.freeze_guard(host, until) && self.freeze_soloist(host, until);
            }
            Fault::FreezeHost => return self.freeze_host(host, until, false),
            Fault::PauseHost => return self.freeze_host(host, until, true),
            Fault::Stall => return self.stall(host, until),
            Fault::StalledRequest => return self.swallow_a_request(),
            Fault::StoreSetBack => return self.set_store_back(),
            Fault::SlowExec => self.hosts[host].slow_exec_until = until,
            Fault::KillGuard => return self.kill_a_guard(host),
            Fault::LeaseDeleted
            | Fault::LeaseEmptied
            | Fault::LeaseTouched
            | Fault::DurationEdited
            | Fault::HolderEdited
            | Fault::SignatureStripped
            | Fault::FormerRecordRestored
            | Fault::ReleaseForged => return self.edit_record(fault),
            Fault::OrderHandover
            | Fault::OrderForAnotherTerm
            | Fault::OrderPause
            | Fault::OrderPauseStop
            | Fault::OrderResume => return self.give_order(fault),
            Fault::PodDeleted
            | Fault::PodFailed
            | Fault::SidecarEnds
            | Fault::RuntimeLosesTrack
            | Fault::KubeletMute => return self.spoil_pods(fault, host, until),
            Fault::HookBegins => return self.begin_hook(host, until),
            Fault::SlowDrain
            | Fault::IgnoresStop
            | Fault::CrashesAtOnce
            | Fault::CrashesLater
            | Fault::NeverReady
            | Fault::Sick
            | Fault::Descendants
            | Fault::CannotSpawn
            | Fault::SlowKill
            | Fault::StuckKill => self.change_children(fault, host, until),
        }
        true
    }
}
