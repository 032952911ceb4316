//! The rules of soloist as pure code.
//!
//! State machines, each fed with events and the local time, each answering with what to do:
//!
//! - [`node::Node`]: one whole replica, which is the next two as one machine. `soloist run` and the simulator drive it
//! - [`election::Election`]: who holds the lease, and until when may we believe it?
//! - [`replica::Replica`]: what becomes of the child, given the lease, the child and the signals?
//! - [`guard::Guard`]: when must the child's tree die although soloist says nothing?
//! - [`keepalive::Keepalive`]: does the guard still answer?
//!
//! and the settings that they run on: [`timings`], [`ladder`], [`backoff`].
//!
//! Nothing here reads a clock, draws a random number, waits or does I/O: the crate is `no_std`, time is
//! an argument ([`time::Moment`]) and randomness a seed. The simulator in `sim/` runs this very code.

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod backoff;
pub mod death;
pub mod election;
pub mod guard;
pub mod ids;
pub mod keepalive;
pub mod ladder;
pub mod node;
pub mod orders;
pub mod record;
pub mod replica;
pub mod spread;
pub mod time;
pub mod timings;
