//! Messages: as many in a row as are there and done at once.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::Stream;
use tokio::time::Instant;

use super::{BURST_TIME, Event, Phase, Session};
use crate::delivery::Peer;
use crate::delivery::closed::CallError;
use crate::delivery::incoming::Incoming;
use crate::delivery::slot::WorkError;
use crate::delivery::work::Work;
use crate::panics::panic_message;

/// So many messages at most are taken in one burst.
const BURST: usize = 512;
/// So many at most between two looks at the clock. There are fewer at a burst's beginning: a handler may be slow.
const STRIDE: usize = 32;

/// Why a stride has ended before it was through.
enum Stopped<P: Peer> {
    /// Nothing more has come, or the shutdown has begun.
    Dry,
    /// A message is in hand: it is not done at once.
    InHand,
    Unhandled(WorkError<P::Error>),
    End(Result<(), CallError<P::CallError>>),
}

impl<P: Peer> Session<'_, P> {
    /// Goes on with what is in hand, and begins with what is there to read.
    pub(super) fn poll_work<H, F, K, G, R, C>(
        &mut self,
        work: &mut Work<H, F, K, G, P::Receipt, P::Error>,
        incoming: &mut Incoming<R, P::Message>,
        context: &mut Context<'_>,
    ) -> Poll<Event<P>>
    where
        H: Fn(P::Message) -> F,
        F: Future<Output = Result<P::Receipt, P::Error>>,
        K: Fn(P::Receipt) -> G,
        G: Future<Output = Result<P::Receipt, P::Error>>,
        R: Stream<Item = Result<P::Message, C>> + Unpin,
        C: Into<CallError<P::CallError>>,
    {
        let mut worked = Poll::Pending;
        if !work.is_empty() {
            while let Poll::Ready(complete) = work.poll_complete(context) {
                if let Err(error) = self.note(complete) {
                    return Poll::Ready(Event::Unhandled(error));
                }
                worked = Poll::Ready(Event::Worked);
            }
        }
        if matches!(self.phase, Phase::Closing { .. }) {
            return self.poll_refusal(worked, incoming, context);
        }
        let begun = Instant::now();
        let mut left = BURST;
        let mut stride = 1;
        while left > 0 {
            if !self.has_room(work.len()) {
                return self.poll_refusal(worked, incoming, context);
            }
            let received = self.progress.received();
            let stopped = if work.is_empty() && !incoming.is_ahead() {
                let limit = stride.min(left).min(self.backlog.room());
                self.take_at_once(limit, work, incoming, context)
            } else {
                self.take_one(work, incoming, context)
            };
            let taken = self.progress.received() - received;
            if taken > 0 {
                worked = Poll::Ready(Event::Worked);
                self.last_message = begun;
            }
            match stopped {
                None | Some(Stopped::InHand) => {}
                Some(Stopped::Dry) => break,
                Some(Stopped::Unhandled(error)) => return Poll::Ready(Event::Unhandled(error)),
                Some(Stopped::End(end)) => {
                    incoming.end();
                    return Poll::Ready(Event::End(end));
                }
            }
            if begun.elapsed() > BURST_TIME || (!self.is_stopping && self.shutdown.is_begun()) {
                break;
            }
            left = left.saturating_sub(taken as usize);
            stride = (stride * 2).min(STRIDE);
        }
        worked
    }

    /// Messages that are done when they are first polled, while nothing else is in hand: no more for each of them than must be.
    fn take_at_once<H, F, K, G, R, C>(
        &mut self,
        limit: usize,
        work: &mut Work<H, F, K, G, P::Receipt, P::Error>,
        incoming: &mut Incoming<R, P::Message>,
        context: &mut Context<'_>,
    ) -> Option<Stopped<P>>
    where
        H: Fn(P::Message) -> F,
        F: Future<Output = Result<P::Receipt, P::Error>>,
        K: Fn(P::Receipt) -> G,
        G: Future<Output = Result<P::Receipt, P::Error>>,
        R: Stream<Item = Result<P::Message, C>> + Unpin,
        C: Into<CallError<P::CallError>>,
    {
        let stream = incoming.stream();
        let (is_stopping, shutdown, progress) = (self.is_stopping, self.shutdown, self.progress);
        let backlog = &mut *self.backlog;
        let mut is_reading = true;
        // One guard for all of them.
        let taken = catch_unwind(AssertUnwindSafe(|| {
            for _ in 0..limit {
                is_reading = true;
                let message = match Pin::new(&mut *stream).poll_next(context) {
                    Poll::Ready(Some(Ok(message))) => message,
                    Poll::Pending => return Some(Stopped::Dry),
                    Poll::Ready(None) => return Some(Stopped::End(Ok(()))),
                    Poll::Ready(Some(Err(error))) => return Some(Stopped::End(Err(error.into()))),
                };
                is_reading = false;
                progress.one_received();
                match work.try_at_once(message, context) {
                    Poll::Ready(Ok(receipt)) => backlog.push_unscheduled(receipt),
                    Poll::Ready(Err(error)) => {
                        return Some(Stopped::Unhandled(WorkError::Failed(error)));
                    }
                    Poll::Pending => return Some(Stopped::InHand),
                }
                progress.one_handled();
                if !is_stopping && shutdown.is_begun() {
                    return Some(Stopped::Dry);
                }
            }
            None
        }));
        self.backlog.schedule();
        taken.unwrap_or_else(|panic| {
            let message = panic_message(&*panic);
            Some(match is_reading {
                true => Stopped::End(Err(CallError::Panicked(message))),
                false => Stopped::Unhandled(WorkError::Panicked(message)),
            })
        })
    }

    /// A message beside those in hand.
    fn take_one<H, F, K, G, R, C>(
        &mut self,
        work: &mut Work<H, F, K, G, P::Receipt, P::Error>,
        incoming: &mut Incoming<R, P::Message>,
        context: &mut Context<'_>,
    ) -> Option<Stopped<P>>
    where
        H: Fn(P::Message) -> F,
        F: Future<Output = Result<P::Receipt, P::Error>>,
        K: Fn(P::Receipt) -> G,
        G: Future<Output = Result<P::Receipt, P::Error>>,
        R: Stream<Item = Result<P::Message, C>> + Unpin,
        C: Into<CallError<P::CallError>>,
    {
        let message = match incoming.poll_next(context) {
            Poll::Pending => return Some(Stopped::Dry),
            Poll::Ready(Ok(Some(message))) => message,
            Poll::Ready(Ok(None)) => return Some(Stopped::End(Ok(()))),
            Poll::Ready(Err(error)) => return Some(Stopped::End(Err(error))),
        };
        self.progress.one_received();
        match work.begin(message, context) {
            Poll::Ready(complete) => self.note(complete).err().map(Stopped::Unhandled),
            Poll::Pending => None,
        }
    }

    /// A refusal is not kept waiting by what is in hand.
    fn poll_refusal<R, C>(
        &self,
        worked: Poll<Event<P>>,
        incoming: &mut Incoming<R, P::Message>,
        context: &mut Context<'_>,
    ) -> Poll<Event<P>>
    where
        R: Stream<Item = Result<P::Message, C>> + Unpin,
        C: Into<CallError<P::CallError>>,
    {
        if self.peer.can_be_refused()
            && let Poll::Ready(end) = incoming.poll_end(context)
        {
            return Poll::Ready(Event::End(end));
        }
        worked
    }

    fn has_room(&self, in_hand: usize) -> bool {
        in_hand < self.settings.concurrency && self.backlog.has_room(in_hand)
    }

    fn note(
        &mut self,
        complete: Result<P::Receipt, WorkError<P::Error>>,
    ) -> Result<(), WorkError<P::Error>> {
        self.backlog.push(complete?);
        self.progress.one_handled();
        Ok(())
    }
}
