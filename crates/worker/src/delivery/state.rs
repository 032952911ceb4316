//! How a consumer is, for those who watch it.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use soloist_core::time::Human;

/// What a consumer is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// The connection is being made, and the method called.
    Connecting,
    /// There is a connection, but the server has not answered the call for so long.
    Unanswered {
        /// Since the call.
        waited: Duration,
    },
    /// The server has answered; messages flow as they come.
    Streaming,
    /// The connection is gone; the next try comes after `delay`.
    Waiting {
        /// Failures in a row, without a good message between.
        failures: u32,
        /// The wait.
        delay: Duration,
        /// What happened.
        reason: String,
    },
    /// The shutdown has begun: what remains is handled.
    Draining,
    /// It is over.
    Ended,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connecting => f.write_str("connecting"),
            Self::Unanswered { waited } => {
                write!(
                    f,
                    "connected, but the call has no answer for {}",
                    Human(*waited)
                )
            }
            Self::Streaming => f.write_str("streaming"),
            Self::Waiting { delay, reason, .. } => {
                write!(f, "{reason}; trying again in {}", Human(*delay))
            }
            Self::Draining => f.write_str("draining"),
            Self::Ended => f.write_str("ended"),
        }
    }
}

/// Counts that grow while the consumer works.
#[derive(Debug, Default)]
pub struct Progress {
    received: AtomicU64,
    handled: AtomicU64,
    acknowledged: AtomicU64,
}

impl Progress {
    /// Messages that came.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Of them, those that were handled.
    #[must_use]
    pub fn handled(&self) -> u64 {
        self.handled.load(Ordering::Relaxed)
    }

    /// Of them, those that the server knows to be handled.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.load(Ordering::Relaxed)
    }

    pub(crate) fn summary(&self, end: End) -> Summary {
        Summary {
            received: self.received(),
            handled: self.handled(),
            acknowledged: self.acknowledged(),
            end,
        }
    }

    pub(crate) fn one_received(&self) {
        grow(&self.received);
    }

    pub(crate) fn one_handled(&self) {
        grow(&self.handled);
    }

    pub(crate) fn some_acknowledged(&self, many: usize) {
        self.acknowledged.fetch_add(many as u64, Ordering::Relaxed);
    }
}

/// Only the consumer writes, one connection after the other: no need to lock the bus for every message.
fn grow(count: &AtomicU64) {
    count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// How it was, once a consumer has ended in order.
#[must_use = "whether the drain was cut is in it: ask is_complete(), or give it to Worker::finish"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Messages that came.
    pub received: u64,
    /// Of them, those that were handled; the others come again, to whoever is next.
    pub handled: u64,
    /// Of them, those that the server knows to be handled.
    pub acknowledged: u64,
    /// How it ended.
    pub end: End,
}

/// How a consumer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All that came was handled, and the server confirmed the end.
    Confirmed,
    /// All that came was handled; the server could not be told, or had no more to say.
    Drained,
    /// The time ran out. What was not handled is not acknowledged.
    Cut,
    /// There was no connection when the shutdown began.
    Idle,
    /// The server ended the stream, and was allowed to.
    Finished,
}

impl Summary {
    /// Whether the time was enough: nothing that had come was left in hand.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        !matches!(self.end, End::Cut)
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            received,
            handled,
            acknowledged,
            end,
        } = self;
        let how = match end {
            End::Confirmed => "the server confirmed the end",
            End::Drained => "nothing is left in hand",
            End::Cut => "the time ran out",
            End::Idle => "there was no connection",
            End::Finished => "the server ended the stream",
        };
        write!(
            f,
            "{how}: {received} received, {handled} handled, {acknowledged} acknowledged"
        )
    }
}
