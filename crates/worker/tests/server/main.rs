//! Servers that finish what they have accepted.

#![allow(clippy::unwrap_used, reason = "a test")]

mod child;
mod deadline;
mod grpc;
mod http1;
mod http2;
mod load;
mod panics;
mod peers;
mod stage;
mod storm;
#[cfg(feature = "server-tls")]
mod tls;
mod users;
mod vanished;
