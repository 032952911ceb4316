//! A host: its clock, its link to the store, and the soloist that runs on it.

use std::time::Duration;

use soloist_core::death::Deaths;
use soloist_core::election;
use soloist_core::ids::{self, Identity, InstanceId, OpId, Term, WatchId};
use soloist_core::node::Node;
use soloist_core::record::Snapshot;
use soloist_core::replica::Policy;
use soloist_core::time::Moment;

use crate::behaviour::Behaviour;
use crate::client_go::ClientGo;
use crate::clock::{Clock, Nanos, SECOND};
use crate::plan::Plan;
use crate::pods;
use crate::queue::{Event, HostId, SoloistId, TreeIndex};
use crate::rng::Rng;

pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) clock: Clock,
    /// How far its wall clock is off, in nanoseconds. Only timestamps show it.
    pub(crate) wall_skew: i64,
    /// soloist is PID 1 of a container: when it ends, the kernel ends everything in it.
    pub(crate) container: bool,
    pub(crate) pod: u32,
    pub(crate) identity: Identity,
    pub(crate) link: Link,
    /// Until then something may keep its renewals from succeeding, or its child from its grace.
    pub(crate) disturbed_until: Nanos,
    pub(crate) soloist: Option<Soloist>,
    pub(crate) client_go: Option<ClientGo>,
    pub(crate) frozen_since: Option<Nanos>,
    /// When it last ran again.
    pub(crate) thawed_at: Nanos,
    /// It is a virtual machine that is paused, and its clock stands still.
    pub(crate) paused: bool,
    /// What happened to its processes while it was frozen.
    pub(crate) held_back: Vec<Event>,
    /// How the children are that start here until then.
    pub(crate) behaviour: Behaviour,
    pub(crate) behaviour_until: Nanos,
    /// Until then it takes seconds to start a process.
    pub(crate) slow_exec_until: Nanos,
    /// Until then a wake-up or a kill may take as long as `stall`.
    pub(crate) stall_until: Nanos,
    pub(crate) stall: Nanos,
    /// When last its soloist became a follower, by its clock.
    pub(crate) last_step_down: Option<Moment>,
    /// How often in a row its container has ended, for the kubelet's back-off.
    pub(crate) ends_in_a_row: u32,
    /// Its job is done; nothing is started here any more.
    pub(crate) done: bool,
}

#[derive(Default)]
pub(crate) struct Link {
    pub(crate) cut_until: Nanos,
    pub(crate) lossy_until: Nanos,
    pub(crate) deaf_until: Nanos,
    pub(crate) slow_until: Nanos,
    pub(crate) refused_until: Nanos,
    pub(crate) watch_lags_until: Nanos,
    /// The kubelet tells nothing.
    pub(crate) kubelet_mute_until: Nanos,
    /// The next request vanishes.
    pub(crate) swallow_next: bool,
}

pub(crate) struct Soloist {
    pub(crate) id: SoloistId,
    pub(crate) started: Nanos,
    pub(crate) instance: InstanceId,
    pub(crate) node: Node,
    /// The guards that it has started and not reaped.
    pub(crate) trees: Vec<HeldTree>,
    pub(crate) frozen: bool,
    /// It is about to run, and its host is stalled.
    pub(crate) asleep: bool,
    pub(crate) held_back: Vec<Event>,
    pub(crate) wake: u32,
    /// The watch that it listens to.
    pub(crate) listens_to: Option<WatchId>,
    /// The watch as the store has it.
    pub(crate) watch: Option<Watch>,
    /// The request that it waits for, and when it was sent.
    pub(crate) request: Option<(OpId, Nanos)>,
    /// When its child was asked to stop.
    pub(crate) draining_since: Option<Nanos>,
    pub(crate) newest: Newest,
    /// The record as it was last told, by a read or the watch.
    pub(crate) told: Option<Snapshot>,
    /// What the Pods' reports have proven.
    pub(crate) deaths: Deaths,
    /// Until when it believes in its lease.
    pub(crate) valid_until: Moment,
    /// Whose terms it has seen in the record.
    pub(crate) seen: Vec<(InstanceId, Term)>,
    /// The store has let it write.
    pub(crate) has_written: bool,
    /// The last write of which it was told that it landed, and as what.
    pub(crate) landed: Option<(OpId, Newest)>,
    /// When the store first refused it something, by its clock.
    pub(crate) refused_since: Option<Moment>,
    /// The term that it was last elected for.
    pub(crate) term: Option<Term>,
    pub(crate) exited: bool,
}

