//! A consumer of any server-streaming gRPC method.
//!
//! - It connects, opens the stream, hands messages to a handler, one at a time or several, and acknowledges what was
//!   handled, in order and in batches.
//! - When the stream breaks it begins anew after 1, 2, 4 … 30 s. A dead peer is noticed by HTTP/2's keepalive. What no
//!   waiting mends ends the consumer with an error.
//! - It reads no more than is handled: a slow handler slows the server down, and memory stays as it is.
//! - Its shutdown has an order: no new work; the server is told; what remains is handled and acknowledged; the server
//!   confirms the end; the connection is closed. All within the stream's time. What was not handled is not acknowledged.
//!
//! Delivery is at least once. For *exactly* once, keep the position together with the effect of the messages (in one
//! line, one transaction) in [`commit`](Subscriber::commit), and open the stream from what is kept there; acknowledgements then only
//! let the server forget.

mod connector;
mod consumer;
mod dependency_errors;
mod failure;
mod peer;
mod subscriber;
mod target;
#[cfg(feature = "tls")]
mod tls;

pub use crate::delivery::{Drain, End, Progress, State, Summary};
pub use consumer::{Consumer, ConsumerError};
pub use failure::{Failure, FailureKind, Verdict};
pub use subscriber::{Link, Subscriber};
pub use target::{Target, TargetError};
#[cfg(feature = "tls")]
pub use tls::Tls;
