//! Messages that are being handled, in the order in which they came.

use std::future::Future;
use std::task::{Context, Poll};

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;

use super::slot::{Slot, WorkError};

/// The handlers at work. One that is done when it is first polled costs no allocation.
pub(crate) struct InHand<F, R, E>
where
    F: Future<Output = Result<R, E>>,
{
    waiting: FuturesOrdered<Slot<F>>,
    /// For the next one.
    free: Slot<F>,
}

impl<F, R, E> InHand<F, R, E>
where
    F: Future<Output = Result<R, E>>,
{
    pub(crate) fn new() -> Self {
        Self {
            waiting: FuturesOrdered::new(),
            free: Slot::empty(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Begins with one more. Ready if it is done at once and nothing is before it.
    ///
    /// Otherwise it goes on with [`poll_next`](Self::poll_next), which has to be called again to be woken.
    #[inline]
    pub(crate) fn begin(
        &mut self,
        make: impl FnOnce() -> F,
        context: &mut Context<'_>,
    ) -> Poll<Result<R, WorkError<E>>> {
        self.free.fill(make);
        if self.waiting.is_empty()
            && let Poll::Ready(done) = self.free.poll_result(context)
        {
            return Poll::Ready(done);
        }
        self.keep();
        Poll::Pending
    }

    /// As [`begin`](Self::begin) while nothing is in hand, for a caller who catches panics and then [clears](Self::clear).
    #[inline]
    pub(crate) fn try_at_once(
        &mut self,
        future: F,
        context: &mut Context<'_>,
    ) -> Poll<Result<R, E>> {
        let polled = self.free.try_at_once(future, context);
        if polled.is_pending() {
            self.keep();
        }
        polled
    }

    /// The free slot is taken: it waits in line.
    #[cold]
    fn keep(&mut self) {
        let taken = std::mem::replace(&mut self.free, Slot::empty());
        self.waiting.push_back(taken);
    }

    /// What has become of the oldest. Pending also if there is none.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<R, WorkError<E>>> {
        match self.waiting.poll_next_unpin(context) {
            Poll::Ready(Some(done)) => Poll::Ready(done),
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }

    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
        self.free.clear();
    }
}
