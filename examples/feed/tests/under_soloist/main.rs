//! The feed's programs as children of real replicas.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod changes;
mod place;
mod stage;
