//! Between a client-go elector and the store.

use soloist_core::election::{Answer, Base};
use soloist_core::record::Record;

use super::{ClientGoRequest, Reply, Step, ToClientGo};
use crate::check::Eraser;
use crate::clock::{Nanos, nanos};
use crate::link::Delivery;
use crate::queue::{Event, HostId};
use crate::summary::Counter;
use crate::world::World;

impl World {
    pub(super) fn client_go_asks(
        &mut self,
        host: HostId,
        step: Step,
        write: Option<(Base, Record)>,
    ) {
        let limit = nanos(self.plan.timings[host].renew_deadline()) / 2;
        let Some(elector) = &mut self.hosts[host].client_go else {
            return;
        };
        elector.request += 1;
        let (run, request) = (elector.run, elector.request);
        self.tell_client_go(host, run, limit, ToClientGo::Timeout { request, step });
        let what = ClientGoRequest {
            request,
            step,
            sent: self.now,
            write,
        };
        match self.draw_delivery(host) {
            Delivery::Arrives { after } => {
                self.note_late(after);
                self.queue
                    .push(self.now + after, Event::ClientGoAtStore { host, run, what });
            }
            Delivery::Lost => {}
            Delivery::Broken { after } => {
                let reply = Reply::Failed;
                let what = ToClientGo::Answer {
                    request,
                    step,
                    reply,
                };
                self.tell_client_go(host, run, after, what);
            }
        }
    }

    pub(crate) fn client_go_at_store(&mut self, host: HostId, run: u32, what: ClientGoRequest) {
        let ClientGoRequest {
            request,
            step,
            sent,
            write,
        } = what;
        if self.now < self.store.down_until || self.now < self.hosts[host].link.refused_until {
            return;
        }
        let reply = match write {
            None => {
                let change = self.store.read();
                match change.record {
                    Some(_) => Reply::Got(Box::new(change)),
                    None => Reply::NotFound,
                }
            }
            Some((base, record)) => self.client_go_writes(host, step, sent, base, record),
        };
        if let Delivery::Arrives { after } = self.draw_delivery(host) {
            let what = ToClientGo::Answer {
                request,
                step,
                reply,
            };
            self.tell_client_go(host, run, after, what);
        }
    }

    fn client_go_writes(
        &mut self,
        host: HostId,
        step: Step,
        sent: Nanos,
        base: Base,
        record: Record,
    ) -> Reply {
        let before = self.store.record().cloned();
        let stamp = self.hosts[host].wall(sent);
        let answer = self.store.write(&mut self.rng, base, record.clone(), stamp);
        self.log(host, || {
            format!("client-go's {step:?} on {base:?}: {answer:?}")
        });
        let Answer::Written(version) = answer else {
            return Reply::Conflict;
        };
        let holder_before = before.as_ref().and_then(|r| r.holder.clone());
        let over_another = holder_before != record.holder;
        let lease = nanos(self.plan.timings[host].lease().get());
        if step == Step::ReleaseUpdate {
            self.summary.count(Counter::ClientGoReleases);
            if holder_before.as_ref() != Some(&self.hosts[host].identity) {
                self.summary.count(Counter::ClientGoReleasedAnothers);
                self.note_erased(before, Eraser::Operator);
            }
        } else {
            // It writes without a read only over what it wrote itself, unless a version was given out twice.
            if step == Step::OptimisticUpdate && over_another {
                self.note_erased(before, Eraser::StaleWrite);
            }
            self.checks.claimed_by_anybody(self.now);
        }
        if let Some(elector) = &mut self.hosts[host].client_go {
            // After a restart under the same name its first write may be one to what it finds to be its own.
            let first = elector.leads_since == 0;
            if step != Step::OptimisticUpdate || over_another || first {
                elector.leads_since = self.now;
            }
            elector.promised_until = match step {
                Step::ReleaseUpdate => 0,
                _ => self.now + lease - lease / 100,
            };
        }
        self.tell_watchers(version);
        Reply::Written(version, record)
    }
}
