//! The child's side of soloist: for the program that must not run twice.
//!
//! A child needs none of this: soloist runs any program. With it, a child in Rust says when it is ready and alive, ends in
//! order and in time, consumes a gRPC stream so that nothing is lost, doubled or written by a leader of yesterday, and
//! serves requests without cutting one off.
//!
//! | | |
//! |---|---|
//! | [`Worker`] | in whose name we work, what we say, how we end. Works without soloist too |
//! | [`Shutdown`] | process → term → stream: when each began to stop, and what time is left |
//! | [`Part`], [`Worker::run`] | a stream, a queue, a server or a loop: any number of them are one child |
//! | [`stream`] | a consumer of any server-streaming gRPC method |
//! | [`source`] | the same for any queue |
//! | [`server`] | HTTP and gRPC servers that finish what they have accepted |
//! | [`Fence`], [`metadata`] | for the server on the other side: refuses an older token than the highest seen |
//!
//! # A whole child
//!
//! Any server-streaming method will do; here it is `Watch` of gRPC's own health service. Run it as
//! `soloist run --ready notify --health notify -- watcher`, three times.
//!
#![cfg_attr(feature = "stream", doc = "```no_run")]
#![cfg_attr(not(feature = "stream"), doc = "```ignore")]
//! use std::convert::Infallible;
//! use std::process::ExitCode;
//!
//! use soloist_worker::{Part, Worker};
//! use soloist_worker::stream::{Consumer, Link, Subscriber, Target};
//! use tonic::{Status, Streaming};
//! use tonic_health::pb::health_client::HealthClient;
//! use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
//!
//! struct Watcher;
//!
//! impl Subscriber for Watcher {
//!     type Message = HealthCheckResponse;
//!     type Receipt = ();
//!     type Error = Infallible;
//!
//!     async fn open(&self, link: Link, _: Option<&()>) -> Result<Streaming<HealthCheckResponse>, Status> {
//!         let request = HealthCheckRequest::default();
//!         Ok(HealthClient::new(link).watch(request).await?.into_inner())
//!     }
//!
//!     async fn handle(&self, message: HealthCheckResponse) -> Result<(), Infallible> {
//!         println!("{:?}", message.status());
//!         Ok(())
//!     }
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<ExitCode, Box<dyn std::error::Error>> {
//!     let worker = Worker::from_env()?;
//!     let consumer = Consumer::new(Target::new("http://127.0.0.1:50051")?);
//!     Ok(worker.run([Part::stream("health", consumer, Watcher)]).await)
//! }
//! ```
//!
//! The watchdog hears of it for as long as messages are finished. With positions, acknowledgements and a farewell to the server:
//! `examples/consumer` in soloist's repository.

#[cfg(feature = "source")]
mod delivery;
pub mod environment;
pub mod fence;
#[cfg(feature = "stream")]
pub mod metadata;
mod notify;
mod outcome;
mod panics;
pub mod part;
mod reports;
#[cfg(feature = "server")]
pub mod server;
pub mod shutdown;
#[cfg(feature = "source")]
pub mod source;
#[cfg(feature = "stream")]
pub mod stream;
mod worker;

pub use environment::{EnvironmentError, Role};
pub use fence::Fence;
pub use outcome::Outcome;
pub use part::{Part, Task};
pub use shutdown::Shutdown;
pub use soloist_core::backoff::Backoff;
pub use soloist_core::ids::{Term, Token};
pub use worker::{Worker, WorkerError};
