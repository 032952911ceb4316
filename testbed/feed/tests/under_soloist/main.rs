//! The feed's programs as children of real replicas.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod bad_input;
mod changes;
mod load;
mod outage;
mod place;
mod shutdown;
mod stage;
mod web;
