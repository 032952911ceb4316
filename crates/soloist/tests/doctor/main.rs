//! `soloist doctor`: everything that can be broken is broken on the real thing, and seen.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod cluster;
mod file;
mod lease;
mod machine;
mod no_election;
mod patient;
mod rights;
mod troubles;
mod workload;
