//! The child's side of soloist.

pub mod environment;
pub mod fence;
#[cfg(feature = "stream")]
pub mod metadata;
mod notify;
#[cfg(feature = "server")]
pub mod server;
pub mod shutdown;
#[cfg(feature = "stream")]
pub mod stream;
mod worker;

pub use environment::{EnvironmentError, Role};
pub use fence::Fence;
pub use shutdown::Shutdown;
pub use soloist_core::backoff::Backoff;
pub use soloist_core::ids::{Term, Token};
pub use worker::{Worker, WorkerError};
