//! Events on the Lease and on our own Pod.

use std::env;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use soloist_core::ids::Identity;
use soloist_core::time::Moment;
use soloist_elector::kubernetes::KubernetesStore;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{debug, info};

use super::api::{Asking, Refusal, Rule};
use super::story::Told;
use crate::own_pod::OwnPod;

/// More than this do not wait to be sent.
const QUEUE: usize = 16;

/// The pauses before an Event is tried again.
const RETRIES: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(4),
    Duration::from_secs(15),
];
/// Whoever has just taken over or let go leaves the API server and the processors to those who start the child: an Event
/// can wait longer than a handover takes.
const AFTER_YOU: Duration = Duration::from_millis(100);

const RULE: Rule = Rule {
    group: "events.k8s.io",
    resource: "events",
    verbs: "create",
};

/// Where Events go.
#[derive(Debug)]
pub(super) struct Events {
    queue: mpsc::Sender<Waiting>,
    worker: JoinHandle<()>,
    allowance: Allowance,
}

impl Events {
    pub(super) fn start(store: KubernetesStore, pod: Option<OwnPod>, identity: &Identity) -> Self {
        let (queue, waiting) = mpsc::channel(QUEUE);
        let writer = Writer {
            asking: Asking::of(store),
            pod,
            pod_uid: env::var("POD_UID").unwrap_or_default(),
            lease_uid: None,
            instance: identity.to_string(),
        };
        Self {
            queue,
            worker: tokio::spawn(writer.work(waiting)),
            allowance: Allowance::default(),
        }
    }

    /// Never waits: what is too much is left out, and the next one says how many were.
    pub(super) fn tell(&mut self, now: Moment, mut told: Told) {
        let Some(left_out) = self.allowance.take(now) else {
            return;
        };
        if left_out > 0 {
            let note = &mut told.note;
            note.push_str(&format!(" ({left_out} more were left out before this)"));
        }
        // Nobody listens where Events are forbidden.
        let _ = self.queue.try_send(Waiting {
            due: Instant::now() + AFTER_YOU,
            at: Timestamp::now(),
            told,
        });
    }

    /// Waits until all is told.
    pub(super) async fn finish(self) {
        drop(self.queue);
        let _ = self.worker.await;
    }
}

/// So many at once, and then one for every so often.
#[derive(Debug)]
struct Allowance {
    left: u32,
    /// Since when it grows.
    since: Option<Moment>,
    left_out: u32,
}

impl Default for Allowance {
    fn default() -> Self {
        Self {
            left: Self::AT_ONCE,
            since: None,
            left_out: 0,
        }
    }
}

impl Allowance {
    const AT_ONCE: u32 = 20;
    const ONE_MORE: Duration = Duration::from_secs(30);

    /// Takes one, if there is one: how many had to do without before it.
    fn take(&mut self, now: Moment) -> Option<u32> {
        let since = *self.since.get_or_insert(now);
        let grown = now.since(since).as_secs() / Self::ONE_MORE.as_secs();
        let grown = u32::try_from(grown).unwrap_or(u32::MAX);
        if grown > 0 {
            self.left = self.left.saturating_add(grown).min(Self::AT_ONCE);
            self.since = Some(now);
        }
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                Some(std::mem::take(&mut self.left_out))
            }
            None => {
                self.left_out = self.left_out.saturating_add(1);
                None
            }
        }
    }
}

#[derive(Debug)]
struct Waiting {
    due: Instant,
    at: Timestamp,
    told: Told,
}

struct Writer {
    asking: Asking,
    pod: Option<OwnPod>,
    pod_uid: String,
    /// `kubectl describe` looks for Events by it.
    lease_uid: Option<String>,
    instance: String,
}

impl Writer {
    async fn work(mut self, mut waiting: mpsc::Receiver<Waiting>) {
        while let Some(Waiting { due, at, told }) = waiting.recv().await {
            sleep_until(due).await;
            // It may have been deleted and made anew before a term.
            if self.lease_uid.is_none() || told.reason == "BecameLeader" {
                self.lease_uid = self.find_lease().await;
            }
            for regarding in self.subjects() {
                let namespace = regarding["namespace"].as_str().unwrap_or_default();
                let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
                let event = self.event(at, &told, &regarding);
                match self.write(&path, &event).await {
                    Ok(()) => {}
                    Err(Refusal::Forbidden(message)) => {
                        info!(
                            "no Events are written, and nothing else changes. Who wants them adds a rule to the Role: {RULE} ({message})"
                        );
                        return;
                    }
                    Err(failure) => {
                        debug!(reason = told.reason, %failure, "an Event is not written");
                    }
                }
            }
        }
    }

