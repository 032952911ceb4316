//! Servers that finish what they have accepted.

#![allow(clippy::unwrap_used, reason = "a test")]

mod deadline;
mod grpc;
mod http1;
mod http2;
mod stage;
mod storm;
