//! Leader election for any Rust program.
//!
//! Several replicas of a program share a lease; at most one of them holds it at a time. Every decision is
//! made by the pure machine [`soloist_core::election::Election`]; this crate gives it a clock, a network and
//! a place to keep the lease. It adds no rule of its own.
//!
//! - [`Elector`]: what most programs want. `lead().await` gives a [`Term`], and its token fences what the
//!   program writes elsewhere.
//! - [`Driver`]: the level below, for programs that act on every event themselves.
//! - [`StoreCarrier`]: only the way to the store and back, for who drives the machines of [`soloist_core`].
//! - [`LeaseStore`]: where the lease lives. `kubernetes`, `etcd`, `file` and `memory`, each behind
//!   the feature of that name.
//!
//! ```
//! use soloist_elector::core::ids::Identity;
//! use soloist_elector::{Elector, memory::MemoryStore};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store = MemoryStore::new();
//! let elector = Elector::builder(store).identity(Identity::try_new("replica-1")?).spawn()?;
//!
//! let term = elector.lead().await?;
//! println!("term {} with token {}", term.number(), term.token());
//! match term.run(work(term.token().get())).await {
//!     None => println!("lost: the work was stopped"),
//!     Some(()) => println!("done"),
//! }
//! term.finish();
//!
//! elector.shutdown().await?;
//! # Ok(())
//! # }
//! # async fn work(_token: u64) {}
//! ```
//!
//! # What is guaranteed
//!
//! While [`Term::is_valid`] is true no other replica leads, under the conditions that
//! [`soloist_core::election`] states. [`Term::cancelled`] fires no later than one kill margin (a tenth of the
//! lease) before another replica could lead.
//!
//! # What is not
//!
//! That the program has stopped by then: a library cannot stop its caller. Work that must never overlap
//! checks [`Term::is_valid`], or better, sends [`Term::token`] along and has the receiver refuse lower ones.

#![forbid(unsafe_code)]

#[cfg(any(feature = "etcd", feature = "kubernetes"))]
mod apart;
pub mod carrier;
#[cfg(any(feature = "etcd", feature = "kubernetes"))]
mod causes;
pub mod clock;
pub mod driver;
pub mod elector;
#[cfg(feature = "etcd")]
pub mod etcd;
#[cfg(feature = "file")]
pub mod file;
#[cfg(any(feature = "etcd", feature = "file"))]
mod form;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
#[cfg(feature = "memory")]
pub mod memory;
#[cfg(any(feature = "etcd", feature = "file", feature = "kubernetes"))]
pub mod orders;
pub mod random;
mod readable;
pub mod repeats;
#[cfg(any(feature = "etcd", feature = "file", feature = "kubernetes"))]
mod signature;
pub mod store;
#[cfg(feature = "testing")]
pub mod testing;

pub use carrier::{Arrival, StoreCarrier};
pub use driver::{Driver, DriverEvent, DriverHandle};
pub use elector::{Elector, ElectorError, Leadership, Term, default_identity};
pub use soloist_core as core;
pub use store::{LeaseStore, Refusal, StoreError, Stored, Throttling, WatchEnded};
