//! The watch of the one object.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt, stream};
use kube::api::{WatchEvent, WatchParams};
use serde_json::Value;
use soloist_core::ids::Version;

use super::failure::chain;
use super::holder::HolderWatch;
use super::{Inner, object};
use crate::clock::{self, Timer};
use crate::store::{StoreError, Stored, WatchEnded};

/// A server that keeps a watch sends a bookmark about every minute. Hearing nothing for longer, we ask anew.
const IDLE: Duration = Duration::from_secs(90);
/// The answer to a new watch comes at once, before any event.
const OPENING: Duration = Duration::from_secs(10);
/// A watch that ends sooner than this before its timeout was not ended by it: the server stops, and may come back with other data.
const EARLY: Duration = Duration::from_secs(1);

type Events = Pin<Box<dyn Stream<Item = Result<WatchEvent<Value>, kube::Error>> + Send>>;

/// Every change after this one; and a version once more if it has been proven since that its holder is dead.
pub(super) fn changes(
    inner: Arc<Inner>,
    after: &Stored<Value>,
) -> impl Stream<Item = Result<Stored<Value>, WatchEnded>> + Send + 'static {
    let mut holder = HolderWatch::new(Arc::clone(&inner));
    holder.follow(after.record.as_ref());
    let following = Following {
        changes: objects(Arc::clone(&inner), after.version, after.as_of).boxed(),
        inner,
        known: after.clone(),
        holder,
    };
    stream::unfold(following, |mut following| async move {
        let told = following.next().await?;
        Some((told, following))
    })
}

/// The object after a change; none if it was deleted.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) version: Version,
    pub(super) object: Option<Value>,
}

/// Every change of the object after this version of it, which still was the newest at `as_of`.
pub(super) fn objects(
    inner: Arc<Inner>,
    after: Version,
    as_of: Version,
) -> impl Stream<Item = Result<Change, WatchEnded>> + Send + 'static {
    let watching = Watching {
        last: as_of,
        told: after,
        inner,
        events: None,
    };
    stream::unfold(Some(watching), |watching| async move {
        let mut watching = watching?;
        match watching.next().await {
            Ok(change) => Some((Ok(change), Some(watching))),
            Err(ended) => Some((Err(ended), None)),
        }
    })
}

/// The lease, and the Pod of whoever holds it.
struct Following {
    inner: Arc<Inner>,
    changes: Pin<Box<dyn Stream<Item = Result<Change, WatchEnded>> + Send>>,
    /// The lease as we know it.
    known: Stored<Value>,
    holder: HolderWatch,
}

impl Following {
    async fn next(&mut self) -> Option<Result<Stored<Value>, WatchEnded>> {
        loop {
            tokio::select! {
                change = self.changes.next() => return Some(change?.and_then(|change| self.take(change))),
                report = self.holder.next() => {
                    self.inner.note_deaths(&report);
                    if let Some(gone) = self.newly_gone() {
                        return Some(Ok(gone));
                    }
                }
            }
        }
    }

    fn take(&mut self, change: Change) -> Result<Stored<Value>, WatchEnded> {
        let stored = match change.object {
            None => Stored::missing(change.version),
            Some(object) => self.inner.stored(object).map_err(WatchEnded::broken)?,
        };
        self.holder.follow(stored.record.as_ref());
        self.known = stored.clone();
        Ok(stored)
    }

    fn newly_gone(&mut self) -> Option<Stored<Value>> {
        let was_gone = self.known.holder_gone;
        self.known.holder_gone = was_gone || self.inner.is_proven_dead(&self.known);
        (!was_gone && self.known.holder_gone).then(|| self.known.clone())
    }
}

impl Inner {
    fn watch_timeout(&self) -> Duration {
        Duration::from_secs(self.watch_seconds.into())
    }
}

struct Watching {
    inner: Arc<Inner>,
    /// Where to resume.
    last: Version,
    /// The last version of the object itself.
    told: Version,
    events: Option<Open>,
}

struct Open {
    events: Events,
    since: soloist_core::time::Moment,
    idle: Timer,
}

impl Watching {
    async fn next(&mut self) -> Result<Change, WatchEnded> {
        loop {
            let open = match &mut self.events {
                Some(open) => open,
                None => self.events.insert(open(&self.inner, self.last).await?),
            };
            let deaf_at = clock::now() + IDLE;
            let event = tokio::select! {
                event = open.events.next() => event,
                deaf = open.idle.until(deaf_at) => {
                    deaf.map_err(no_timer)?;
                    self.inner.connection.renew();
                    self.events = None;
                    continue;
                }
            };
            match event {
                Some(Ok(event)) => {
                    if let Some(change) = self.take(event)? {
                        return Ok(change);
                    }
                }
                Some(Err(error)) => return Err(WatchEnded::broken(chain(&error))),
                None if clock::now().since(open.since) + EARLY < self.inner.watch_timeout() => {
                    return Err(WatchEnded::broken("the server ended it early"));
                }
                // Its timeout: nothing is missed by going on from the last version that it told.
                None => self.events = None,
            }
        }
    }

    fn take(&mut self, event: WatchEvent<Value>) -> Result<Option<Change>, WatchEnded> {
        let (object, deleted) = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => (object, false),
            WatchEvent::Deleted(object) => (object, true),
            WatchEvent::Bookmark(bookmark) => {
                let version = object::parse_version(&bookmark.metadata.resource_version);
                let version = version.map_err(WatchEnded::broken)?;
                // A server that has been set back waits in silence for versions that are yet to come again.
                if version < self.told {
                    return Err(WatchEnded::broken(format!(
                        "the server is at version {version}, before {} which it had told",
                        self.told
                    )));
                }
                self.last = self.last.max(version);
                return Ok(None);
            }
            WatchEvent::Error(status) => {
                return Err(WatchEnded::broken(format!(
                    "{} ({})",
                    status.message, status.code
                )));
            }
        };
        let version = object::version(&object).map_err(WatchEnded::broken)?;
        if version <= self.last {
            return Ok(None);
        }
        self.last = version;
        self.told = version;
        let object = (!deleted).then_some(object);
        Ok(Some(Change { version, object }))
    }
}

async fn open(inner: &Arc<Inner>, after: Version) -> Result<Open, WatchEnded> {
    let params = WatchParams::default()
        .fields(&inner.selector())
        .timeout(inner.watch_seconds);
    let asked = inner.asked("watch");
    let failed = |error: &kube::Error| match inner.failed(asked, error) {
        StoreError::Refused(refusal) => WatchEnded::Refused(refusal),
        other => WatchEnded::broken(other.to_string()),
    };
    let request = inner
        .requests
        .watch(&params, &after.to_string())
        .map_err(|error| failed(&kube::Error::BuildRequest(error)))?;
    let mut idle = Timer::new().map_err(no_timer)?;
    let limit = clock::now() + OPENING;
    let opening = async {
        let client = inner.connection.client().await?;
        client.request_events::<Value>(request).await
    };
    let events = tokio::select! {
        events = opening => events.map_err(|error| failed(&error))?,
        deaf = idle.until(limit) => {
            deaf.map_err(no_timer)?;
            inner.connection.renew();
            return Err(WatchEnded::broken("the server did not answer"));
        }
    };
    Ok(Open {
        events: events.boxed(),
        since: clock::now(),
        idle,
    })
}

fn no_timer(error: io::Error) -> WatchEnded {
    WatchEnded::broken(format!("no timer: {error}"))
}
