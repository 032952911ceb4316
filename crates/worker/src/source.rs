//! Messages of any queue (Kafka, NATS, SQS …), consumed with the same order of work and of shutdown as a gRPC [stream](crate::stream).
//!
//! Implement [`Source`] with the queue's own client, and give it to [`Part::source`](crate::Part::source). Reconnecting is the client's: an error
//! of a source ends it, and with it the child.
//!
//! ```
//! use std::convert::Infallible;
//! use std::sync::Mutex;
//! use soloist_worker::source::{Intake, Source};
//! use soloist_worker::{Part, Worker};
//!
//! struct Jobs(Mutex<std::ops::Range<u32>>);
//!
//! impl Source for Jobs {
//!     type Message = u32;
//!     type Receipt = u32;
//!     type Error = Infallible;
//!
//!     async fn next(&self) -> Result<Option<u32>, Infallible> {
//!         Ok(self.0.lock().unwrap().next())
//!     }
//!
//!     async fn handle(&self, job: u32) -> Result<u32, Infallible> {
//!         Ok(job)
//!     }
//!
//!     async fn ack(&self, done: &[u32]) -> Result<(), Infallible> {
//!         println!("done: {done:?}");
//!         Ok(())
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! # let worker = Worker::from_env().unwrap();
//! let jobs = Jobs(Mutex::new(1..4));
//! worker.run([Part::source("jobs", Intake::new(jobs))]).await;
//! # }
//! ```

use std::future::Future;
use std::num::NonZeroUsize;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::unfold;
use soloist_core::ids::Token;
use soloist_core::time::Human;
use tokio::sync::watch;
use tracing::info;

pub use crate::delivery::{Drain, End, Progress, State, Summary};

use crate::delivery::{Call, CallError, Closed, Peer, Session, Settings, caught};
use crate::shutdown::Shutdown;

/// A queue, and what is done with its messages. All methods may be called while another one is under way.
pub trait Source: Sync {
    /// What the queue holds.
    type Message: Send;
    /// What is left of a message that was handled, for its acknowledgement: its offset or id.
    type Receipt: Send + Sync;
    /// Why nothing more can be read, handled or acknowledged. The source ends with it: what can be mended by trying again, try again.
    type Error: std::fmt::Display + Send;

    /// The next message; `None` at the queue's end. It is not called again before it has returned, and it is dropped where it waits
    /// when the shutdown has been gone through.
    fn next(&self) -> impl Future<Output = Result<Option<Self::Message>, Self::Error>> + Send;

    /// Does the work of one message, as [`Subscriber::handle`](crate::stream::Subscriber::handle) does: side by side with others and
    /// perhaps once more, if the concurrency is above 1.
    fn handle(
        &self,
        message: Self::Message,
    ) -> impl Future<Output = Result<Self::Receipt, Self::Error>> + Send;

    /// Makes the result of a message last, together with its position: one at a time, in order, when all before it are complete. Does
    /// nothing unless you say what to do.
    fn commit(
        &self,
        receipt: Self::Receipt,
    ) -> impl Future<Output = Result<Self::Receipt, Self::Error>> + Send {
        async { Ok(receipt) }
    }

    /// Tells the queue what has been handled, in the order in which it came.
    fn ack(
        &self,
        receipts: &[Self::Receipt],
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// The shutdown has begun: tells the queue, if it wants to know. [`Drain::UntilEnd`] if [`next`](Self::next) will say when there is no more.
    fn drain(&self) -> impl Future<Output = Result<Drain, Self::Error>> + Send {
        async { Ok(Drain::StopReading) }
    }
}

/// How a source is read.
#[derive(Debug)]
pub struct Intake<S> {
    source: S,
    settings: Settings,
    states: watch::Sender<State>,
    progress: Arc<Progress>,
}

/// Why a source has ended that was to go on.
#[derive(Debug, thiserror::Error)]
pub enum SourceError<E: std::fmt::Display> {
    /// A method of the source failed.
    #[error("{method} failed: {cause}")]
    Failed {
        /// Which.
        method: &'static str,
        /// As it said.
        cause: E,
    },
    /// An acknowledgement took too long.
    #[error("ack has not returned within {}", Human(*.0))]
    TimedOut(Duration),
    /// A method of the source panicked.
    #[error("{method} panicked: {message}")]
    Panicked {
        /// Which.
        method: &'static str,
        /// What the panic said.
        message: String,
    },
}

impl<S: Source> Intake<S> {
    /// One message at a time; see below for what can be changed.
    #[must_use]
    pub fn new(source: S) -> Self {
        Self {
            source,
            settings: Settings::DEFAULT,
            states: watch::Sender::new(State::Streaming),
            progress: Arc::default(),
        }
    }

