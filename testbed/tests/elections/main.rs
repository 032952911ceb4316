//! Elections on the real API server: the elector, its Kubernetes store, and client-go on the same Lease.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

#[path = "../shared/disturb.rs"]
mod disturb;

mod client_go;
mod conformance;
mod control_plane;
mod credentials;
mod deaths;
mod harness;
mod in_a_pod;
mod legacy;
mod links;
mod objects;
mod pair;
mod refusals;
mod requests;
#[path = "../../../crates/process/tests/common/skipped.rs"]
mod skipped;
mod takeover;
