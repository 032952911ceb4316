//! What comes from the stream, at most one message ahead of the work.

use std::task::{Context, Poll};

use futures_util::{Stream, StreamExt};

/// A stream whose end can be looked for while there is no room for its messages.
pub(crate) struct Incoming<R, M> {
    stream: R,
    /// Came when only the end was looked for.
    ahead: Option<M>,
    has_ended: bool,
}

impl<R, M, X> Incoming<R, M>
where
    R: Stream<Item = Result<M, X>> + Unpin,
{
    pub(crate) fn new(stream: R) -> Self {
        Self {
            stream,
            ahead: None,
            has_ended: false,
        }
    }

    /// The next message, `Ok(None)` at the end. Not to be asked again after the end.
    #[inline]
    pub(crate) fn poll_next<C>(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<M>, C>>
    where
        X: Into<C>,
    {
        if self.ahead.is_some() {
            return Poll::Ready(Ok(self.ahead.take()));
        }
        self.poll_stream(context)
    }

    /// The stream's end, if no message is before it: the first one is kept, and nothing more is read. So the server is slowed down as if
    /// nobody read.
    pub(crate) fn poll_end<C>(&mut self, context: &mut Context<'_>) -> Poll<Result<(), C>>
    where
        X: Into<C>,
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

    #[inline]
    fn poll_stream<C>(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<M>, C>>
    where
        X: Into<C>,
    {
        match self.stream.poll_next_unpin(context) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(Ok(message))) => Poll::Ready(Ok(Some(message))),
            Poll::Ready(Some(Err(error))) => {
                self.has_ended = true;
                Poll::Ready(Err(error.into()))
            }
            Poll::Ready(None) => {
                self.has_ended = true;
                Poll::Ready(Ok(None))
            }
        }
    }
}
