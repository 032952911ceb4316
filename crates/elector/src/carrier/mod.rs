//! Carries what the election asks of the store there, and what comes of it back.
//!
//! The one place between the machines of [`soloist_core`] and a [`LeaseStore`]: whoever drives one of them, with or
//! without a child, gives its [`StoreCommand`]s to [`StoreCarrier::carry`] and feeds it what
//! [`StoreCarrier::next`] brings. Nothing is decided here, and nothing tried again.

mod way;

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use soloist_core::election::{Answer, Purpose, StoreCommand};
use soloist_core::ids::{OpId, WatchId};
use soloist_core::record::Snapshot;
use soloist_core::time::{Human, Moment};
use tracing::{debug, trace};

use crate::clock;
use crate::store::{LeaseStore, StoreError, WatchEnded};
use way::{Store, Way};

/// What came of a command, and of which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// A request has ended, or was given up: then it is unknown what came of it.
    Answer {
        /// Which.
        op: OpId,
        /// For metrics and logs.
        kind: RequestKind,
        /// How long it took.
        took: Duration,
        /// For the election.
        answer: Answer,
        /// What went wrong, for people, if something did.
        error: Option<StoreError>,
    },
    /// The record changed.
    Change {
        /// Which watch says so.
        watch: WatchId,
        /// What it is now.
        snapshot: Snapshot,
    },
    /// The watch has ended.
    WatchEnded {
        /// Which.
        watch: WatchId,
        /// Why.
        reason: WatchEnded,
    },
}

/// What a request was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RequestKind {
    /// To know the record.
    Read,
    /// To begin a term.
    Acquire,
    /// To go on.
    Renew,
    /// To end a term.
    Release,
}

impl RequestKind {
    /// As a metric's label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Acquire => "acquire",
            Self::Renew => "renew",
            Self::Release => "release",
        }
    }
}

impl From<Purpose> for RequestKind {
    fn from(purpose: Purpose) -> Self {
        match purpose {
            Purpose::Acquire => Self::Acquire,
            Purpose::Renew => Self::Renew,
            Purpose::Release => Self::Release,
        }
    }
}

/// One replica's requests to one store, and its watch.
pub struct StoreCarrier {
    store: Box<dyn Store>,
    /// After which the election gives a request up; for people.
    attempt_limit: Duration,
    request: Option<Request>,
    watch: Option<WatchId>,
    /// What has come and was not fetched yet.
    come: VecDeque<Arrival>,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    op: OpId,
    kind: RequestKind,
    sent: Moment,
}

impl StoreCarrier {
    /// How often a request is polled until it can be taken to be on its way: the HTTP client hands it from the caller to
    /// the pool of connections, and that to the connection's task.
    const HANDS: usize = 3;

    /// A carrier to this store.
    pub fn new(store: impl LeaseStore, attempt_limit: Duration) -> Self {
        Self {
            store: Box::new(Way::to(store)),
            attempt_limit,
            request: None,
            watch: None,
            come: VecDeque::new(),
        }
    }

    /// Takes a command. A request gets under way when this is next polled: see [`StoreCarrier::hand_on`].
    pub fn carry(&mut self, command: StoreCommand) {
        match command {
            StoreCommand::Read { op } => {
                self.store.read();
                self.sent(op, RequestKind::Read);
            }
            StoreCommand::Write {
                op,
                base,
                record,
                purpose,
            } => {
                self.store.write(base, record, purpose);
                self.sent(op, purpose.into());
            }
            StoreCommand::Abandon { op } => self.abandon(op),
            StoreCommand::Watch { watch, after } => {
                self.store.watch(after);
                self.watch = Some(watch);
            }
        }
    }

