//! In calm conditions, one thing at a time: a handover, a crash, a request that is swallowed. Each has a bound of its own.

use soloist_core::election::Loss;
use soloist_core::ids::{Identity, Term};
use soloist_core::replica::StateName;
use soloist_core::timings::Timings;

use super::Violation;
use crate::clock::{MILLI, Nanos, SECOND, nanos};
use crate::faults::Fault;
use crate::gaps::Cause;
use crate::hosts::Soloist;
use crate::plan::{LINK, START_GUARD, WAKE_UP};
use crate::queue::{Event, HostId, SoloistId, ToSoloist};
use crate::summary::Counter;
use crate::world::World;

/// How far a schedule has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// Anything may happen.
    #[default]
    Faults,
    /// A leader is up, and nothing may change that.
    Settled,
    /// The leader was asked to let another one lead.
    HandingOver {
        leader: SoloistId,
        /// There is another one.
        standby: bool,
        released: bool,
    },
    /// A handover to this replica was ordered.
    HandingOverTo { heir: SoloistId },
    /// A pause was ordered; then the leader was killed, or was to stop its child.
    Paused { stop: bool },
    /// The pause is over.
    Resumed,
    /// The leader was killed.
    Crashed,
    /// A request of the leader was swallowed.
    Stalled,
}

/// Large groups spread themselves over this long after a release.
const CROWD: Nanos = Timings::LARGEST_CROWD.as_millis() as Nanos * MILLI;
const EXEC: Nanos = 20 * MILLI;
const ORDER: Nanos = 2 * MILLI;

/// From the write of a release to the next child, but for a place in the crowd: the write, the event, a timer, the takeover's
/// write and its answer, the order to the guard, which is ready, its exec.
const HANDOVER: Nanos = LINK + LINK + WAKE_UP + 2 * LINK + ORDER + WAKE_UP + EXEC;
/// Of a replica that may just have been started, and of a group of any size.
const TAKEOVER: Nanos = HANDOVER + CROWD + START_GUARD;

impl World {
    pub(crate) fn is_probing(&self) -> bool {
        match self.checks.phase {
            Phase::HandingOver { standby, .. } => standby,
            Phase::HandingOverTo { .. } | Phase::Crashed | Phase::Stalled => true,
            Phase::Paused { .. } | Phase::Resumed | Phase::Faults | Phase::Settled => false,
        }
    }

    /// Draws what to try, if there is a soloist to try it with.
    pub(crate) fn probe(&mut self) {
        let leader = self.hosts.iter().position(|h| {
            let leads = |s: &Soloist| s.node.state() == StateName::Leader;
            h.soloist.as_ref().is_some_and(leads)
        });
        let others = (self.hosts.iter().filter(|h| h.soloist.is_some()).count()).saturating_sub(1);
        let lease = self.plan.longest_lease();
        let Some((host, id)) = leader.and_then(|h| Some((h, self.hosts[h].soloist.as_ref()?.id)))
        else {
            self.queue.push(self.now + lease, Event::End);
            return;
        };
        let alone = self.plan.client_go || self.plan.shared_identity || others == 0;
        if self.plan.orders && !alone {
            match self.rng.percent(50) {
                true => self.probe_heir(host, id),
                false => self.probe_pause(host),
            }
            return;
        }
        match self.rng.between(0, 3) {
            0 => self.probe_handover(host, id, others),
            1 if others > 0 => self.probe_crash(host),
            2 => self.probe_stalled_request(host),
            _ => self.queue.push(self.now + lease, Event::End),
        }
    }

    fn probe_handover(&mut self, host: HostId, leader: SoloistId, others: usize) {
        self.summary.count(Counter::ProbeHandover);
        self.log(host, || "PROBE: handover".to_owned());
        self.checks.phase = Phase::HandingOver {
            leader,
            standby: others > 0,
            released: false,
        };
        let what = match others > 0 && self.rng.percent(50) {
            true => ToSoloist::StopSignal,
            false => ToSoloist::HandOver,
        };
        let mut asked_after = MILLI;
        if self.rng.percent(30) {
            self.break_watches_but_of(leader);
            asked_after += SECOND;
        }
        self.send_to_soloist(host, leader, asked_after, what);
        let policy = self.plan.policy(host);
        let mut bound = asked_after + nanos(policy.ladder.stop()) + SECOND + TAKEOVER;
        if others == 0 {
            bound += nanos(policy.cool_down);
        }
        self.queue.push(self.now + bound, Event::ProbeEnds);
    }

