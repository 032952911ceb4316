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

    /// The next message, `Ok(None)` at the end. Not to be asked again after the end.
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<M>, C>> {
        if let Some(message) = self.ahead.take() {
            return Poll::Ready(Ok(Some(message)));
        }
        self.poll_stream(context)
    }

    /// The stream's end, if no message is before it: the first one is kept, and nothing more is read. So the server is slowed down as if
    /// nobody read.
    pub(crate) fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<Result<(), C>> {
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

    fn poll_stream(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<M>, C>> {
        let next = self.stream.poll_next_unpin(context).map(Option::transpose);
        self.has_ended = matches!(next, Poll::Ready(Ok(None) | Err(_)));
        next
    }
}
