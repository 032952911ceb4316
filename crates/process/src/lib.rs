//! A child and everything that it forks (its *tree*), and a *guard* that kills the tree when soloist cannot.
//!
//! ```text
//! soloist ──socketpair──▶ guard ──fork, exec──▶ child ──▶ whatever it forks
//!  (subreaper)             (subreaper)          (own process group, parent-death signal)
//! ```
//!
//! The guard is the same program, started again: call [`guard::run_if_guard`] first thing in `main`, before
//! any thread. It is armed with a deadline before the child exists, and kills the tree when told, when the
//! deadline passes without a new one, or when soloist is gone. When the *guard* is gone the kernel kills the
//! child, and soloist, who inherits the rest, kills that. One of the two is enough.
//!
//! - [`Supervisor`] makes the process a subreaper, reaps what nobody else reaps, and starts trees.
//! - [`Tree`] is one guard and its tree: deadlines and signals go in, [`TreeEvent`]s come out.
//! - [`ProcessManager`] is start, stop with a timeout, wait; and does nothing when there is nothing to do.
//!
//! # What is reached, and what is not
//!
//! A descendant is found however it detached itself (own session, double fork): it cannot leave the
//! guard's offspring. What it can do is to become another user whom a soloist without CAP_KILL may not
//! signal. Such a program also sheds the parent-death signal. Then a line of the log says who it is, and the tree is
//! never reported as empty.
//!
//! Closed standard streams are `/dev/null` for the child: the Rust runtime opens them before `main`.

mod abandoned;
mod clock_rate;
mod command;
pub mod guard;
mod held;
mod inherited;
mod manager;
mod message;
mod privileges;
mod procfs;
mod registry;
mod sender;
mod signal;
mod supervisor;
mod sweep;
mod sys;
mod terminal;
mod tree;
mod user;

pub use abandoned::{StillThere, kill_abandoned_trees};
pub use clock_rate::told_clock_rate;
pub use command::{Command, StopTo};
pub use held::{HeldSignals, hold_signals};
pub use inherited::was_ignored;
pub use manager::{ProcessManager, State, Stop};
pub use message::{SpawnError, SpawnStep};
pub use registry::{OwnChild, is_own_child, own_child};
pub use sender::{Descent, Received, ReturnAddress, Sender, receive};
pub use signal::{Signal, UnknownSignal};
pub use soloist_clock::now;
pub use soloist_core::replica::{Exit, SpawnFailure};
pub use supervisor::{SetupError, StartError, Supervisor};
pub use terminal::{Terminal, has_terminal};
pub use tree::{Tree, TreeEvent};
pub use user::{User, UserError};