    /// The standbys' watches end, as they do now and then; by the next release they must be there again.
    fn break_watches_but_of(&mut self, leader: SoloistId) {
        let watching = self.hosts.iter().enumerate().filter_map(|(host, h)| {
            let standby = h.soloist.as_ref().filter(|s| s.id != leader)?;
            Some((host, standby.id, standby.listens_to?))
        });
        for (host, id, watch) in watching.collect::<Vec<_>>() {
            self.send_to_soloist(host, id, MILLI, ToSoloist::WatchBroken { watch });
        }
    }

    /// A release has been sent: with another replica there, the next child follows at once.
    pub(crate) fn note_release(&mut self, id: SoloistId) {
        if let Phase::HandingOver {
            leader,
            standby: true,
            released,
        } = &mut self.checks.phase
            && *leader == id
            && !std::mem::replace(released, true)
        {
            let bound = HANDOVER + self.shortest_crowd();
            self.queue.push(self.now + bound, Event::ProbeEnds);
        }
    }

    /// Of those who can take over, the one that is soonest to try.
    fn shortest_crowd(&self) -> Nanos {
        let candidates = self.hosts.iter().filter_map(|h| h.soloist.as_ref());
        let crowds = candidates.filter_map(|s| s.node.crowd());
        crowds.min().map_or(CROWD, nanos)
    }

    fn probe_crash(&mut self, host: HostId) {
        self.summary.count(Counter::ProbeCrash);
        self.log(host, || "PROBE: crash".to_owned());
        self.checks.phase = Phase::Crashed;
        self.crash(host, true);
        let others = (0..self.plan.replicas).filter(|h| *h != host);
        let spread = others.map(|h| nanos(self.plan.timings[h].spread())).max();
        let lease = nanos(self.plan.timings[host].lease().get());
        // Somebody who touches the record again and again must not put the takeover off.
        if self.rng.percent(50) {
            for quarter in 1..4 {
                let at = self.now + lease * quarter / 4;
                self.queue.push(at, Event::Fault(Fault::LeaseTouched));
            }
        }
        let expires = lease + lease / 100 + spread.unwrap_or(0) + LINK;
        let bound = match self.death_is_reported_within(host) {
            Some(reported) => reported.min(expires),
            None => expires,
        };
        self.queue
            .push(self.now + bound + TAKEOVER, Event::ProbeEnds);
    }

    fn probe_stalled_request(&mut self, host: HostId) {
        self.summary.count(Counter::ProbeStalledRequest);
        self.log(host, || "PROBE: a request is swallowed".to_owned());
        self.checks.phase = Phase::Stalled;
        self.gaps.since_probe = 0;
        self.hosts[host].link.swallow_next = true;
        let lease = nanos(self.plan.timings[host].lease().get());
        self.queue.push(self.now + 2 * lease, Event::ProbeEnds);
    }

    pub(crate) fn probe_ends(&mut self) -> Result<(), Violation> {
        let works = self.working_leaders_or_starting();
        let violation = match self.checks.phase {
            Phase::Faults | Phase::Settled => return Ok(()),
            Phase::HandingOver { .. } | Phase::HandingOverTo { .. } => Violation::SlowHandover,
            Phase::Paused { stop } => return self.end_pause(stop),
            Phase::Resumed => Violation::SlowResume,
            Phase::Crashed => Violation::SlowTakeover,
            Phase::Stalled => Violation::StalledRequestCost,
        };
        if !works {
            return Err(violation);
        }
        if self.checks.phase == Phase::Stalled {
            let cost = self.gaps.since_probe;
            self.summary.gaps.add(Cause::StalledRequest, cost);
        }
        self.checks.phase = Phase::Settled;
        let end = self.now + self.plan.longest_lease();
        self.queue.push(end, Event::End);
        Ok(())
    }

    /// Somebody's child works, ready or not.
    fn working_leaders_or_starting(&self) -> bool {
        self.client_go_works() || self.living.iter().any(|t| self.trees[*t].works())
    }

    /// A term began.
    pub(crate) fn check_settled(&mut self, elected: Option<SoloistId>) -> Result<(), Violation> {
        match self.checks.phase {
            Phase::Faults
            | Phase::HandingOver { .. }
            | Phase::Paused { .. }
            | Phase::Resumed
            | Phase::Crashed => Ok(()),
            Phase::HandingOverTo { heir } => match elected == Some(heir) {
                true => Ok(()),
                false => Err(Violation::HeirPassedOver),
            },
            Phase::Settled => Err(Violation::Flapping),
            Phase::Stalled => Err(Violation::StalledRequestCost),
        }
    }

