//! A host: its clock, its link to the store, and the soloist that runs on it.

use std::time::Duration;

use soloist_core::election::{self, Election};
use soloist_core::ids::{Identity, InstanceId, OpId, PodUid, Term};
use soloist_core::mutant::Defect;
use soloist_core::replica::{Action, Replica};

use crate::clock::{Clock, Nanos, SECOND};
use crate::dice::Dice;
use crate::plan::Plan;
use crate::queue::{Happening, HostId, SoloistId, TreeId};
use crate::tree::Behaviour;

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
    pub(crate) troubled_until: Nanos,
    pub(crate) soloist: Option<Soloist>,
    pub(crate) frozen_since: Option<Nanos>,
    /// What happened to its processes while it was frozen.
    pub(crate) held_back: Vec<Happening>,
    /// How the children are that start here until then.
    pub(crate) behaviour: Behaviour,
    pub(crate) behaviour_until: Nanos,
}

#[derive(Default)]
pub(crate) struct Link {
    pub(crate) cut_until: Nanos,
    pub(crate) lossy_until: Nanos,
    pub(crate) deaf_until: Nanos,
    pub(crate) slow_until: Nanos,
    pub(crate) refused_until: Nanos,
    pub(crate) watch_lags_until: Nanos,
}

pub(crate) struct Soloist {
    pub(crate) id: SoloistId,
    pub(crate) instance: InstanceId,
    pub(crate) election: Election,
    pub(crate) replica: Replica,
    pub(crate) tree: Option<TreeId>,
    pub(crate) frozen: bool,
    pub(crate) held_back: Vec<Happening>,
    pub(crate) wake: u32,
    pub(crate) watch: Option<Watch>,
    pub(crate) watch_epoch: u32,
    /// The request that it waits for.
    pub(crate) request: Option<OpId>,
    /// When its child was asked to stop.
    pub(crate) draining_since: Option<Nanos>,
    /// The newest version that it knows of.
    pub(crate) newest: u64,
    /// Whose terms it has seen in the record.
    pub(crate) seen: Vec<(InstanceId, Term)>,
    pub(crate) exited: bool,
}

/// A watch that the store knows of.
pub(crate) struct Watch {
    pub(crate) epoch: u32,
    pub(crate) last_delivery: Nanos,
}

impl Host {
    pub(crate) fn draw(dice: &mut Dice, id: HostId, plan: &Plan) -> Self {
        // Two hosts differ by at most the stated tolerance.
        let tolerance = soloist_core::timings::Timings::RATE_TOLERANCE;
        let drift = tolerance * (dice.between(0, 1000) as f64 / 1000.0 - 0.5);
        let rate = 1.0 + if plan.one_machine { 0.0 } else { drift };
        let name = format!("host-{id}");
        let identity = match plan.shared_identity {
            true => "shared".to_owned(),
            false => name.clone(),
        };
        Self {
            clock: Clock::new(dice.between(1, 1000) * SECOND, rate),
            wall_skew: dice.between(0, 10 * SECOND) as i64 - 5 * SECOND as i64,
            container: dice.percent(50) && !plan.one_machine,
            pod: id as u32,
            identity: Identity::try_new(&identity).expect("a plain word"),
            name,
            link: Link::default(),
            troubled_until: 0,
            soloist: None,
            frozen_since: None,
            held_back: Vec::new(),
            behaviour: Behaviour::default(),
            behaviour_until: 0,
        }
    }

    pub(crate) fn new_soloist(
        &self,
        dice: &mut Dice,
        id: SoloistId,
        plan: &Plan,
        host: HostId,
        defect: Defect,
    ) -> (Soloist, Vec<Action>) {
        let instance = InstanceId::from_random(u128::from(dice.bits()) << 64 | u128::from(id.0));
        let config = election::Config {
            identity: self.identity.clone(),
            instance,
            pod: match self.container {
                true => PodUid::new(&format!("pod-{}", self.pod)),
                false => None,
            },
            timings: plan.timings[host],
            seed: dice.bits(),
            defect,
        };
        let (replica, actions) = Replica::new(plan.policy(host));
        let soloist = Soloist {
            id,
            instance,
            election: Election::new(config),
            replica,
            tree: None,
            frozen: false,
            held_back: Vec::new(),
            wake: 0,
            watch: None,
            watch_epoch: 0,
            request: None,
            draining_since: None,
            newest: 0,
            seen: Vec::new(),
            exited: false,
        };
        (soloist, actions)
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