/// The newest state of the record that a replica knows of.
#[derive(Clone, Copy, Default)]
pub(crate) struct Newest {
    pub(crate) version: u64,
    /// Which write of whom it is, as far as it is signed.
    pub(crate) write: Option<(InstanceId, OpId)>,
    /// Since when it knows it.
    pub(crate) since: Nanos,
    /// How often the store had been set back by then.
    pub(crate) epoch: u32,
}

/// A guard and its tree, as soloist sees them.
pub(crate) struct HeldTree {
    pub(crate) id: ids::TreeId,
    pub(crate) tree: TreeIndex,
}

/// A watch that the store knows of.
pub(crate) struct Watch {
    pub(crate) id: WatchId,
    pub(crate) last_delivery: Nanos,
}

impl Host {
    pub(crate) fn draw(rng: &mut Rng, id: HostId, plan: &Plan) -> Self {
        // Two hosts differ by at most the stated tolerance.
        let tolerance = soloist_core::timings::Timings::RATE_TOLERANCE;
        let drift = tolerance * (rng.between(0, 1000) as f64 / 1000.0 - 0.5);
        let rate = 1.0 + if plan.one_machine { 0.0 } else { drift };
        let client_go = id >= plan.replicas;
        let name = match client_go {
            true => "client-go".to_owned(),
            false => format!("host-{id}"),
        };
        let identity = match plan.shared_identity && !client_go {
            true => "shared".to_owned(),
            false => name.clone(),
        };
        Self {
            clock: Clock::new(rng.between(1, 1000) * SECOND, rate),
            wall_skew: rng.between(0, 10 * SECOND) as i64 - 5 * SECOND as i64,
            container: rng.percent(50) && !plan.one_machine,
            pod: id as u32,
            identity: Identity::try_new(&identity).expect("a plain word"),
            name,
            link: Link::default(),
            disturbed_until: 0,
            soloist: None,
            client_go: None,
            frozen_since: None,
            thawed_at: 0,
            paused: false,
            held_back: Vec::new(),
            behaviour: Behaviour::default(),
            behaviour_until: 0,
            slow_exec_until: 0,
            stall_until: 0,
            stall: 0,
            last_step_down: None,
            ends_in_a_row: 0,
            done: false,
        }
    }

    pub(crate) fn new_soloist(
        &self,
        rng: &mut Rng,
        now: Nanos,
        id: SoloistId,
        plan: &Plan,
        host: HostId,
    ) -> Soloist {
        let instance = InstanceId::from_random(u128::from(rng.bits()) << 64 | u128::from(id.0));
        let config = election::Config {
            identity: self.identity.clone(),
            instance,
            pod: match self.container {
                true => pods::uid(self.pod),
                false => None,
            },
            timings: plan.timings[host],
            seed: rng.bits(),
        };
        Soloist {
            id,
            started: now,
            instance,
            node: Node::new(self.clock.read(now), config, self.policy(plan, host)),
            trees: Vec::new(),
            frozen: false,
            asleep: false,
            held_back: Vec::new(),
            wake: 0,
            listens_to: None,
            watch: None,
            request: None,
            draining_since: None,
            newest: Newest::default(),
            told: None,
            deaths: Deaths::NONE,
            valid_until: Moment::NEVER,
            seen: Vec::new(),
            has_written: false,
            landed: None,
            refused_since: None,
            term: None,
            exited: false,
        }
    }

    fn policy(&self, plan: &Plan, host: HostId) -> Policy {
        Policy {
            first_process: self.container,
            ..plan.policy(host)
        }
    }

    pub(crate) fn frozen(&self) -> bool {
        self.frozen_since.is_some()
    }

    pub(crate) fn wall(&self, now: Nanos) -> i64 {
        now as i64 + self.wall_skew
    }

    pub(crate) fn lease(&self, plan: &Plan, host: HostId) -> Duration {
        plan.timings[host].lease().get()
    }
}

impl Soloist {
    /// The tree that was started and is not known to be empty.
    pub(crate) fn tree(&self) -> Option<TreeIndex> {
        let id = self.node.tree()?;
        self.find_tree(id)
    }

    pub(crate) fn find_tree(&self, id: ids::TreeId) -> Option<TreeIndex> {
        self.trees.iter().find(|t| t.id == id).map(|t| t.tree)
    }
}
