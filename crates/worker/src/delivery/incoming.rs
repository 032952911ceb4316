//! What comes from the stream, at most one message ahead of the work.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll};

use futures_util::{Stream, StreamExt};

use super::closed::CallError;
use crate::panics::panic_message;

/// A stream whose end can be looked for while there is no room for its messages.
pub(crate) struct Incoming<R, M> {
    stream: R,
    /// Came when only the end was looked for.
    ahead: Option<M>,
    has_ended: bool,
}

impl<R, M, C> Incoming<R, M>
where
    R: Stream<Item = Result<M, C>> + Unpin,
{
    pub(crate) fn new(stream: R) -> Self {
        Self {
            stream,
            ahead: None,
            has_ended: false,
        }
    }

    /// Whether the next message has come already.
    pub(crate) fn is_ahead(&self) -> bool {
        self.ahead.is_some()
    }

    /// The stream itself, while nothing is [ahead](Self::is_ahead). Panics in it are the caller's to catch, and its
    /// [end](Self::end) the caller's to note.
    pub(crate) fn stream(&mut self) -> &mut R {
        debug_assert!(self.ahead.is_none(), "that one comes first");
        &mut self.stream
    }

    /// There is nothing more to read.
    pub(crate) fn end(&mut self) {
        self.has_ended = true;
    }

    /// The next message, `Ok(None)` at the end. Not to be asked again after the end.
    pub(crate) fn poll_next<E>(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<M>, CallError<E>>>
    where
        C: Into<CallError<E>>,
    {
        if let Some(message) = self.ahead.take() {
            return Poll::Ready(Ok(Some(message)));
        }
        self.poll_stream(context)
    }

    /// The stream's end, if no message is before it: the first one is kept, and nothing more is read. So the server is slowed down as if
    /// nobody read.
    pub(crate) fn poll_end<E>(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), CallError<E>>>
    where
        C: Into<CallError<E>>,
    {
        if self.ahead.is_some() || self.has_ended {
            return Poll::Pending;
        }
        match self.poll_stream(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Ready(Ok(None)) => Poll::Ready(Ok(())),
            Poll::Ready(Ok(message)) => {
                self.ahead = message;
                Poll::Pending
            }
        }
    }

    fn poll_stream<E>(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<M>, CallError<E>>>
    where
        C: Into<CallError<E>>,
    {
        let polled = catch_unwind(AssertUnwindSafe(|| self.stream.poll_next_unpin(context)));
        let next = match polled {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(next)) => next.transpose().map_err(Into::into),
            Err(panic) => Err(CallError::Panicked(panic_message(&*panic))),
        };
        if !matches!(next, Ok(Some(_))) {
            self.end();
        }
        Poll::Ready(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::stream::poll_fn;
    use std::task::Waker;

    #[test]
    fn a_stream_that_panics_has_ended_and_is_not_asked_again() {
        let stream = poll_fn(|_| -> Poll<Option<Result<u32, &str>>> { panic!("broke") });
        let mut incoming = Incoming::new(stream);
        let mut context = Context::from_waker(Waker::noop());
        let ended: Poll<Result<(), CallError<&str>>> = incoming.poll_end(&mut context);
        assert!(
            matches!(&ended, Poll::Ready(Err(CallError::Panicked(message))) if message == "broke"),
            "{ended:?}"
        );
        let again: Poll<Result<(), CallError<&str>>> = incoming.poll_end(&mut context);
        assert!(again.is_pending());
    }
}
