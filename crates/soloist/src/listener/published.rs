//! What the main loop publishes, and what the listener makes of it.

use std::fmt;
use std::sync::Arc;

use soloist_core::ids::{Identity, Term, Token, TreeId};
use soloist_core::node::{Node, Notice, TreeCommand, TreeEvent};
use soloist_core::orders::Pause;
use soloist_core::replica::StateName;
use soloist_core::time::Moment;
use soloist_elector::carrier::Arrival;
use soloist_elector::clock;
use tokio::sync::watch;

use super::child::{ChildSeen, ChildWatch, Processes};
use super::heartbeat::{Heartbeat, Pulse};
use super::metrics::{Events, Metrics};
use super::timeline::Timeline;
use super::timeouts::Timeouts;
use crate::logging::DroppedLines;

/// What does not change.
#[derive(Clone, Debug)]
pub(crate) struct About {
    pub(crate) name: String,
    pub(crate) identity: Identity,
    pub(crate) store: String,
    /// Whether one replica is elected; else every one runs the program.
    pub(crate) elects: bool,
    pub(crate) timeouts: Timeouts,
    pub(crate) started: Moment,
}

/// What does.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Snapshot {
    pub(super) state: StateName,
    pub(super) leader: Option<Identity>,
    pub(super) lease: Option<Lease>,
    pub(super) contact: Contact,
    /// The child has been up, here, at least once.
    pub(super) has_been_up: bool,
    /// The Pod's preStop hook has begun, or we were asked to stop.
    pub(super) ending: bool,
    pub(super) restarts: u64,
    pub(super) child: ChildSeen,
    /// Nobody may take the lease.
    pub(super) pause: Option<Pause>,
}

impl Snapshot {
    /// Of who has heard and done nothing yet.
    pub(super) fn first() -> Self {
        Self {
            state: StateName::Follower,
            leader: None,
            lease: None,
            contact: Contact::NotYet,
            has_been_up: false,
            ending: false,
            restarts: 0,
            child: ChildSeen::default(),
            pause: None,
        }
    }
}

/// The lease that this replica holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) term: Term,
    pub(super) token: Token,
    pub(super) valid_until: Moment,
}

/// What is heard of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contact {
    /// Nothing yet.
    NotYet,
    /// It has answered.
    Heard,
    /// It does not answer any more.
    CutOff,
}

/// The two sides of one board.
pub(crate) fn publish(about: About, dropped_lines: DroppedLines) -> (Publisher, Published) {
    let metrics = Arc::new(Metrics::new(&about.name, about.elects));
    let heartbeat = Heartbeat::default();
    let (snapshots, snapshot) = watch::channel(Snapshot::first());
    let mut first = Timeline::default();
    first.record(about.started, &Snapshot::first());
    let (changes, timeline) = watch::channel(first);
    let publisher = Publisher {
        identity: about.identity.clone(),
        snapshots,
        changes,
        events: Events::new(Arc::clone(&metrics), about.elects),
        child: ChildWatch::default(),
        pause: None,
        heartbeat: heartbeat.clone(),
    };
    let published = Published {
        about,
        snapshot,
        timeline,
        metrics,
        heartbeat,
        pulse: Pulse::default(),
        dropped_lines,
    };
    (publisher, published)
}

/// The loop's side. Nothing in it waits for the other.
pub(crate) struct Publisher {
    identity: Identity,
    snapshots: watch::Sender<Snapshot>,
    changes: watch::Sender<Timeline>,
    events: Events,
    child: ChildWatch,
    pause: Option<Pause>,
    heartbeat: Heartbeat,
}

impl Publisher {
    /// The loop turns, or is not there yet.
    pub(crate) fn beat(&self) {
        self.heartbeat.beat();
    }

    /// The loop has turned, and this is how things are.
    pub(crate) fn turn(
        &mut self,
        node: &Node,
        contact: Contact,
        ending: bool,
        processes: Option<Processes>,
    ) {
        self.beat();
        self.child.processes(processes);
        let state = node.state();
        let tenure = node.tenure();
        let leader = match tenure {
            Some(_) => Some(&self.identity),
            None => node.holder(),
        };
        let lease = tenure.map(|tenure| Lease {
            term: tenure.term(),
            token: tenure.token(),
            valid_until: tenure.valid_until(),
        });
        let (restarts, child, pause) = (self.events.restarts(), self.child.seen(), self.pause);
        self.snapshots.send_if_modified(|published| {
            let has_been_up = published.has_been_up || state == StateName::Leader;
            let same = (
                state,
                lease,
                contact,
                has_been_up,
                ending,
                restarts,
                child,
                pause,
            ) == (
                published.state,
                published.lease,
                published.contact,
                published.has_been_up,
                published.ending,
                published.restarts,
                published.child,
                published.pause,
            );
            if same && published.leader.as_ref() == leader {
                return false;
            }
            *published = Snapshot {
                state,
                leader: leader.cloned(),
                lease,
                contact,
                has_been_up,
                ending,
                restarts,
                child,
                pause,
            };
            self.changes
                .send_if_modified(|timeline| timeline.record(clock::now(), published));
            true
        });
    }

    pub(crate) fn arrived(&mut self, arrival: &Arrival) {
        self.events.arrived(arrival);
    }

    pub(crate) fn notice(&mut self, notice: &Notice) {
        if let Notice::Paused(pause) = notice {
            self.pause = *pause;
        }
        self.events.notice(notice);
    }

    pub(crate) fn ordered(&mut self, tree: TreeId, command: TreeCommand, state: StateName) {
        self.events.ordered(clock::now(), tree, command, state);
        self.child.ordered(tree, command);
    }

