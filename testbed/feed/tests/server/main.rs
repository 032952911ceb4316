//! The server as a process, over real gRPC.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;
mod draining;
mod faults;
mod fencing;
mod probing;
mod restarting;
mod subscribing;
mod tls;
