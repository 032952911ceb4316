//! How calls and streams end.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use futures_util::FutureExt;
use soloist_core::ids::Token;

use super::Call;
use crate::panics::panic_message;

/// Why a call has no result.
#[derive(Debug)]
pub(crate) enum CallError<C> {
    Failed(C),
    TimedOut(Duration),
    Panicked(String),
}

impl<C> From<C> for CallError<C> {
    fn from(error: C) -> Self {
        Self::Failed(error)
    }
}

/// Why a stream has come to its end.
#[derive(Debug)]
pub(crate) enum Closed<E, C> {
    /// The shutdown was gone through. Whether the server has confirmed the end.
    Drained { confirmed: bool },
    /// The shutdown's time ran out.
    Cut,
    /// The server ended the stream.
    Ended,
    /// A later leader is at work.
    Fenced {
        #[cfg_attr(
            not(feature = "stream"),
            expect(dead_code, reason = "no queue says so")
        )]
        highest: Token,
    },
    /// The stream or a call failed.
    Failed { call: Call, error: CallError<C> },
    /// A message could not be handled.
    Unhandled(E),
    /// The handler panicked.
    Panicked(String),
}

impl<E, C> Closed<E, C> {
    /// Whether the user's work has failed, which no end of the time may hide.
    pub(super) fn is_unhandled(&self) -> bool {
        matches!(self, Self::Unhandled(_) | Self::Panicked(_))
    }
}

/// A call whose panic is an error, also if it panics before there is a future.
pub(crate) async fn caught<T, C, F>(call: impl FnOnce() -> F) -> Result<T, CallError<C>>
where
    F: Future<Output = Result<T, C>>,
{
    let panicked = |panic: Box<dyn Any + Send>| CallError::Panicked(panic_message(&*panic));
    let future = catch_unwind(AssertUnwindSafe(call)).map_err(panicked)?;
    let answer = AssertUnwindSafe(future).catch_unwind().await;
    answer.map_err(panicked)?.map_err(CallError::Failed)
}
