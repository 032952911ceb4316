//! The consumer against a real gRPC server over loopback that does what the test says.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

mod acknowledging;
mod draining;
mod fencing;
mod harness;
mod hostile;
mod panics;
mod reconnecting;
mod server;
mod troubles;