    /// A lease was lost, or is about to be.
    pub(crate) fn check_loss(&mut self, host: HostId, loss: &Loss) -> Result<(), Violation> {
        if self.checks.phase == Phase::Stalled {
            return Err(Violation::StalledRequestCost);
        }
        let stalled = self.stalled_request.take_if(|s| s.host == host);
        match stalled {
            Some(stalled) if self.now <= stalled.until && *loss != Loss::Resigned => {
                Err(Violation::StalledRequestCost)
            }
            Some(_) | None => Ok(()),
        }
    }
}

// What people order.
impl World {
    /// A handover to a replica that is there, or to none that exists: that costs the time for which the others stand back.
    fn probe_heir(&mut self, host: HostId, leader: SoloistId) {
        self.summary.count(Counter::ProbeHeir);
        let others = self.hosts.iter().filter_map(|h| h.soloist.as_ref());
        let standby = |s: &&Soloist| s.id != leader && s.node.crowd().is_some();
        let standbys: Vec<_> = others.filter(standby).map(|s| s.id).collect();
        let alive = !standbys.is_empty() && self.rng.percent(60);
        let policy = self.plan.policy(host);
        // A leader whose watch has died silently learns of it by its next renewal.
        let heard = self.plan.longest_lease() / 2;
        let mut bound = heard + nanos(policy.ladder.stop()) + SECOND + TAKEOVER;
        let to = if alive {
            let heir = self.rng.pick(&standbys);
            self.checks.phase = Phase::HandingOverTo { heir };
            self.hosts.iter().find_map(|h| {
                let soloist = h.soloist.as_ref().filter(|s| s.id == heir);
                soloist.map(|_| h.identity.clone())
            })
        } else {
            self.checks.phase = Phase::HandingOver {
                leader,
                standby: false,
                released: false,
            };
            let patience = self.plan.timings.iter().map(|t| nanos(t.heir_patience()));
            bound += patience.max().unwrap_or(0) + nanos(policy.cool_down);
            Identity::found("nobody-of-this-name")
        };
        self.log(host, || format!("PROBE: handover to {to:?}"));
        let term = self.store.record().map_or(0, |r| r.transitions);
        self.order_handover(Term::new(term), to);
        self.queue.push(self.now + bound, Event::ProbeEnds);
    }

    /// Nobody leads in a pause, for longer than several leases; and somebody does right after it.
    fn probe_pause(&mut self, host: HostId) {
        self.summary.count(Counter::ProbePause);
        let stop = self.rng.percent(50);
        let ends_by_itself = self.rng.percent(50);
        self.log(host, || format!("PROBE: pause, stop: {stop}"));
        self.checks.phase = Phase::Paused { stop };
        let drain = nanos(self.plan.policy(host).ladder.stop());
        let lease = self.plan.longest_lease();
        let length = (lease / 2 + drain).max(2 * lease) + 8 * SECOND;
        self.order_pause(stop, ends_by_itself.then_some(length));
        if !stop {
            self.crash(host, true);
        }
        // Wall clocks differ by at most ten seconds here, and whoever starts meanwhile counts from when it looked.
        let wait = if ends_by_itself {
            length + 8 * SECOND
        } else {
            length
        };
        let checked = if ends_by_itself {
            length - 6 * SECOND
        } else {
            wait
        };
        self.queue.push(self.now + checked, Event::ProbeEnds);
        if ends_by_itself {
            self.queue.push(self.now + wait, Event::ProbeEnds);
        }
    }

    fn end_pause(&mut self, stop: bool) -> Result<(), Violation> {
        if self.working_leaders_or_starting() {
            return Err(match stop {
                true => Violation::NotStopped,
                false => Violation::TakenInAPause,
            });
        }
        let ends_by_itself = self
            .store
            .record()
            .is_some_and(|r| r.orders.pause.is_some_and(|p| p.until.is_some()));
        self.checks.phase = Phase::Resumed;
        if !ends_by_itself {
            self.order_resume();
            let spread = self.plan.timings.iter().map(|t| nanos(t.spread())).max();
            let bound = spread.unwrap_or(0) + LINK + TAKEOVER;
            self.queue.push(self.now + bound, Event::ProbeEnds);
        }
        Ok(())
    }
}
