//! What is going to happen, in order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use soloist_core::death::PodReport;
use soloist_core::election::{Answer, Base, Purpose};
use soloist_core::ids::{InstanceId, OpId, Version, WatchId};
use soloist_core::node::TreeEvent;
use soloist_core::record::{Record, Snapshot};

use crate::client_go::{ClientGoRequest, ToClientGo};
use crate::clock::Nanos;
use crate::faults::Fault;

/// One run of soloist on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SoloistId(pub(crate) u32);

pub(crate) type HostId = usize;
/// In the world's list, over all hosts; [`soloist_core::ids::TreeId`] is what one soloist calls its own.
pub(crate) type TreeIndex = usize;

#[derive(Debug)]
pub(crate) enum Event {
    /// Something reaches a soloist process.
    ToSoloist {
        host: HostId,
        soloist: SoloistId,
        what: ToSoloist,
    },
    /// Something wakes a guard process.
    GuardWakes {
        tree: TreeIndex,
        wake: GuardWake,
    },
    /// Something happens to the child's processes.
    InTree {
        tree: TreeIndex,
        what: InTree,
    },
    /// A request reaches the store.
    AtStore {
        host: HostId,
        soloist: SoloistId,
        sent: Nanos,
        what: Request,
    },
    /// Something reaches a client-go elector.
    ToClientGo {
        host: HostId,
        run: u32,
        what: ToClientGo,
    },
    /// Its request reaches the store.
    ClientGoAtStore {
        host: HostId,
        run: u32,
        what: ClientGoRequest,
    },
    Fault(Fault),
    /// A kubelet looks whether this one's container has ended.
    KubeletLooks {
        instance: InstanceId,
    },
    /// The watch of a Pod begins anew.
    PodIsWatched {
        pod: u32,
        host: HostId,
    },
    /// A stalled host lets soloist run at last.
    SoloistRuns {
        host: HostId,
        soloist: SoloistId,
    },
    ThawSoloist {
        host: HostId,
        soloist: SoloistId,
    },
    ThawGuard {
        tree: TreeIndex,
    },
    ThawHost {
        host: HostId,
    },
    /// A new soloist, or client-go elector, starts on the host, if there is none.
    Start {
        host: HostId,
        new_identity: bool,
    },
    /// From now on nothing fails.
    Calm,
    /// The operator who has ended the pauses sees whether it was of use; a leader must be there by then.
    PausesAreOver {
        until: Nanos,
    },
    /// A leader must be there.
    CheckLeader,
    /// In calm conditions, one thing is tried.
    Probe,
    /// It must have come out well.
    ProbeEnds,
    End,
}

#[derive(Debug)]
pub(crate) enum ToSoloist {
    Wake {
        generation: u32,
    },
    /// With how often the store had been set back when it answered.
    Answer {
        op: OpId,
        answer: Answer,
        epoch: u32,
    },
    Watch {
        watch: WatchId,
        snapshot: Snapshot,
        epoch: u32,
    },
    WatchBroken {
        watch: WatchId,
    },
    /// What a Pod's status says.
    Pod {
        report: PodReport,
    },
    Tree {
        tree: TreeIndex,
        event: TreeEvent,
    },
    /// The next pass of a kill, which began then.
    KillPass {
        tree: TreeIndex,
        since: Nanos,
    },
    /// The child has ended, as soloist can see for itself.
    ChildEnded {
        tree: TreeIndex,
    },
    /// Time to ask the guard whether it is there, or to look whether it has answered.
    CheckGuard {
        tree: TreeIndex,
        alarm: u32,
    },
    /// The guard is there.
    Pong {
        tree: TreeIndex,
    },
    /// The Pod's end is near.
    HookBegins,
    /// It is not, after all.
    HookEnds,
    StopSignal,
    HandOver,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GuardWake {
    /// It has been forked and has become itself.
    Started,
    /// Its socket, its child or the child's pipe.
    Event,
    Timer {
        alarm: u32,
    },
    /// A stalled host lets it run at last.
    Late,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum InTree {
    /// The forked child becomes its program, or cannot.
    Exec,
    Ready,
    StopSignal,
    /// The child ends by itself.
    Exit {
        code: u8,
    },
    /// The guard is dead, so the kernel kills the child.
    ParentDeath,
    /// SIGKILL reaches every process.
    Kill,
    /// What was killed is gone.
    Reaped,
    CheckHealth,
}

#[derive(Clone, Debug)]
pub(crate) enum Request {
    Read {
        op: OpId,
    },
    Write {
        op: OpId,
        base: Base,
        record: Record,
        purpose: Purpose,
        /// How often the store had been set back when the writer learned of the base.
        base_epoch: u32,
    },
    Watch {
        watch: WatchId,
        after: Version,
    },
}

/// When, and in which order what is at the same time happens; then where the event is kept.
type Entry = (Nanos, u64, usize);

/// The events themselves stay where they are: they are large, and a heap moves its entries often.
#[derive(Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Reverse<Entry>>,
    events: Vec<Option<Event>>,
    free: Vec<usize>,
    order: u64,
}

impl Queue {
    pub(crate) fn push(&mut self, at: Nanos, what: Event) {
        self.order += 1;
        let slot = match self.free.pop() {
            Some(slot) => {
                self.events[slot] = Some(what);
                slot
            }
            None => {
                self.events.push(Some(what));
                self.events.len() - 1
            }
        };
        self.heap.push(Reverse((at, self.order, slot)));
    }

    pub(crate) fn pop(&mut self) -> Option<(Nanos, Event)> {
        let Reverse((at, _, slot)) = self.heap.pop()?;
        self.free.push(slot);
        let what = self.events[slot].take().expect("an event for each entry");
        Some((at, what))
    }
}
