//! An elector of client-go on the same lease, as `tools/leaderelection` does it: it polls, counts the record's own
//! duration from when it first saw the record as it is, writes by compare-and-swap, and keeps annotations that it
//! does not know. Its work runs from its election until its renew deadline.

mod requests;
mod tries;

use soloist_core::election::Base;
use soloist_core::ids::{Identity, Version};
use soloist_core::orders::Orders;
use soloist_core::record::{Record, Signature};
use soloist_core::time::Moment;

use crate::clock::{MILLI, Nanos, SECOND};
use crate::queue::{Event, HostId};
use crate::store::Change;
use crate::summary::Counter;
use crate::world::World;

pub(crate) struct ClientGo {
    /// Which run of the program this is.
    run: u32,
    identity: Identity,
    release_on_cancel: bool,
    state: State,
    pub(crate) works: bool,
    /// When its last write on what it had read landed, by true time: it took over, or found the record its own.
    pub(crate) leads_since: Nanos,
    /// Until then nobody else may lead, by true time: what its last write that landed promises.
    pub(crate) promised_until: Nanos,
    /// The object as it last got it: its version, and the annotations that it does not know.
    object: Option<(Version, Option<Signature>, Orders)>,
    observed: Option<Observed>,
    observed_raw: Option<Raw>,
    /// The number of the request that it waits for.
    request: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Acquiring,
    /// Renews, until this renewal must have succeeded.
    Leading {
        began: Nanos,
        deadline: Nanos,
    },
    Releasing,
}

#[derive(Clone)]
struct Observed {
    holder: Option<Identity>,
    seconds: i64,
    transitions: u64,
    at: Moment,
}

/// What it compares records by: all of the spec, and nothing of the metadata.
#[derive(Clone, PartialEq, Eq)]
struct Raw {
    holder: Option<Identity>,
    seconds: Option<i64>,
    transitions: u64,
    renewed_at: i64,
}

#[derive(Debug)]
pub(crate) enum ToClientGo {
    Try,
    Answer {
        request: u32,
        step: Step,
        reply: Reply,
    },
    /// The request has taken too long.
    Timeout {
        request: u32,
        step: Step,
    },
    /// This renewal has not succeeded in time.
    Deadline {
        deadline: Nanos,
    },
    Stop,
}

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The leader's update without a read.
    OptimisticUpdate,
    Get,
    Create,
    Update,
    ReleaseGet,
    ReleaseUpdate,
}

#[derive(Debug)]
pub(crate) enum Reply {
    Got(Box<Change>),
    NotFound,
    Written(Version, Record),
    Conflict,
    Failed,
}

/// A request on its way.
#[derive(Debug)]
pub(crate) struct ClientGoRequest {
    request: u32,
    step: Step,
    sent: Nanos,
    /// What to write on what, unless it is a get.
    write: Option<(Base, Record)>,
}

const JITTER: f64 = 1.2;

impl ClientGo {
    pub(crate) fn new(run: u32, identity: Identity, release_on_cancel: bool) -> Self {
        Self {
            run,
            identity,
            release_on_cancel,
            state: State::Acquiring,
            works: false,
            leads_since: 0,
            promised_until: 0,
            object: None,
            observed: None,
            observed_raw: None,
            request: 0,
        }
    }

    fn is_leader(&self) -> bool {
        let holder = self.observed.as_ref().and_then(|o| o.holder.as_ref());
        holder == Some(&self.identity)
    }

    fn lease_is_valid(&self, now: Moment) -> bool {
        self.observed.as_ref().is_some_and(|o| {
            let length = u64::try_from(o.seconds).unwrap_or(0);
            o.at + std::time::Duration::from_secs(length) > now
        })
    }

    fn observe(&mut self, record: &Record, now: Moment) {
        self.observed = Some(Observed {
            holder: record.holder.clone(),
            seconds: record.duration_seconds.unwrap_or(0),
            transitions: record.transitions,
            at: now,
        });
    }

    fn record(&self, holder: Option<Identity>, seconds: i64, transitions: u64) -> Record {
        Record {
            holder,
            duration_seconds: Some(seconds),
            transitions,
            signature: self.object.as_ref().and_then(|(_, s, _)| s.clone()),
            orders: self
                .object
                .as_ref()
                .map_or(Orders::NONE, |(.., o)| o.clone()),
        }
    }
}

// Its life.
impl World {
    pub(crate) fn start_client_go(&mut self, host: HostId) {
        if self.hosts[host].client_go.is_some() {
            return;
        }
        self.next_soloist += 1;
        let run = self.next_soloist;
        let identity = self.hosts[host].identity.clone();
        let release = self.rng.percent(50);
        self.hosts[host].client_go = Some(ClientGo::new(run, identity, release));
        self.log(host, || "client-go starts".to_owned());
        self.tell_client_go(host, run, MILLI, ToClientGo::Try);
    }

    /// It is gone without a word.
    pub(crate) fn crash_client_go(&mut self, host: HostId) -> bool {
        let Some(elector) = self.hosts[host].client_go.take() else {
            return false;
        };
        if elector.works {
            self.summary.count(Counter::ClientGoDied);
        }
        self.restart_client_go(host);
        true
    }

    pub(crate) fn stop_client_go(&mut self, host: HostId) -> bool {
        let Some(run) = self.hosts[host].client_go.as_ref().map(|c| c.run) else {
            return false;
        };
        self.tell_client_go(host, run, MILLI, ToClientGo::Stop);
        true
    }

    fn restart_client_go(&mut self, host: HostId) {
        let at = self.now + self.rng.between(100 * MILLI, 5 * SECOND);
        let new_identity = false;
        self.queue.push(at, Event::Start { host, new_identity });
    }

    pub(crate) fn client_go_works(&self) -> bool {
        self.working_client_go().is_some()
    }

    pub(crate) fn working_client_go(&self) -> Option<&ClientGo> {
        // Only the last host has one.
        let elector = self.hosts.last()?.client_go.as_ref()?;
        elector.works.then_some(elector)
    }

    /// Another hand has changed the record from `before`: the elector has lost it, or has it again.
    pub(crate) fn note_erased_client_go(&mut self, before: Option<&Record>) {
        let holder = before.and_then(|r| r.holder.as_ref());
        let holder_now = self.store.record().and_then(|r| r.holder.as_ref());
        let last = self.hosts.last_mut().and_then(|h| h.client_go.as_mut());
        let Some(elector) = last else {
            return;
        };
        if holder == Some(&elector.identity) {
            elector.promised_until = 0;
        } else if holder_now == Some(&elector.identity) {
            elector.leads_since = self.now;
        }
    }

    fn tell_client_go(&mut self, host: HostId, run: u32, after: Nanos, what: ToClientGo) {
        self.queue
            .push(self.now + after, Event::ToClientGo { host, run, what });
    }
}
