//! The loop of a client-go elector: `tryAcquireOrRenew`, and what comes of it.

use soloist_core::election::Base;
use soloist_core::record::Record;

use super::{JITTER, Raw, Reply, State, Step, ToClientGo};
use crate::check::Violation;
use crate::clock::{Nanos, nanos};
use crate::queue::HostId;
use crate::summary::Counter;
use crate::world::World;

impl World {
    pub(crate) fn deliver_to_client_go(
        &mut self,
        host: HostId,
        run: u32,
        what: ToClientGo,
    ) -> Result<(), Violation> {
        let Some(elector) = self.hosts[host].client_go.as_mut().filter(|c| c.run == run) else {
            return Ok(());
        };
        match what {
            ToClientGo::Try if elector.state == State::Releasing => {}
            ToClientGo::Try => self.try_acquire_or_renew(host),
            ToClientGo::Answer {
                request,
                step,
                reply,
            } if request == elector.request => return self.client_go_hears(host, step, reply),
            ToClientGo::Timeout { request, step } if request == elector.request => {
                return self.client_go_hears(host, step, Reply::Failed);
            }
            ToClientGo::Answer { .. } | ToClientGo::Timeout { .. } => {}
            ToClientGo::Deadline { deadline } => {
                let state = elector.state;
                if matches!(state, State::Leading { deadline: current, .. } if current == deadline)
                {
                    self.log(host, || "client-go stops leading: not renewed".to_owned());
                    self.client_go_cancels(host);
                }
            }
            ToClientGo::Stop => {
                self.log(host, || "client-go is asked to stop".to_owned());
                self.client_go_cancels(host);
            }
        }
        Ok(())
    }

    fn try_acquire_or_renew(&mut self, host: HostId) {
        let now = self.hosts[host].clock.read(self.now);
        let lease = self.plan.timings[host].lease();
        let Some(elector) = &mut self.hosts[host].client_go else {
            return;
        };
        match (&elector.observed, &elector.object) {
            (Some(observed), Some((version, ..)))
                if elector.is_leader() && elector.lease_is_valid(now) =>
            {
                let me = Some(elector.identity.clone());
                let record = elector.record(me, lease.seconds().into(), observed.transitions);
                let write = (Base::Version(*version), record);
                self.client_go_asks(host, Step::OptimisticUpdate, Some(write));
            }
            _ => self.client_go_asks(host, Step::Get, None),
        }
    }