    /// A lease is mostly lost because the API server does not answer, so that is told when it does again.
    async fn write(&self, path: &str, event: &Value) -> Result<(), Refusal> {
        let mut pauses = RETRIES.into_iter();
        loop {
            match (self.asking.create(path, event).await, pauses.next()) {
                // It had landed, and the answer was lost.
                (Ok(_) | Err(Refusal::Conflict(_)), _) => return Ok(()),
                (Err(Refusal::Failed(_)), Some(pause)) => sleep(pause).await,
                (Err(failure), _) => return Err(failure),
            }
        }
    }

    async fn find_lease(&self) -> Option<String> {
        let (namespace, name) = self.lease();
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}");
        let lease = self.asking.get(&path).await.ok()?;
        Some(lease.pointer("/metadata/uid")?.as_str()?.to_owned())
    }

    fn lease(&self) -> (&str, &str) {
        let store = self.asking.store();
        (store.namespace(), store.name())
    }

    /// What it is about: the Lease, and the Pod if we are in one.
    fn subjects(&self) -> Vec<Value> {
        let (namespace, name) = self.lease();
        let mut subjects = vec![json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "namespace": namespace, "name": name,
            "uid": self.lease_uid.as_deref().unwrap_or_default(),
        })];
        if let Some(pod) = &self.pod {
            subjects.push(json!({
                "apiVersion": "v1", "kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": self.pod_uid,
            }));
        }
        subjects
    }

    fn event(&self, at: Timestamp, told: &Told, regarding: &Value) -> Value {
        // The server takes no more.
        let instance: String = self.instance.chars().take(128).collect();
        let note: String = told.note.chars().take(1000).collect();
        let namespace = &regarding["namespace"];
        let name = regarding["name"].as_str().unwrap_or_default();
        json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": { "name": event_name(name, &self.instance, at, told, regarding), "namespace": namespace },
            "eventTime": at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string(),
            "reportingController": "soloist.dev/soloist",
            "reportingInstance": instance,
            "action": told.reason,
            "reason": told.reason,
            "type": if told.warning { "Warning" } else { "Normal" },
            "note": note,
            "regarding": regarding,
        })
    }
}

/// The same for the same Event, however often it is sent, and no other's.
fn event_name(name: &str, instance: &str, at: Timestamp, told: &Told, regarding: &Value) -> String {
    let what = format!("{at} {instance} {} {}", told.reason, regarding["kind"]);
    let digest = Sha256::digest(what.as_bytes());
    let digest: String = digest[..8]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    // The server takes no more than 253.
    let name: String = name.chars().take(230).collect();
    format!("{}.{digest}", name.trim_end_matches(['-', '.']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_that_is_sent_twice_is_one_and_others_are_others() {
        let at: Timestamp = "2026-01-01T00:00:00.5Z".parse().unwrap();
        let told = Told {
            reason: "BecameLeader",
            warning: false,
            note: String::new(),
        };
        let lease = json!({"kind": "Lease"});
        let first = event_name("feed", "feed-0", at, &told, &lease);
        assert_eq!(first, event_name("feed", "feed-0", at, &told, &lease));
        assert!(first.starts_with("feed.") && first.len() == 21, "{first}");
        let other = [
            event_name("feed", "feed-1", at, &told, &lease),
            event_name(
                "feed",
                "feed-0",
                at + Duration::from_nanos(1),
                &told,
                &lease,
            ),
            event_name("feed", "feed-0", at, &told, &json!({"kind": "Pod"})),
        ];
        assert!(!other.contains(&first), "{other:?}");
        let long = event_name(&"a.-".repeat(80), "i", at, &told, &lease);
        assert!(long.len() < 253 && !long.contains("-.-."), "{long}");
    }

    #[test]
    fn a_flood_of_events_is_cut_and_the_next_one_says_how_many_were_left_out() {
        let start = Moment::since_boot(Duration::from_secs(100));
        let mut allowance = Allowance::default();
        for _ in 0..Allowance::AT_ONCE {
            assert_eq!(allowance.take(start), Some(0));
        }
        assert_eq!(allowance.take(start), None);
        assert_eq!(allowance.take(start + Duration::from_secs(29)), None);
        assert_eq!(allowance.take(start + Duration::from_secs(30)), Some(2));
        assert_eq!(allowance.take(start + Duration::from_secs(31)), None);
        let much_later = start + Duration::from_secs(100_000);
        assert_eq!(allowance.take(much_later), Some(1));
    }
}
