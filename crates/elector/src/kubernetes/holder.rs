//! The watch of the Pod that the holder is in: its kubelet may report that the holder is dead.
//!
//! It is one request in five minutes, beside that of the lease, and only where another replica holds the lease. Whoever may not
//! watch Pods waits leases out, as everywhere else.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::{Stream, StreamExt, stream};
use kube::api::{WatchEvent, WatchParams};
use kube::core::Request;
use serde_json::Value;
use soloist_core::death::PodReport;
use soloist_core::ids::{Identity, InstanceId};
use soloist_core::record::Record;
use soloist_core::time::Moment;
use tracing::{debug, info};

use super::failure::chain;
use super::{Inner, pods};
use crate::clock;

/// After a watch that failed.
const AGAIN: Duration = Duration::from_secs(5);
/// After one that was refused: somebody may give us the right.
const REFUSED: Duration = Duration::from_secs(600);
/// A server that keeps a watch sends a bookmark about every minute.
const IDLE: Duration = Duration::from_secs(90);
const RULE: &str = r#"{apiGroups: [""], resources: ["pods"], verbs: [watch]}"#;

type Reports = Pin<Box<dyn Stream<Item = PodReport> + Send>>;
type Events = Pin<Box<dyn Stream<Item = Result<WatchEvent<Value>, kube::Error>> + Send>>;

/// Who looks for reported deaths.
#[derive(Debug)]
pub(super) struct Observer {
    pub(super) instance: InstanceId,
    pub(super) namespace: String,
    /// To watch Pods; it is said once.
    pub(super) was_refused: AtomicBool,
}

/// The Pod of whoever holds the lease.
pub(super) struct HolderWatch {
    inner: Arc<Inner>,
    followed: Option<Followed>,
}

struct Followed {
    pod: String,
    instance: InstanceId,
    reports: Reports,
}

impl HolderWatch {
    pub(super) fn new(inner: Arc<Inner>) -> Self {
        Self {
            inner,
            followed: None,
        }
    }

    /// The lease has this record now.
    pub(super) fn follow(&mut self, record: Option<&Record>) {
        let Some((namespace, pod, instance)) = record.and_then(|r| self.pod_of(r)) else {
            self.followed = None;
            return;
        };
        let same = |f: &Followed| f.pod == pod && f.instance == instance;
        if self.followed.as_ref().is_some_and(same) {
            return;
        }
        let reports = reports(Arc::clone(&self.inner), namespace, pod.clone());
        self.followed = Some(Followed {
            pod,
            instance,
            reports: Box::pin(reports),
        });
    }

    /// The Pod of another replica that is alone in it, where we look for deaths at all.
    fn pod_of(&self, record: &Record) -> Option<(String, String, InstanceId)> {
        let observer = self.inner.observer.get()?;
        let signed = record.signed()?;
        signed.pod.as_ref()?;
        if signed.instance == observer.instance {
            return None;
        }
        let pod = pod_name(record.holder.as_ref()?)?;
        Some((observer.namespace.clone(), pod.to_owned(), signed.instance))
    }

    /// What is told next. May be cancelled; for ever silent where nobody is followed.
    pub(super) async fn next(&mut self) -> PodReport {
        let told = match &mut self.followed {
            Some(followed) => followed.reports.next().await,
            None => None,
        };
        match told {
            Some(report) => report,
            None => std::future::pending().await,
        }
    }
}

/// A replica is called as its Pod, or as its host with something after it. Nothing else may become a part of a selector.
fn pod_name(holder: &Identity) -> Option<&str> {
    let name = holder.as_str().split('_').next()?;
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    (!name.is_empty() && name.chars().all(is_part)).then_some(name)
}

/// What is reported of this Pod, from what is there now on, for ever.
fn reports(
    inner: Arc<Inner>,
    namespace: String,
    pod: String,
) -> impl Stream<Item = PodReport> + Send {
    let requests = Request::new(format!("/api/v1/namespaces/{namespace}/pods"));
    let watching = Watching {
        inner,
        requests,
        pod,
        events: None,
        opened: clock::now(),
    };
    stream::unfold(watching, |mut watching| async move {
        loop {
            match watching.next().await {
                Ok(Some(report)) => return Some((report, watching)),
                Ok(None) => {}
                Err(wait) => {
                    watching.events = None;
                    clock::sleep(wait).await.ok()?;
                }
            }
        }
    })
}

struct Watching {
    inner: Arc<Inner>,
    requests: Request,
    pod: String,
    events: Option<Events>,
    opened: Moment,
}

impl Watching {
    /// Fails with how long to wait.
    async fn next(&mut self) -> Result<Option<PodReport>, Duration> {
        let events = match &mut self.events {
            Some(events) => events,
            None => {
                let opened =
                    tokio::time::timeout(IDLE, open(&self.inner, &self.requests, &self.pod)).await;
                let opened = opened
                    .map_err(|_| AGAIN)?
                    .map_err(|error| self.failed(&error))?;
                self.opened = clock::now();
                self.events.insert(opened)
            }
        };
        match tokio::time::timeout(IDLE, events.next()).await {
            Ok(Some(Ok(
                WatchEvent::Added(pod) | WatchEvent::Modified(pod) | WatchEvent::Deleted(pod),
            ))) => Ok(pods::report(&pod)),
            Ok(Some(Ok(WatchEvent::Bookmark(_)))) => Ok(None),
            // Its timeout, as a rule.
            Ok(None) if clock::now().since(self.opened) > AGAIN => Err(Duration::ZERO),
            Ok(Some(Ok(WatchEvent::Error(_)) | Err(_)) | None) | Err(_) => Err(AGAIN),
        }
    }

    fn failed(&self, error: &kube::Error) -> Duration {
        let refused = matches!(error, kube::Error::Api(status) if matches!(status.code, 401 | 403));
        let (pod, error) = (&self.pod, chain(error));
        let is_first = || {
            self.inner
                .observer
                .get()
                .is_some_and(|o| !o.was_refused.swap(true, Ordering::Relaxed))
        };
        if refused && is_first() {
            info!(
                error,
                rule = RULE,
                "a holder that dies is waited out, because its Pod may not be watched"
            );
        } else {
            debug!(pod, error, "the holder's Pod cannot be watched");
        }
        if refused { REFUSED } else { AGAIN }
    }
}

async fn open(inner: &Inner, requests: &Request, pod: &str) -> Result<Events, kube::Error> {
    let params = WatchParams::default()
        .fields(&format!("metadata.name={pod}"))
        .timeout(inner.watch_seconds);
    // From whatever is in the server's cache: what has ended has ended, however old the news is.
    let request = requests.watch(&params, "0");
    let request = request.map_err(kube::Error::BuildRequest)?;
    let client = inner.connection.client().await?;
    Ok(client.request_events::<Value>(request).await?.boxed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_found_by_the_holders_name_if_it_can_be_one() {
        let name = |holder: &str| pod_name(&Identity::found(holder).unwrap()).map(str::to_owned);
        assert_eq!(name("web-7f9c-x2").as_deref(), Some("web-7f9c-x2"));
        assert_eq!(name("web-0_1a2b3c4d").as_deref(), Some("web-0"));
        for odd in ["_x", "a,metadata.namespace=b", "A", "a b", "a=b"] {
            assert_eq!(name(odd), None, "{odd}");
        }
    }
}
