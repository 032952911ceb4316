//! The replica: what becomes of the child, given the lease, the child itself and the signals?
//!
//! ```text
//!  Follower ──elected──▶ PreLeader ──ready──▶ Leader ──lost, handed over──▶ PreFollower ──tree empty──▶ Follower
//!                            ▲ └──cannot start──▶ Follower  │
//!                            └───────crashed, unhealthy─────┘
//!  any state ──stop signal──▶ Terminating ──tree empty, lease released──▶ exit
//! ```
//!
//! A state is what the tree does (nothing, starting, up, stopping, being killed) and what we intend (run, restart, step down,
//! terminate): `state.rs`. Whether the tree *lives* and whether it *may act* are two facts; the second is the lease.
//! One table, [`Replica::handle`]: every event is answered in every state. The caller carries events in
//! and [`Action`]s out, in order, and calls [`Replica::handle_timeout`] at [`Replica::next_deadline`].

mod crashes;
mod starting;
mod state;
mod stopping;
mod table;
#[cfg(test)]
mod tests;

use core::time::Duration;

use crate::backoff::Backoff;
use crate::election::{Elected, Loss};
use crate::ids::{Term, Token};
use crate::ladder::Ladder;
use crate::time::Moment;
use crate::timings::Timings;

pub use state::StateName;
pub use table::Replica;

/// How a replica behaves.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// For the margins between the lease's end and the kill.
    pub timings: Timings,
    /// How long a planned stop may take.
    pub ladder: Ladder,
    /// What a lost lease means for the child.
    pub on_loss: OnLoss,
    /// The child must be ready this long after it was started.
    pub start_limit: Duration,
    /// What happens when the child ends by itself.
    pub restarts: Restarts,
    /// Health checks that fail in a row until something is done.
    pub unhealthy_after: u32,
    /// What is done then.
    pub on_unhealthy: OnUnhealthy,
    /// After giving the lease away, stay out for this long, so that another replica wins.
    pub cool_down: Duration,
    /// soloist is the first process of a PID namespace: when it exits, the kernel kills everything else in it.
    pub first_process: bool,
    /// Run the child to its end, once, and exit with its code.
    pub once: bool,
}

/// What a lease that could not be renewed means for the child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnLoss {
    /// The tree is dead before the lease ends, whatever grace the child would like.
    Strict,
    /// The child gets its whole stop timeout. The next leader may start its own meanwhile: two run.
    Graceful,
}

/// What to do about a child that runs but is not well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnUnhealthy {
    /// Stop it in order and start it again here.
    Restart,
    /// Stop it in order and let another replica lead.
    StepDown,
}

/// Restarting a child that ended by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Restarts {
    /// The first restart is at once; then these waits.
    pub backoff: Backoff,
    /// A child that ran this long starts afresh: the next restart is at once again.
    pub stable_after: Duration,
    /// One more crash than this within `window`, and another replica may try.
    pub most: u32,
    /// The time over which crashes are counted.
    pub window: Duration,
}

impl Restarts {
    /// 1, 2, 4 … 30 s; afresh after a minute; at most 5 in 5 minutes.
    pub const STANDARD: Self = Self {
        backoff: Backoff::STANDARD,
        stable_after: Duration::from_secs(60),
        most: 5,
        window: Duration::from_secs(300),
    };
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// With this code.
    Code(u8),
    /// By this signal.
    Signal(u8),
}

/// Why the child could not be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpawnFailure {
    /// There is no such program.
    NotFound,
    /// It is there but cannot be run.
    NotExecutable,
    /// The system would not: no memory, no processes left.
    System,
}

/// What happens to a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The election: we hold the lease.
    Elected(Elected),
    /// The election: we hold it until then.
    Extended(Moment),
    /// The election: we do not lead any more.
    Lost(Loss),
    /// The election: what we held is released, or nothing more can be done about it.
    Left,
    /// The election: the store will not have us, and never would.
    Refused,
    /// The child could not be started; its tree is empty.
    SpawnFailed(SpawnFailure),
    /// The child is up.
    Ready,
    /// The child itself has ended; others of its tree may live on.
    Exited(Exit),
    /// No process of the child's tree is left.
    TreeEmpty,
    /// The guard has died.
    GuardLost,
    /// A health check passed.
    Healthy,
    /// A health check failed.
    Unhealthy,
    /// The first SIGTERM or SIGINT, or one more.
    StopSignal,
    /// Somebody asks us to let another replica lead.
    HandOver,
    /// Somebody asks that the child be stopped and nobody lead for now.
    Pause,
    /// The election: the last leader has released to us by name.
    NamedHeir,
    /// A deadline has been reached.
    Timer(Timer),
}

/// The deadlines of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// The tree must be killed: its stop timeout or its lease ends.
    Kill,
    /// The child should have been ready by now.
    ReadyLimit,
    /// The child is to be started again.
    Restart,
    /// We may stand for election again.
    CoolDown,
    /// A kill takes long: time to say so again.
    KillReminder,
    /// A kill takes so long that only the kernel can end it in time.
    GiveUp,
}

/// What is to be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// To the election: take part.
    Stand,
    /// To the election: the term ends as planned; keep the lease until [`Action::Leave`].
    Resign,
    /// To the election: release what we hold. The tree is empty.
    Leave,
    /// Arm a guard with the deadline and let it start the child.
    Spawn {
        /// For the child's environment.
        term: Term,
        /// For the child's environment.
        token: Token,
        /// The guard's first deadline.
        deadline: Moment,
    },
    /// Tell the guard the new deadline.
    Deadline(Moment),
    /// Send the stop signal to the child's group.
    StopChild,
    /// SIGKILL every process of the tree, directly and through the guard, until it is empty.
    KillTree,
    /// Say that the tree, whose kill was ordered then, is still not empty.
    TellOfKill {
        /// When it was ordered.
        since: Moment,
    },
    /// End the process. The tree is empty, unless we are the first process of a PID namespace.
    Exit(Outcome),
}

/// How the replica ends, as an exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// 0: all in order.
    Clean,
    /// 1: the child had to be killed.
    Killed,
    /// 3: the store refused us for good.
    Refused,
    /// 5: told to stop before the program ran, which was to run once.
    NotRun,
    /// 126 or 127, or 6 if the system would not: the child could not be started.
    CannotRun(SpawnFailure),
    /// The child's own code, or 128 and its signal.
    Child(Exit),
}

impl Outcome {
    /// Of a replica that is told to stop while it runs nothing.
    #[must_use]
    pub const fn of_an_idle_end(once: bool) -> Self {
        match once {
            true => Self::NotRun,
            false => Self::Clean,
        }
    }

    /// As the process's exit code.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Clean => 0,
            Self::Killed => 1,
            Self::Refused => 3,
            Self::NotRun => 5,
            Self::CannotRun(SpawnFailure::System) => 6,
            Self::CannotRun(SpawnFailure::NotExecutable) => 126,
            Self::CannotRun(SpawnFailure::NotFound) => 127,
            Self::Child(Exit::Code(code)) => code,
            Self::Child(Exit::Signal(signal)) => 128u8.saturating_add(signal),
        }
    }
}
