//! From a message to its receipt: handled side by side, committed one at a time and in order.

use std::collections::VecDeque;
use std::future::Future;
use std::task::{Context, Poll};

use super::in_hand::InHand;
use super::slot::{Slot, WorkError};

/// All messages that were read and are not complete.
pub(crate) struct Work<H, F, K, G, R, E>
where
    F: Future<Output = Result<R, E>>,
{
    handle: H,
    commit: K,
    in_hand: InHand<F, R, E>,
    /// Handled, and one before them is being committed.
    handled: VecDeque<Result<R, WorkError<E>>>,
    committing: Slot<G>,
}

impl<H, F, K, G, R, E> Work<H, F, K, G, R, E>
where
    F: Future<Output = Result<R, E>>,
    G: Future<Output = Result<R, E>>,
    K: Fn(R) -> G,
{
    pub(crate) fn new(handle: H, commit: K) -> Self {
        Self {
            handle,
            commit,
            in_hand: InHand::new(),
            handled: VecDeque::new(),
            committing: Slot::empty(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        let committing = usize::from(!self.committing.is_empty());
        self.in_hand.len() + self.handled.len() + committing
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Begins with one more. Ready if it is complete at once, and nothing is before it.
    ///
    /// Otherwise it goes on with [`poll_complete`](Self::poll_complete), which has to be called again to be woken.
    #[inline]
    pub(crate) fn begin<M>(
        &mut self,
        message: M,
        context: &mut Context<'_>,
    ) -> Poll<Result<R, WorkError<E>>>
    where
        H: Fn(M) -> F,
    {
        let handle = &self.handle;
        match self.in_hand.begin(|| handle(message), context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(handled) => self.settle(handled, context),
        }
    }

    /// As [`begin`](Self::begin) while nothing is in hand, for a caller who catches panics and then [clears](Self::clear).
    #[inline]
    pub(crate) fn try_at_once<M>(
        &mut self,
        message: M,
        context: &mut Context<'_>,
    ) -> Poll<Result<R, E>>
    where
        H: Fn(M) -> F,
    {
        match self.in_hand.try_at_once((self.handle)(message), context) {
            Poll::Ready(Ok(receipt)) => {
                self.committing.try_at_once((self.commit)(receipt), context)
            }
            other => other,
        }
    }

    /// The next one in order that is complete. Pending also if there is none.
    pub(crate) fn poll_complete(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<R, WorkError<E>>> {
        if !self.committing.is_empty()
            && let Poll::Ready(committed) = self.committing.poll_result(context)
        {
            return Poll::Ready(committed);
        }
        while self.committing.is_empty()
            && let Some(handled) = self.handled.pop_front()
        {
            if let Poll::Ready(complete) = self.commit(handled, context) {
                return Poll::Ready(complete);
            }
        }
        // Those behind a commit go on meanwhile.
        while let Poll::Ready(handled) = self.in_hand.poll_next(context) {
            if let Poll::Ready(complete) = self.settle(handled, context) {
                return Poll::Ready(complete);
            }
        }
        Poll::Pending
    }

    #[inline]
    fn settle(
        &mut self,
        handled: Result<R, WorkError<E>>,
        context: &mut Context<'_>,
    ) -> Poll<Result<R, WorkError<E>>> {
        if !self.committing.is_empty() || !self.handled.is_empty() {
            self.handled.push_back(handled);
            return Poll::Pending;
        }
        self.commit(handled, context)
    }

    #[inline]
    fn commit(
        &mut self,
        handled: Result<R, WorkError<E>>,
        context: &mut Context<'_>,
    ) -> Poll<Result<R, WorkError<E>>> {
        match handled {
            Err(error) => Poll::Ready(Err(error)),
            Ok(receipt) => {
                let commit = &self.commit;
                self.committing.fill(|| commit(receipt));
                self.committing.poll_result(context)
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        self.in_hand.clear();
        self.handled.clear();
        self.committing.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::future::BoxFuture;
    use std::future::poll_fn;
    use std::sync::{Arc, Mutex};
    use tokio::sync::Notify;

    type Outcome = Result<u32, &'static str>;
    type Failed = WorkError<&'static str>;

    /// Handlers and commits that end when the test says so, by number.
    #[derive(Clone, Default)]
    struct Gates {
        handle: Arc<[Notify; 8]>,
        commit: Arc<[Notify; 8]>,
        log: Arc<Mutex<Vec<String>>>,
    }

    impl Gates {
        fn handle(&self, number: u32) -> BoxFuture<'static, Outcome> {
            let gates = self.clone();
            Box::pin(async move {
                gates.handle[number as usize].notified().await;
                gates.note(format!("handled {number}"));
                match number {
                    6 => Err("six"),
                    7 => panic!("seven"),
                    _ => Ok(number),
                }
            })
        }

        fn commit(&self, number: u32) -> BoxFuture<'static, Outcome> {
            let gates = self.clone();
            gates.note(format!("committing {number}"));
            Box::pin(async move {
                gates.commit[number as usize].notified().await;
                Ok(number)
            })
        }

        fn note(&self, text: String) {
            self.log.lock().unwrap().push(text);
        }

        fn log(&self) -> Vec<String> {
            std::mem::take(&mut *self.log.lock().unwrap())
        }
    }

    macro_rules! work {
        ($gates:expr) => {{
            let (handle, commit) = ($gates.clone(), $gates.clone());
            Work::new(
                move |number: u32| handle.handle(number),
                move |number: u32| commit.commit(number),
            )
        }};
    }

    /// What is complete by now.
    macro_rules! complete {
        ($work:expr) => {
            poll_fn(|context| {
                Poll::Ready(poll_all(|context| $work.poll_complete(context), context))
            })
            .await
        };
    }

    fn poll_all(
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<Result<u32, Failed>>,
        context: &mut Context<'_>,
    ) -> Vec<Result<u32, Failed>> {
        std::iter::from_fn(|| match poll(context) {
            Poll::Ready(done) => Some(done),
            Poll::Pending => None,
        })
        .collect()
    }

    macro_rules! begin {
        ($work:expr, $number:expr) => {
            poll_fn(|context| Poll::Ready($work.begin($number, context))).await
        };
    }

    #[tokio::test]
    async fn a_later_message_is_not_committed_before_an_earlier_one() {
        let gates = Gates::default();
        let mut work = work!(gates);
        for number in 1..=3 {
            assert_eq!(begin!(work, number), Poll::Pending);
        }
        gates.handle[3].notify_one();
        gates.handle[2].notify_one();
        assert_eq!(complete!(work), []);
        gates.commit[3].notify_one();
        gates.handle[1].notify_one();
        assert_eq!(complete!(work), []);
        assert_eq!(gates.log().last().unwrap(), "committing 1");
        gates.commit[1].notify_one();
        assert_eq!(complete!(work), [Ok(1)]);
        assert_eq!(gates.log(), ["committing 2"]);
        gates.commit[2].notify_one();
        assert_eq!(complete!(work), [Ok(2), Ok(3)]);
        assert!(work.is_empty());
    }

    #[tokio::test]
    async fn handlers_go_on_while_another_message_is_committed() {
        let gates = Gates::default();
        let mut work = work!(gates);
        gates.handle[1].notify_one();
        assert_eq!(begin!(work, 1), Poll::Pending);
        assert_eq!(begin!(work, 2), Poll::Pending);
        gates.handle[2].notify_one();
        assert_eq!(complete!(work), []);
        assert_eq!(gates.log(), ["handled 1", "committing 1", "handled 2"]);
        assert_eq!(work.len(), 2);
    }

    #[tokio::test]
    async fn an_error_or_a_panic_comes_after_what_was_before_it() {
        for (bad, expected) in [
            (6, WorkError::Failed("six")),
            (7, WorkError::Panicked("seven".to_owned())),
        ] {
            let gates = Gates::default();
            let mut work = work!(gates);
            assert_eq!(begin!(work, 1), Poll::Pending);
            assert_eq!(begin!(work, bad), Poll::Pending);
            gates.handle[bad as usize].notify_one();
            assert_eq!(complete!(work), []);
            gates.handle[1].notify_one();
            gates.commit[1].notify_one();
            assert_eq!(complete!(work), [Ok(1), Err(expected)]);
        }
    }

    #[tokio::test]
    async fn nothing_is_left_of_what_was_cleared() {
        let gates = Gates::default();
        let mut work = work!(gates);
        gates.handle[1].notify_one();
        assert_eq!(begin!(work, 1), Poll::Pending);
        assert_eq!(begin!(work, 2), Poll::Pending);
        work.clear();
        assert!(work.is_empty());
        gates.handle[3].notify_one();
        gates.commit[3].notify_one();
        assert_eq!(begin!(work, 3), Poll::Ready(Ok(3)));
    }
}
