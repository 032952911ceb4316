//! The Pod that we run in, as Kubernetes knows it.

use std::env;
use std::fs;
use std::time::Duration;

use http::Request;
use kube::Client;
use serde_json::Value;
use soloist_elector::kubernetes::{KubernetesStore, Options};
use tokio::time::timeout;
use tracing::debug;

const NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
/// An answer that takes longer is of no use to whoever is about to end.
const PATIENCE: Duration = Duration::from_secs(3);

/// Which Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnPod {
    pub(crate) name: String,
    pub(crate) namespace: String,
}

/// Why the API server was of no use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{0}")]
    Forbidden(String),
    #[error("{0}")]
    Broken(String),
    #[error("no answer")]
    Silence,
}

impl Failure {
    pub(crate) fn of(error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if matches!(status.code, 401 | 403) => {
                Self::Forbidden(status.message.clone())
            }
            _ => Self::Broken(error.to_string()),
        }
    }
}

impl OwnPod {
    /// As the Pod's variables and its service account say; `None` if this is no Pod.
    pub(crate) fn find() -> Option<Self> {
        let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
        let name = variable("POD_NAME").or_else(|| {
            // A Pod's host name is its own, unless it has the host's network.
            variable("KUBERNETES_SERVICE_HOST").and_then(|_| variable("HOSTNAME"))
        });
        let namespace = variable("POD_NAMESPACE")
            .or_else(|| fs::read_to_string(NAMESPACE).ok())
            .or_else(|| variable("NAMESPACE"));
        Some(Self {
            name: name.filter(|name| is_a_name(name))?,
            namespace: namespace.filter(|name| is_a_name(name))?,
        })
    }

    /// With our own credentials.
    pub(crate) async fn client(&self) -> Result<Client, Failure> {
        // Whoever is no replica has not chosen one yet.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let broken = |error: &dyn std::error::Error| Failure::Broken(error.to_string());
        let options = Options::lease("soloist").namespace(&self.namespace);
        let store = KubernetesStore::connect(options);
        let store = store.await.map_err(|error| broken(&error))?;
        store.client().await.map_err(|error| broken(&error))
    }

    /// The grace period that this Pod has: of its deletion, or as its manifest says; and no more than `by_kubelet` where its kubelet
    /// ends it without anybody's deletion.
    pub(crate) async fn grace_period(&self, by_kubelet: Option<Duration>) -> Option<Duration> {
        let pod = self.read().await?;
        let grace = grace_period_of(&pod)?;
        let less = by_kubelet.filter(|_| is_ended_by_kubelet(&pod));
        Some(less.map_or(grace, |less| less.min(grace)))
    }

    /// Whether the Pod has the network of its node, and so everybody's connections. `None` if we may not know.
    pub(crate) async fn has_hosts_network(&self) -> Option<bool> {
        Some(self.read().await?["spec"]["hostNetwork"] == true)
    }

    async fn read(&self) -> Option<Value> {
        let asking = async {
            let client = self.client().await?;
            let (namespace, name) = (&self.namespace, &self.name);
            let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
            get(&client, &path).await
        };
        let asked = timeout(PATIENCE, asking).await;
        let read = asked.unwrap_or(Err(Failure::Silence));
        read.inspect_err(|failure| debug!(%failure, "the Pod itself is not known"))
            .ok()
    }
}

pub(crate) async fn get(client: &Client, path: &str) -> Result<Value, Failure> {
    let request = Request::get(path).body(Vec::new());
    let request = request.map_err(|error| Failure::Broken(error.to_string()))?;
    match timeout(PATIENCE, client.request::<Value>(request)).await {
        Ok(answer) => answer.map_err(|error| Failure::of(&error)),
        Err(_) => Err(Failure::Silence),
    }
}

/// Nothing else may become a part of a path.
fn is_a_name(name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    !name.is_empty() && name.chars().all(is_part)
}

fn grace_period_of(pod: &Value) -> Option<Duration> {
    let seconds = |path: &str| pod.pointer(path).and_then(Value::as_u64);
    seconds("/metadata/deletionGracePeriodSeconds")
        .or_else(|| seconds("/spec/terminationGracePeriodSeconds"))
        .map(Duration::from_secs)
}

/// Nobody has deleted it; or only because its node says that it is not ready, as one does that shuts down.
fn is_ended_by_kubelet(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let is_tainted = |condition: &Value| {
        condition["type"] == "DisruptionTarget" && condition["reason"] == "DeletionByTaintManager"
    };
    pod["metadata"]["deletionTimestamp"].is_null()
        || conditions.is_some_and(|all| all.iter().any(is_tainted))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_grace_period_of_the_deletion_comes_before_the_manifests() {
        let mut pod = json!({ "spec": { "terminationGracePeriodSeconds": 30 } });
        assert_eq!(grace_period_of(&pod), Some(Duration::from_secs(30)));
        pod["metadata"] = json!({ "deletionGracePeriodSeconds": 10 });
        assert_eq!(grace_period_of(&pod), Some(Duration::from_secs(10)));
        assert_eq!(grace_period_of(&json!({})), None);
    }

    #[test]
    fn who_ends_a_pod_is_its_kubelet_unless_somebody_deletes_it() {
        let mut pod = json!({ "metadata": {} });
        assert!(is_ended_by_kubelet(&pod));
        pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        assert!(!is_ended_by_kubelet(&pod));
        let condition = |reason: &str| json!([{ "type": "DisruptionTarget", "reason": reason }]);
        pod["status"]["conditions"] = condition("EvictionByEvictionAPI");
        assert!(!is_ended_by_kubelet(&pod));
        pod["status"]["conditions"] = condition("DeletionByTaintManager");
        assert!(is_ended_by_kubelet(&pod));
    }

    #[test]
    fn what_is_no_name_does_not_get_into_a_path() {
        assert!(is_a_name("web-7f9c-x2.a"));
        for name in ["", "a/b", "..%2f", "a b"] {
            assert!(!is_a_name(name), "{name}");
        }
    }
}
