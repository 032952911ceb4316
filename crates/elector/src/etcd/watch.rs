//! The watch of the one key.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, stream};
use soloist_core::ids::Version;
use tonic::Streaming;

use super::connection::Connection;
use super::failure::chain;
use super::members::Trouble;
use super::messages::{Event, EventKind, WatchCreateRequest, WatchRequest, WatchResponse, method};
use super::{Inner, version};
use crate::form::Form;
use crate::store::{StoreError, Stored, WatchEnded};

/// The answer to a new watch comes at once, before any event.
const OPENING: Duration = Duration::from_secs(10);

/// Every change after this version, which still was the newest at `as_of`.
pub(super) fn changes(
    inner: Arc<Inner>,
    after: Version,
    as_of: Version,
) -> impl Stream<Item = Result<Stored<Form>, WatchEnded>> + Send + 'static {
    let watching = Watching {
        last: as_of,
        told: after,
        inner,
        open: None,
        come: VecDeque::new(),
    };
    stream::unfold(Some(watching), |watching| async move {
        let mut watching = watching?;
        match watching.next().await {
            Ok(snapshot) => Some((Ok(snapshot), Some(watching))),
            Err(ended) => Some((Err(ended), None)),
        }
    })
}

struct Watching {
    inner: Arc<Inner>,
    /// Nothing up to here is to be told any more.
    last: Version,
    /// The last version of the record itself.
    told: Version,
    open: Option<Open>,
    come: VecDeque<Event>,
}

struct Open {
    answers: Streaming<WatchResponse>,
    connection: Connection,
}

impl Watching {
    async fn next(&mut self) -> Result<Stored<Form>, WatchEnded> {
        loop {
            while let Some(event) = self.come.pop_front() {
                if let Some(snapshot) = self.take(event)? {
                    return Ok(snapshot);
                }
            }
            if self.open.is_none() {
                let open = self.inner.open_watch(self.last).await;
                self.open = Some(open?);
            }
            let Some(open) = &mut self.open else {
                continue;
            };
            let heard = open.answers.message().await;
            let endpoint = open.connection.endpoint;
            let taken = match heard {
                Ok(Some(answer)) => self.hear(answer),
                Ok(None) => Err(WatchEnded::broken("etcd closed it")),
                Err(status) => {
                    let member = &self.inner.members.endpoints[endpoint];
                    Err(WatchEnded::broken(format!(
                        "etcd {member}: {}",
                        chain(&status)
                    )))
                }
            };
            if taken.is_err() {
                self.inner.members.leave_watched(endpoint);
            }
            taken?;
        }
    }

    fn hear(&mut self, answer: WatchResponse) -> Result<(), WatchEnded> {
        self.inner.is_well(&answer)?;
        let header = answer.header.unwrap_or_default();
        if answer.events.is_empty() {
            // A report of progress.
            let now = version(header.revision).map_err(WatchEnded::broken)?;
            if now < self.told {
                return Err(set_back(now, self.told));
            }
            self.last = self.last.max(now);
        }
        self.come.extend(answer.events);
        Ok(())
    }

    fn take(&mut self, event: Event) -> Result<Option<Stored<Form>>, WatchEnded> {
        let kv = event.kv.unwrap_or_default();
        let version = version(kv.mod_revision).map_err(WatchEnded::broken)?;
        if version <= self.last {
            return Ok(None);
        }
        let stored = match event.kind == i32::from(EventKind::Delete) {
            true => Stored::missing(version),
            false => {
                let found = self.inner.stored(&kv);
                found.map_err(|reason| WatchEnded::broken(format!("the new value {reason}")))?
            }
        };
        self.last = version;
        self.told = version;
        Ok(Some(stored))
    }
}

impl Inner {
    async fn open_watch(&self, after: Version) -> Result<Open, WatchEnded> {
        let opened = tokio::time::timeout(OPENING, self.try_to_watch(after)).await;
        opened.unwrap_or_else(|_| Err(WatchEnded::broken("etcd did not answer")))
    }

    async fn try_to_watch(&self, after: Version) -> Result<Open, WatchEnded> {
        let failed = |trouble: &Trouble| match self.asked(false).failed(trouble) {
            StoreError::Refused(refusal) => WatchEnded::Refused(refusal),
            other => WatchEnded::broken(other.to_string()),
        };
        let connection = self.members.watch_connection().await;
        let (connection, token) = connection.map_err(|trouble| failed(&trouble))?;
        let endpoint = connection.endpoint;
        // Should this be given up, the next one goes elsewhere.
        self.members.leave_watched(endpoint);
        let create = WatchCreateRequest {
            key: self.key.clone().into_bytes(),
            start_revision: i64::try_from(after.get())
                .unwrap_or(i64::MAX)
                .saturating_add(1),
            progress_notify: true,
        };
        let question = WatchRequest {
            create: Some(create),
        };
        let failed = |status| failed(&Trouble::Status(endpoint, Box::new(status)));
        let answers = connection.subscribe(method::WATCH, question, token).await;
        let mut answers: Streaming<WatchResponse> = answers.map_err(failed)?;
        let first = answers.message().await.map_err(failed)?;
        let first = first.ok_or_else(|| WatchEnded::broken("etcd closed it"))?;
        self.is_well(&first)?;
        let now = version(first.header.unwrap_or_default().revision).map_err(WatchEnded::broken)?;
        // It would wait in silence for revisions that are yet to come again, or that this member has not heard of yet.
        if now < after {
            return Err(set_back(now, after));
        }
        Ok(Open {
            answers,
            connection,
        })
    }

    fn is_well(&self, answer: &WatchResponse) -> Result<(), WatchEnded> {
        let reason = &answer.cancel_reason;
        if answer.compact_revision != 0 {
            return Err(WatchEnded::broken(format!(
                "etcd has forgotten everything before revision {} (compaction)",
                answer.compact_revision
            )));
        }
        if answer.canceled && reason.contains("permission denied") {
            return Err(match self.asked(false).missing_right(reason) {
                StoreError::Refused(refusal) => WatchEnded::Refused(refusal),
                other => WatchEnded::broken(other.to_string()),
            });
        }
        if answer.canceled {
            return Err(WatchEnded::broken(format!("etcd cancelled it: {reason}")));
        }
        let id = answer.header.unwrap_or_default().cluster_id;
        match self.cluster().is(id) {
            true => Ok(()),
            false => Err(WatchEnded::broken(format!(
                "it is of another cluster, {id:x}"
            ))),
        }
    }
}

fn set_back(now: Version, known: Version) -> WatchEnded {
    WatchEnded::broken(format!(
        "this member of the etcd is at revision {now}, before {known} which was known"
    ))
}
