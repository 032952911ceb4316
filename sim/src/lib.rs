//! Whole replicas in virtual time: election, states, guard and child tree, as they are in production,
//! on hosts, links and a store that fail as a seed says.
//!
//! [`run()`] plays one schedule. After every step it checks what must always hold ([`check`]); when the
//! faults are over, that a leader with a running child appears within a bound and stays.

mod behaviour;
pub mod check;
mod client_go;
mod clock;
pub mod corpus;
mod faults;
mod freeze;
pub mod gaps;
mod guard;
mod hosts;
mod kill;
mod link;
mod orders;
pub mod plan;
mod pods;
mod queue;
mod rng;
pub mod run;
mod soloist;
mod store;
pub mod summary;
mod trace;
mod tree;
mod world;

pub use check::Violation;
pub use run::{Failure, Options, run};
pub use summary::Summary;
