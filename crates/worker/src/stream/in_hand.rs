//! Messages that are being handled, in the order in which they came.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;

/// The handlers at work. One that is done when it is first asked costs no allocation.
pub(super) struct InHand<F: Future> {
    waiting: FuturesOrdered<Place<F>>,
    /// For the next one.
    free: Place<F>,
}

impl<F: Future> InHand<F> {
    pub(super) fn new() -> Self {
        Self {
            waiting: FuturesOrdered::new(),
            free: Place::empty(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Begins with one more, which is made where it stays. Ready if it is done at once and nothing is before it.
    ///
    /// Otherwise it goes on with [`poll_next`](Self::poll_next), which has to be called again to be woken.
    #[inline]
    pub(super) fn begin(
        &mut self,
        make: impl FnOnce() -> F,
        context: &mut Context<'_>,
    ) -> Poll<F::Output> {
        self.free.0.set(Some(make()));
        if self.waiting.is_empty()
            && let Poll::Ready(done) = Pin::new(&mut self.free).poll(context)
        {
            self.free.0.set(None);
            return Poll::Ready(done);
        }
        let taken = std::mem::replace(&mut self.free, Place::empty());
        self.waiting.push_back(taken);
        Poll::Pending
    }

    /// What has become of the oldest. Pending also if there is none.
    pub(super) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<F::Output> {
        match self.waiting.poll_next_unpin(context) {
            Poll::Ready(Some(done)) => Poll::Ready(done),
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }

    pub(super) fn clear(&mut self) {
        self.waiting.clear();
    }
}

/// Where a future stays while it is asked: it may not be moved, but its place can be used again.
struct Place<F>(Pin<Box<Option<F>>>);

impl<F> Place<F> {
    fn empty() -> Self {
        Self(Box::pin(None))
    }
}

impl<F: Future> Future for Place<F> {
    type Output = F::Output;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        match self.0.as_mut().as_pin_mut() {
            Some(future) => future.poll(context),
            None => Poll::Pending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::{BoxFuture, FutureExt};
    use std::future::{pending, poll_fn, ready};
    use tokio::sync::oneshot;

    type Work = BoxFuture<'static, u32>;

    async fn begin(in_hand: &mut InHand<Work>, work: Work) -> Poll<u32> {
        let mut work = Some(work);
        poll_fn(|context| Poll::Ready(work.take().map(|work| in_hand.begin(|| work, context))))
            .await
            .unwrap()
    }

    fn waiting() -> (oneshot::Sender<u32>, Work) {
        let (sender, receiver) = oneshot::channel();
        (sender, receiver.map(|done| done.unwrap()).boxed())
    }

    #[tokio::test]
    async fn what_is_done_at_once_is_not_in_hand() {
        let mut in_hand = InHand::new();
        assert_eq!(begin(&mut in_hand, ready(1).boxed()).await, Poll::Ready(1));
        assert_eq!(begin(&mut in_hand, ready(2).boxed()).await, Poll::Ready(2));
        assert!(in_hand.is_empty());
    }

    #[tokio::test]
    async fn what_is_done_at_once_waits_for_those_before_it() {
        let mut in_hand = InHand::new();
        let (first, work) = waiting();
        assert_eq!(begin(&mut in_hand, work).await, Poll::Pending);
        assert_eq!(begin(&mut in_hand, ready(2).boxed()).await, Poll::Pending);
        assert_eq!(in_hand.len(), 2);
        let later = tokio::spawn(async move {
            let mut done = Vec::new();
            for _ in 0..2 {
                done.push(poll_fn(|context| in_hand.poll_next(context)).await);
            }
            done
        });
        tokio::task::yield_now().await;
        first.send(1).unwrap();
        assert_eq!(later.await.unwrap(), [1, 2]);
    }

    #[tokio::test]
    async fn nothing_is_left_of_what_was_cleared() {
        let mut in_hand = InHand::new();
        assert_eq!(begin(&mut in_hand, pending().boxed()).await, Poll::Pending);
        in_hand.clear();
        assert!(in_hand.is_empty());
        assert_eq!(begin(&mut in_hand, ready(2).boxed()).await, Poll::Ready(2));
    }
}