    /// What comes next. May be cancelled: nothing is lost.
    ///
    /// An answer does not wait behind a busy watch.
    pub async fn next(&mut self) -> Arrival {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// What has already come, if something has.
    pub async fn try_next(&mut self) -> Option<Arrival> {
        let next = poll_fn(|context| Poll::Ready(self.poll_next(context))).await;
        match next {
            Poll::Ready(arrival) => Some(arrival),
            Poll::Pending => None,
        }
    }

    /// Returns when the request that was last given, if there is one, has had the chance to leave this process: before
    /// something that keeps the thread busy.
    pub async fn hand_on(&mut self) {
        for _ in 0..Self::HANDS {
            let answer = poll_fn(|context| Poll::Ready(self.poll_answer(context))).await;
            if let Poll::Ready(arrival) = answer {
                self.come.push_back(arrival);
            }
            if self.request.is_none() {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    fn sent(&mut self, op: OpId, kind: RequestKind) {
        trace!(request = kind.as_str(), "sending");
        let sent = clock::now();
        self.request = Some(Request { op, kind, sent });
    }

    fn abandon(&mut self, op: OpId) {
        let Some(Request { kind, sent, .. }) = self.request.take_if(|request| request.op == op)
        else {
            return;
        };
        self.store.abandon();
        let error = StoreError::Unknown(format!(
            "no answer within {} from the {}",
            Human(self.attempt_limit),
            self.store.describe()
        ));
        debug!(request = kind.as_str(), %error, "request given up");
        self.come.push_back(Arrival::Answer {
            op,
            kind,
            took: clock::now().since(sent),
            answer: error.answer(),
            error: Some(error),
        });
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Arrival> {
        if let Some(arrival) = self.come.pop_front() {
            return Poll::Ready(arrival);
        }
        match self.poll_answer(context) {
            Poll::Ready(arrival) => Poll::Ready(arrival),
            Poll::Pending => self.poll_watch(context),
        }
    }

    fn poll_answer(&mut self, context: &mut Context<'_>) -> Poll<Arrival> {
        let Some(Request { op, kind, sent }) = self.request else {
            return Poll::Pending;
        };
        let Poll::Ready(answer) = self.store.poll_answer(context) else {
            return Poll::Pending;
        };
        let took = clock::now().since(sent);
        self.request = None;
        let (answer, error) = match answer {
            Ok(Answer::Read(snapshot)) => (Answer::Read(stamped(snapshot)), None),
            Ok(answer) => (answer, None),
            Err(error) => (error.answer(), Some(error)),
        };
        if let Some(error) = &error {
            debug!(request = kind.as_str(), %error, "request failed");
        }
        Poll::Ready(Arrival::Answer {
            op,
            kind,
            took,
            answer,
            error,
        })
    }

    fn poll_watch(&mut self, context: &mut Context<'_>) -> Poll<Arrival> {
        let Some(watch) = self.watch else {
            return Poll::Pending;
        };
        let Poll::Ready(change) = self.store.poll_change(context) else {
            return Poll::Pending;
        };
        Poll::Ready(match change {
            Some(Ok(snapshot)) => {
                trace!(version = snapshot.version.get(), "the record changed");
                let snapshot = stamped(snapshot);
                Arrival::Change { watch, snapshot }
            }
            ended => {
                self.watch = None;
                let reason = match ended {
                    Some(Err(reason)) => reason,
                    _ => WatchEnded::broken("the store closed it"),
                };
                debug!(%reason);
                Arrival::WatchEnded { watch, reason }
            }
        })
    }
}

impl fmt::Debug for StoreCarrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreCarrier")
            .field("store", &self.store.describe())
            .field("request", &self.request.as_ref().map(|request| request.op))
            .field("watch", &self.watch)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "memory"))]
mod tests;

/// The end of a pause is a time of day: what is left of it is counted from what ours is now.
fn stamped(snapshot: Snapshot) -> Snapshot {
    let pause = snapshot.record.as_ref().and_then(|r| r.orders.pause);
    match pause.and_then(|pause| pause.until) {
        Some(_) => snapshot.received_at(clock::wall_time()),
        None => snapshot,
    }
}
