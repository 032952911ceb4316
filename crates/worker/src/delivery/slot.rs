//! A place on the heap for one future after the other.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::panics::panic_message;

/// Why the user's work has no result.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WorkError<E> {
    Failed(E),
    Panicked(String),
}

/// Where a future stays while it is polled: it may not be moved, but its allocation can be used again. A panic in it is an error.
pub(crate) struct Slot<F> {
    future: Pin<Box<Option<F>>>,
    /// The future could not even be made.
    panicked: Option<String>,
}

impl<F> Slot<F> {
    pub(crate) fn empty() -> Self {
        Self {
            future: Box::pin(None),
            panicked: None,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.future.is_none() && self.panicked.is_none()
    }

    pub(crate) fn clear(&mut self) {
        self.future.set(None);
        self.panicked = None;
    }

    /// Makes a future in it. A panic is its result.
    #[inline]
    pub(crate) fn fill(&mut self, make: impl FnOnce() -> F) {
        let made = catch_unwind(AssertUnwindSafe(|| self.future.set(Some(make()))));
        if let Err(panic) = made {
            self.panicked = Some(panic_message(&*panic));
        }
    }
}

impl<F, R, E> Slot<F>
where
    F: Future<Output = Result<R, E>>,
{
    /// Puts a future into it and polls it once. Empty again if that was enough.
    ///
    /// A panic in it is the caller's to catch, who has to [`clear`](Self::clear) it then.
    #[inline]
    pub(crate) fn try_at_once(
        &mut self,
        future: F,
        context: &mut Context<'_>,
    ) -> Poll<Result<R, E>> {
        self.future.set(Some(future));
        let Some(future) = self.future.as_mut().as_pin_mut() else {
            return Poll::Pending;
        };
        let polled = future.poll(context);
        if polled.is_ready() {
            self.future.set(None);
        }
        polled
    }

    /// The future's result, after which the slot is empty. Pending while it is empty.
    #[inline]
    pub(crate) fn poll_result(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<R, WorkError<E>>> {
        if let Some(message) = self.panicked.take() {
            return Poll::Ready(Err(WorkError::Panicked(message)));
        }
        let Some(future) = self.future.as_mut().as_pin_mut() else {
            return Poll::Pending;
        };
        // What panicked is dropped and never polled again.
        let polled = catch_unwind(AssertUnwindSafe(|| future.poll(context)));
        let result = match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(result)) => result.map_err(WorkError::Failed),
            Err(panic) => Err(WorkError::Panicked(panic_message(&*panic))),
        };
        self.future.set(None);
        Poll::Ready(result)
    }
}

impl<F, R, E> Future for Slot<F>
where
    F: Future<Output = Result<R, E>>,
{
    type Output = Result<R, WorkError<E>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_result(context)
    }
}
