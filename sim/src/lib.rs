//! Whole replicas in virtual time: election, states, guard and child tree, as they are in production,
//! on hosts, links and a store that fail as a seed says.
//!
//! [`run()`] plays one schedule. After every step it checks what must always hold ([`check`]); when the
//! faults are over, that a leader with a running child appears within a bound and stays.

pub mod check;
mod clock;
pub mod corpus;
mod dice;
mod faults;
mod hosts;
mod link;
pub mod plan;
mod queue;
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
