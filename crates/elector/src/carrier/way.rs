//! The way to one store, whatever its type: its request, its watch, and the states that the election knows by their versions alone.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt, stream};
use soloist_core::election::{Answer, Base, Purpose};
use soloist_core::ids::Version;
use soloist_core::record::{Record, Snapshot};

use crate::store::{LeaseStore, StoreError, Stored, WatchEnded};

/// Any [`LeaseStore`]. At most one request is under way, and one watch.
pub(super) trait Store: Send {
    fn read(&mut self);
    fn write(&mut self, base: Base, record: Record, purpose: Purpose);
    /// In place of any watch before.
    fn watch(&mut self, after: Version);
    /// Gives the request up, with its connection.
    fn abandon(&mut self);
    fn poll_answer(&mut self, context: &mut Context<'_>) -> Poll<Result<Answer, StoreError>>;
    fn poll_change(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Snapshot, WatchEnded>>>;
    fn describe(&self) -> String;
}

pub(super) struct Way<S: LeaseStore> {
    store: Arc<S>,
    request: Option<Request<S::Carried>>,
    changes: Option<Changes<S::Carried>>,
    told: Told<S::Carried>,
}

/// What is to come of a request.
enum Request<C> {
    Read(Answering<C>),
    Write(Answering<C>),
}

type Answering<C> = BoxFuture<'static, Result<Stored<C>, StoreError>>;
type Changes<C> = BoxStream<'static, Result<Stored<C>, WatchEnded>>;

impl<S: LeaseStore> Way<S> {
    pub(super) fn to(store: S) -> Self {
        Self {
            store: Arc::new(store),
            request: None,
            changes: None,
            told: Told::nothing(),
        }
    }
}

impl<S: LeaseStore> Store for Way<S> {
    fn read(&mut self) {
        let store = Arc::clone(&self.store);
        let read = async move { store.read().await };
        self.request = Some(Request::Read(read.boxed()));
    }

    fn write(&mut self, base: Base, record: Record, purpose: Purpose) {
        let store = Arc::clone(&self.store);
        let base = match base {
            Base::Absent => Ok(self.told.missing()),
            Base::Version(version) => self.told.at(version).ok_or_else(|| unknown(version)),
        };
        let write = async move { store.write(&base?, &record, purpose).await };
        self.request = Some(Request::Write(write.boxed()));
    }

    fn watch(&mut self, after: Version) {
        // The old one first: it may hold what the new one needs.
        self.changes = None;
        self.changes = Some(match self.told.at(after) {
            Some(after) => self.store.watch(&after).boxed(),
            None => {
                let ended = WatchEnded::broken(unknown(after).to_string());
                stream::iter([Err(ended)]).boxed()
            }
        });
    }

    fn abandon(&mut self) {
        self.request = None;
        self.store.abandon_connections();
    }

    fn poll_answer(&mut self, context: &mut Context<'_>) -> Poll<Result<Answer, StoreError>> {
        let Some(Request::Read(answer) | Request::Write(answer)) = &mut self.request else {
            return Poll::Pending;
        };
        let Poll::Ready(answer) = Pin::new(answer).poll(context) else {
            return Poll::Pending;
        };
        let request = self.request.take();
        Poll::Ready(answer.map(|stored| {
            let answer = match request {
                Some(Request::Write(_)) => Answer::Written(stored.version),
                Some(Request::Read(_)) | None => Answer::Read(stored.snapshot()),
            };
            self.told.note(stored);
            answer
        }))
    }

    fn poll_change(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Snapshot, WatchEnded>>> {
        let Some(changes) = &mut self.changes else {
            return Poll::Pending;
        };
        let Poll::Ready(change) = changes.poll_next_unpin(context) else {
            return Poll::Pending;
        };
        Poll::Ready(match change {
            Some(Ok(stored)) => {
                let snapshot = stored.snapshot();
                self.told.note(stored);
                Some(Ok(snapshot))
            }
            ended => {
                self.changes = None;
                ended.map(|ended| ended.map(|stored| stored.snapshot()))
            }
        })
    }

    fn describe(&self) -> String {
        self.store.describe()
    }
}

fn unknown(version: Version) -> StoreError {
    StoreError::LostRace(format!(
        "version {version} is older than what was told since, so it must be read again"
    ))
}

/// The election names a state of the store by its version: that of the newest one that it was told and believed. What the store needs to
/// write it back waits here.
struct Told<C> {
    /// Least recently told first: after a restore of the store the newest version is a low one.
    states: VecDeque<Stored<C>>,
}

impl<C: Clone + Default> Told<C> {
    /// A watch that is late with what a write or a read has overtaken tells some that are not believed.
    const MOST: usize = 8;

    const fn nothing() -> Self {
        Self {
            states: VecDeque::new(),
        }
    }

    /// Two states of one version are of different histories of the store, or the later one says more: it counts.
    fn note(&mut self, stored: Stored<C>) {
        self.states.retain(|told| told.version != stored.version);
        self.states.push_back(stored);
        while self.states.len() > Self::MOST {
            self.states.pop_front();
        }
    }

    fn at(&self, version: Version) -> Option<Stored<C>> {
        let found = self.states.iter().find(|told| told.version == version);
        found.cloned()
    }

    /// The absence that was told last; for whoever has been told nothing, any.
    fn missing(&self) -> Stored<C> {
        let told = self.states.iter().rfind(|told| told.record.is_none());
        told.cloned()
            .unwrap_or_else(|| Stored::missing(Version::new(0)))
    }
}
