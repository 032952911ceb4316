//! From a stream of messages to acknowledgements, whatever the transport: one order of work, and one order of shutdown.

mod backlog;
mod closed;
mod in_hand;
mod incoming;
mod session;
mod slot;
mod state;
mod work;

use std::future::Future;
use std::time::Duration;

use soloist_core::ids::Token;

pub(crate) use backlog::Backlog;
pub(crate) use closed::{CallError, Closed, caught};
pub(crate) use session::Session;
pub use state::{End, Progress, State, Summary};

/// How a stream ends after its other side was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// The server was told. It sends what is under way and ends the stream, which confirms the end.
    UntilEnd,
    /// There is nothing to wait for.
    StopReading,
}

/// Whoever sends messages, and what is done with them.
pub(crate) trait Peer: Sync {
    type Message: Send;
    type Receipt: Send + Sync;
    /// Why a message could not be handled.
    type Error: Send;
    /// Why the stream or a call failed.
    type CallError: Send;

    fn handle(
        &self,
        message: Self::Message,
    ) -> impl Future<Output = Result<Self::Receipt, Self::Error>> + Send;
    fn commit(
        &self,
        receipt: Self::Receipt,
    ) -> impl Future<Output = Result<Self::Receipt, Self::Error>> + Send;
    fn acknowledge(
        &self,
        receipts: &[Self::Receipt],
    ) -> impl Future<Output = Result<(), Self::CallError>> + Send;
    fn drain(&self) -> impl Future<Output = Result<Drain, Self::CallError>> + Send;

    /// The token of a later leader, if that is what the error says.
    fn fenced_by(error: &Self::CallError) -> Option<Token>;
    /// Whether the stream may end with such an error. Then one message is read ahead of the work, to look for it.
    fn can_be_refused(&self) -> bool;
    /// Whether acknowledgements may still arrive after the stream has failed.
    fn outlives_stream(&self) -> bool;
    /// The failure, for people.
    fn describe(&self, call: Call, error: &CallError<Self::CallError>) -> String;
}

/// What was under way when something failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Next,
    Acknowledge,
    Drain,
}

/// How much is under way at the same time, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) concurrency: usize,
    /// So many are in hand or wait to be acknowledged.
    pub(crate) window: usize,
    pub(crate) acknowledge_every: Duration,
    /// For an acknowledgement.
    pub(crate) call_limit: Duration,
}

impl Settings {
    pub(crate) const DEFAULT: Self = Self {
        concurrency: 1,
        window: 100_000,
        acknowledge_every: Duration::from_millis(100),
        call_limit: Duration::from_secs(10),
    };

    pub(crate) fn backlog<R>(&self) -> Backlog<R> {
        Backlog::new(self.window, self.acknowledge_every)
    }

    pub(crate) fn with_concurrency(self, many: usize) -> Self {
        Self {
            concurrency: many,
            window: self.window.max(many),
            ..self
        }
    }

    pub(crate) fn with_window(self, many: usize) -> Self {
        Self {
            window: many.max(self.concurrency),
            ..self
        }
    }
}