    pub(crate) fn happened(&mut self, now: Moment, tree: TreeId, event: TreeEvent) {
        self.events.happened(now, tree, event);
        self.child.happened(tree, event);
    }
}

/// The listener's side.
pub(crate) struct Published {
    pub(super) about: About,
    snapshot: watch::Receiver<Snapshot>,
    timeline: watch::Receiver<Timeline>,
    metrics: Arc<Metrics>,
    heartbeat: Heartbeat,
    pulse: Pulse,
    dropped_lines: DroppedLines,
}

impl Published {
    pub(super) fn snapshot(&self) -> Snapshot {
        self.snapshot.borrow().clone()
    }

    pub(super) fn snapshots(&self) -> watch::Receiver<Snapshot> {
        self.snapshot.clone()
    }

    pub(super) fn timeline(&self) -> watch::Receiver<Timeline> {
        self.timeline.clone()
    }

    /// To be called regularly: see [`Pulse`].
    pub(super) fn look_at_the_loop(&self) {
        self.pulse.look(&self.heartbeat);
    }

    /// The main loop turns; else why a restart would help.
    pub(super) fn is_alive(&self) -> Result<(), String> {
        match self.pulse.stalled(&self.heartbeat) {
            None => Ok(()),
            Some(since) => Err(format!(
                "the main loop has stood still for {} s",
                since.as_secs()
            )),
        }
    }

    /// A standby that hears its store is ready, and so is whoever leads. Without an election it is the child that must be up.
    pub(super) fn is_ready(&self) -> Result<(), String> {
        self.is_alive()?;
        let snapshot = self.snapshot();
        let not = |reason: &str| Err(reason.to_owned());
        match (self.about.elects, snapshot.state, snapshot.contact) {
            (_, StateName::Terminating, _) => not("terminating"),
            _ if snapshot.ending => not("the Pod's end is near"),
            (false, StateName::Leader, _) => Ok(()),
            (false, _, _) => not("the child is not up"),
            (true, StateName::Follower, Contact::NotYet) => not("the store has not answered yet"),
            (true, StateName::Follower, Contact::CutOff) => not("the store does not answer"),
            (true, _, _) => Ok(()),
        }
    }

    /// As for readiness, but once is enough.
    pub(super) fn has_started(&self) -> Result<(), String> {
        let snapshot = self.snapshot();
        let not = |reason: &str| Err(reason.to_owned());
        match self.about.elects {
            false if !snapshot.has_been_up => not("the child has not been up yet"),
            true if snapshot.contact == Contact::NotYet => not("the store has not answered yet"),
            false | true => Ok(()),
        }
    }

    /// We lead, and our child is up.
    pub(super) fn leads(&self) -> bool {
        self.about.elects && self.snapshot().state == StateName::Leader
    }

    pub(super) fn metrics(&self) -> Result<String, fmt::Error> {
        let now = clock::now();
        self.metrics
            .write(now, &self.snapshot(), self.dropped_lines.count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is told of a replica in this state.
    fn told(elects: bool, state: StateName, contact: Contact, has_been_up: bool) -> Published {
        let about = About {
            name: "test".into(),
            identity: Identity::try_new("me").unwrap(),
            store: "none".into(),
            elects,
            timeouts: Timeouts::for_test(),
            started: clock::now(),
        };
        let (publisher, published) = publish(about, DroppedLines::none());
        publisher.snapshots.send_modify(|snapshot| {
            snapshot.state = state;
            snapshot.contact = contact;
            snapshot.has_been_up = has_been_up;
        });
        published
    }

    const STATES: [StateName; 5] = [
        StateName::Follower,
        StateName::PreLeader,
        StateName::Leader,
        StateName::PreFollower,
        StateName::Terminating,
    ];

    #[test]
    fn whoever_takes_part_is_ready_but_not_while_it_ends_or_hears_nothing() {
        for state in STATES {
            let ready = |contact| told(true, state, contact, false).is_ready().is_ok();
            let ends = state == StateName::Terminating;
            let stands_by = state == StateName::Follower;
            assert_eq!(ready(Contact::Heard), !ends, "{state}");
            assert_eq!(ready(Contact::CutOff), !ends && !stands_by, "{state}");
            assert_eq!(ready(Contact::NotYet), !ends && !stands_by, "{state}");
        }
    }

    #[test]
    fn without_an_election_whoever_has_its_child_up_is_ready() {
        for state in STATES {
            let ready = told(false, state, Contact::NotYet, true).is_ready();
            assert_eq!(ready.is_ok(), state == StateName::Leader, "{state}");
        }
    }

    #[test]
    fn who_has_started_once_has_started() {
        for state in STATES {
            let started = |elects, contact, was_up| {
                let told = told(elects, state, contact, was_up);
                told.has_started().is_ok()
            };
            assert!(!started(true, Contact::NotYet, false));
            assert!(started(true, Contact::Heard, false));
            assert!(started(true, Contact::CutOff, false));
            assert!(!started(false, Contact::NotYet, false));
            assert!(started(false, Contact::NotYet, true));
        }
    }

    #[test]
    fn a_loop_that_stands_still_is_neither_alive_nor_ready() {
        let published = told(true, StateName::Leader, Contact::Heard, true);
        for _ in 0..12 {
            assert!(published.is_ready().is_ok());
            published.heartbeat.beat();
            published.look_at_the_loop();
        }
        for _ in 0..12 {
            published.look_at_the_loop();
        }
        let reason = published.is_alive().unwrap_err();
        assert!(reason.contains("stood still for 12 s"), "{reason}");
        assert_eq!(published.is_ready(), Err(reason));
    }
}