    fn client_go_hears(&mut self, host: HostId, step: Step, reply: Reply) -> Result<(), Violation> {
        let now = self.hosts[host].clock.read(self.now);
        let seconds = self.plan.timings[host].lease().seconds().into();
        let Some(elector) = &mut self.hosts[host].client_go else {
            return Ok(());
        };
        elector.request += 1;
        match (step, reply) {
            (
                Step::OptimisticUpdate | Step::Create | Step::Update,
                Reply::Written(version, record),
            ) => {
                elector.object = Some((version, record.signature.clone(), record.orders.clone()));
                elector.observe(&record, now);
                return self.client_go_succeeds(host);
            }
            (Step::OptimisticUpdate, _) => self.client_go_asks(host, Step::Get, None),
            (Step::Get, Reply::NotFound) => {
                elector.object = None;
                let me = Some(elector.identity.clone());
                let record = elector.record(me, seconds, 0);
                self.client_go_asks(host, Step::Create, Some((Base::Absent, record)));
            }
            (Step::Get, Reply::Got(change)) => {
                let Some(record) = &change.record else {
                    return Ok(());
                };
                let orders = record.orders.clone();
                elector.object = Some((change.version, record.signature.clone(), orders));
                let raw = Raw {
                    holder: record.holder.clone(),
                    seconds: record.duration_seconds,
                    transitions: record.transitions,
                    renewed_at: change.renewed_at,
                };
                if elector.observed_raw.as_ref() != Some(&raw) {
                    elector.observe(record, now);
                    elector.observed_raw = Some(raw);
                }
                let leads = elector.is_leader();
                if record.holder.is_some() && elector.lease_is_valid(now) && !leads {
                    self.client_go_fails(host);
                    return Ok(());
                }
                let transitions = record.transitions + u64::from(!leads);
                let me = Some(elector.identity.clone());
                let record = elector.record(me, seconds, transitions);
                let write = (Base::Version(change.version), record);
                self.client_go_asks(host, Step::Update, Some(write));
            }
            // It looks at what it last observed, not at what it got.
            (Step::ReleaseGet, Reply::Got(change)) if elector.is_leader() => {
                let transitions = change.record.as_ref().map_or(0, |r| r.transitions);
                let signature = change.record.as_ref().and_then(|r| r.signature.clone());
                let orders = change.record.as_ref().map(|r| r.orders.clone());
                elector.object = Some((change.version, signature, orders.unwrap_or_default()));
                let record = elector.record(None, Record::RELEASED_SECONDS, transitions);
                let write = (Base::Version(change.version), record);
                self.client_go_asks(host, Step::ReleaseUpdate, Some(write));
            }
            (Step::ReleaseUpdate, Reply::Conflict) => {
                self.client_go_asks(host, Step::ReleaseGet, None);
            }
            (Step::ReleaseGet | Step::ReleaseUpdate, _) => self.client_go_exits(host),
            (Step::Get | Step::Create | Step::Update, _) => self.client_go_fails(host),
        }
        Ok(())
    }

    fn client_go_succeeds(&mut self, host: HostId) -> Result<(), Violation> {
        let now = self.now;
        let timings = self.plan.timings[host];
        let Some(elector) = &mut self.hosts[host].client_go else {
            return Ok(());
        };
        let run = elector.run;
        let acquired = elector.state == State::Acquiring;
        let pause = match acquired {
            true => 0,
            false => nanos(timings.retry_period()),
        };
        // The next renewal begins then, and must succeed before its deadline.
        let began = now + pause;
        let deadline = began + nanos(timings.renew_deadline());
        elector.state = State::Leading { began, deadline };
        if acquired {
            elector.works = true;
            self.summary.count(Counter::ClientGoTerms);
            self.log(host, || "client-go leads".to_owned());
            self.check_settled(None)?;
        }
        self.tell_client_go(host, run, pause, ToClientGo::Try);
        self.tell_client_go(host, run, deadline - now, ToClientGo::Deadline { deadline });
        Ok(())
    }

    fn client_go_fails(&mut self, host: HostId) {
        let period = nanos(self.plan.timings[host].retry_period());
        let Some(elector) = &self.hosts[host].client_go else {
            return;
        };
        let (run, state) = (elector.run, elector.state);
        let pause = match state {
            State::Acquiring => {
                let jitter = self.rng.between(0, 1000) as f64 / 1000.0 * JITTER;
                (period as f64 * (1.0 + jitter)) as Nanos
            }
            // A ticker.
            State::Leading { began, .. } => period - (self.now - began) % period,
            State::Releasing => return,
        };
        self.tell_client_go(host, run, pause, ToClientGo::Try);
    }

    /// Its context is cancelled: its work ends, and it may release what it holds.
    fn client_go_cancels(&mut self, host: HostId) {
        let Some(elector) = &mut self.hosts[host].client_go else {
            return;
        };
        let led = std::mem::take(&mut elector.works);
        elector.state = State::Releasing;
        elector.request += 1;
        if led && elector.release_on_cancel {
            self.client_go_asks(host, Step::ReleaseGet, None);
        } else {
            self.client_go_exits(host);
        }
    }

    fn client_go_exits(&mut self, host: HostId) {
        self.hosts[host].client_go = None;
        self.log(host, || "client-go exits".to_owned());
        self.restart_client_go(host);
    }
}