    /// So many messages are handled at the same time; they are committed and acknowledged in the order in which they came.
    #[must_use]
    pub fn concurrency(mut self, many: NonZeroUsize) -> Self {
        self.settings = self.settings.with_concurrency(many.get());
        self
    }

    /// So many messages at most are in hand or wait to be acknowledged. 100,000 unless said otherwise.
    #[must_use]
    pub fn window(mut self, many: NonZeroUsize) -> Self {
        self.settings = self.settings.with_window(many.get());
        self
    }

    /// Acknowledgements are gathered for so long, or until half the window is full. 100 ms unless said otherwise.
    #[must_use]
    pub fn acknowledge_every(mut self, interval: Duration) -> Self {
        self.settings.acknowledge_every = interval;
        self
    }

    /// An acknowledgement that takes longer has failed. 10 s unless said otherwise.
    #[must_use]
    pub fn call_limit(mut self, limit: Duration) -> Self {
        self.settings.call_limit = limit;
        self
    }

    /// What it is doing, as it changes.
    #[must_use]
    pub fn states(&self) -> watch::Receiver<State> {
        self.states.subscribe()
    }

    /// How far it is.
    #[must_use]
    pub fn progress(&self) -> Arc<Progress> {
        self.progress.clone()
    }

    /// Reads until the queue's end, or until the shutdown has been gone through: no new work, the queue is told, what remains is
    /// handled and acknowledged. All within the shutdown's time.
    ///
    /// # Errors
    /// When a method of the source fails or panics.
    pub async fn run(&self, shutdown: &Shutdown) -> Result<Summary, SourceError<S::Error>> {
        let mut backlog = self.settings.backlog();
        let peer = QueuePeer(&self.source);
        let tell = |state| {
            self.states.send_replace(state);
        };
        let incoming = pin!(unfold(&self.source, async |source| {
            let next = caught(|| source.next()).await.transpose()?;
            Some((next, source))
        }));
        let mut session = Session::new(
            &peer,
            self.settings,
            shutdown,
            &mut backlog,
            &self.progress,
            &tell,
        );
        let closed = session.run(incoming).await;
        drop(session);
        self.states.send_replace(State::Ended);
        let summary = self.progress.summary(end(closed)?);
        info!("{summary}");
        Ok(summary)
    }
}

fn end<E: std::fmt::Display>(closed: Closed<E, E>) -> Result<End, SourceError<E>> {
    match closed {
        Closed::Drained { confirmed: true } => Ok(End::Confirmed),
        Closed::Drained { confirmed: false } => Ok(End::Drained),
        Closed::Cut => Ok(End::Cut),
        // No queue says so.
        Closed::Ended | Closed::Fenced { .. } => Ok(End::Finished),
        Closed::Unhandled(cause) => Err(SourceError::Failed {
            method: "handle",
            cause,
        }),
        Closed::Panicked(message) => Err(SourceError::Panicked {
            method: "handle or commit",
            message,
        }),
        Closed::Failed { call, error } => Err(match error {
            CallError::Failed(cause) => SourceError::Failed {
                method: method(call),
                cause,
            },
            CallError::TimedOut(limit) => SourceError::TimedOut(limit),
            CallError::Panicked(message) => SourceError::Panicked {
                method: method(call),
                message,
            },
        }),
    }
}

fn method(call: Call) -> &'static str {
    match call {
        Call::Next => "next",
        Call::Acknowledge => "ack",
        Call::Drain => "drain",
    }
}

struct QueuePeer<'a, S>(&'a S);

impl<S: Source> Peer for QueuePeer<'_, S> {
    type Message = S::Message;
    type Receipt = S::Receipt;
    type Error = S::Error;
    type CallError = S::Error;

    fn handle(
        &self,
        message: S::Message,
    ) -> impl Future<Output = Result<S::Receipt, S::Error>> + Send {
        self.0.handle(message)
    }

    fn commit(
        &self,
        receipt: S::Receipt,
    ) -> impl Future<Output = Result<S::Receipt, S::Error>> + Send {
        self.0.commit(receipt)
    }

    fn acknowledge(
        &self,
        receipts: &[S::Receipt],
    ) -> impl Future<Output = Result<(), S::Error>> + Send {
        self.0.ack(receipts)
    }

    fn drain(&self) -> impl Future<Output = Result<Drain, S::Error>> + Send {
        self.0.drain()
    }

    fn fenced_by(_: &S::Error) -> Option<Token> {
        None
    }

    fn can_be_refused(&self) -> bool {
        false
    }

    fn outlives_stream(&self) -> bool {
        true
    }

    fn describe(&self, call: Call, error: &CallError<S::Error>) -> String {
        let method = method(call);
        match error {
            CallError::Failed(cause) => format!("{method} failed: {cause}"),
            CallError::TimedOut(limit) => {
                format!("{method} has not returned within {}", Human(*limit))
            }
            CallError::Panicked(message) => format!("{method} panicked: {message}"),
        }
    }
}
