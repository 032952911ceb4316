//! What is going to happen, in order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use soloist_core::election::{Answer, Base};
use soloist_core::guard;
use soloist_core::ids::{OpId, Version};
use soloist_core::record::{Record, Snapshot};
use soloist_core::replica::Event;
use soloist_core::time::Moment;

use crate::clock::Nanos;
use crate::faults::Fault;

/// One run of soloist on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SoloistId(pub(crate) u32);

pub(crate) type HostId = usize;
pub(crate) type TreeId = usize;

#[derive(Debug)]
pub(crate) enum Happening {
    /// Something reaches a soloist process.
    ToSoloist {
        host: HostId,
        soloist: SoloistId,
        what: ToSoloist,
    },
    /// Something reaches a guard process.
    ToGuard {
        tree: TreeId,
        what: ToGuard,
    },
    /// Something happens to the child's processes.
    InTree {
        tree: TreeId,
        what: InTree,
    },
    /// A request reaches the store.
    AtStore {
        host: HostId,
        soloist: SoloistId,
        sent: Nanos,
        what: Request,
    },
    Fault(Fault),
    ThawSoloist {
        host: HostId,
        soloist: SoloistId,
    },
    ThawGuard {
        tree: TreeId,
    },
    ThawHost {
        host: HostId,
    },
    /// A new soloist starts on the host, if there is none.
    Start {
        host: HostId,
        new_identity: bool,
    },
    /// From now on nothing fails.
    Calm,
    /// A leader must be there.
    MustLead,
    End,
}

#[derive(Debug)]
pub(crate) enum ToSoloist {
    Wake { generation: u32 },
    Answer { op: OpId, answer: Answer },
    Watch { epoch: u32, snapshot: Snapshot },
    WatchBroken { epoch: u32 },
    Child { tree: TreeId, event: Event },
    Asked(Event),
}

#[derive(Debug)]
pub(crate) enum ToGuard {
    Arm { deadline: Moment },
    Forked,
    Input(guard::Input),
    Tick { generation: u32 },
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum InTree {
    Ready,
    StopSignal,
    /// The child ends by itself.
    Exit,
    /// The guard is dead, so the kernel kills the child.
    ParentDeath,
    /// Everything dies.
    Kill {
        by_soloist: bool,
    },
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
    },
    Watch {
        epoch: u32,
        after: Version,
    },
}

struct Entry {
    at: Nanos,
    order: u64,
    what: Happening,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

#[derive(Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Reverse<Entry>>,
    order: u64,
}

impl Queue {
    pub(crate) fn push(&mut self, at: Nanos, what: Happening) {
        self.order += 1;
        self.heap.push(Reverse(Entry {
            at,
            order: self.order,
            what,
        }));
    }

    pub(crate) fn pop(&mut self) -> Option<(Nanos, Happening)> {
        self.heap.pop().map(|Reverse(e)| (e.at, e.what))
    }
}
