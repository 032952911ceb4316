//! How a child behaves.

use crate::clock::{MILLI, Nanos, SECOND};
use crate::queue::HostId;
use crate::world::World;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Behaviour {
    pub(crate) spawns: bool,
    pub(crate) ready_after: Option<Nanos>,
    pub(crate) drains_for: Nanos,
    pub(crate) ignores_stop: bool,
    pub(crate) crashes_after: Option<Nanos>,
    /// It ends in order by itself: a job that is done.
    pub(crate) completes_after: Option<Nanos>,
    /// Detached processes that outlive the child and ignore the stop signal.
    pub(crate) descendants: u32,
    pub(crate) sick: bool,
    pub(crate) kill: Kill,
}

/// What SIGKILL does to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kill {
    AtOnce,
    /// It stops at once, and is gone after this long.
    Takes(Nanos),
    /// It is in uninterruptible sleep ("D"), and stays there until the faults are over.
    Stuck,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            spawns: true,
            ready_after: Some(50 * MILLI),
            drains_for: 100 * MILLI,
            ignores_stop: false,
            crashes_after: None,
            completes_after: None,
            descendants: 0,
            sick: false,
            kill: Kill::AtOnce,
        }
    }
}

impl Behaviour {
    pub(crate) fn is_flawed(self) -> bool {
        let Self {
            ready_after,
            completes_after,
            ..
        } = self;
        let sound = Self {
            ready_after,
            completes_after,
            ..Self::default()
        };
        self != sound || ready_after.is_none()
    }
}

impl World {
    pub(crate) fn draw_behaviour(&mut self, host: HostId) -> Behaviour {
        let host = &self.hosts[host];
        let behaviour = match self.now < host.behaviour_until {
            true => host.behaviour,
            false => Behaviour::default(),
        };
        let job = self.plan.once;
        let lease = self.plan.longest_lease();
        Behaviour {
            ready_after: behaviour
                .ready_after
                .map(|most| self.rng.between(MILLI, most)),
            completes_after: job.then(|| self.rng.between(lease / 4, 3 * lease)),
            ..behaviour
        }
    }

    /// How long it takes a forked process to become its program.
    pub(crate) fn exec_delay(&mut self, host: HostId) -> Nanos {
        match self.now < self.hosts[host].slow_exec_until {
            true => self.rng.between(SECOND, 8 * SECOND),
            false => self.rng.between(MILLI, 20 * MILLI),
        }
    }
}
