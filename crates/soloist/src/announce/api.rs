//! Requests to the API server that nothing depends on.

use std::fmt;
use std::time::Duration;

use http::Request;
use serde_json::Value;
use soloist_elector::kubernetes::KubernetesStore;
use tokio::time::timeout;

/// Whoever has no answer by then goes on without.
const PATIENCE: Duration = Duration::from_secs(2);

/// The store's credentials, for other things.
#[derive(Clone, Debug)]
pub(crate) struct Asking {
    store: KubernetesStore,
}

/// Why it was not done.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refusal {
    #[error("{0}")]
    Forbidden(String),
    /// There is such an object already, or it has changed.
    #[error("{0}")]
    Conflict(String),
    #[error("{0}")]
    Failed(String),
}

impl Refusal {
    pub(crate) fn of(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) if status.code == 403 => {
                Self::Forbidden(status.message.clone())
            }
            kube::Error::Api(status) if status.code == 409 => {
                Self::Conflict(status.message.clone())
            }
            error => Self::Failed(error.to_string()),
        }
    }
}

/// A rule for a Role, as people write it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    pub(crate) group: &'static str,
    pub(crate) resource: &'static str,
    pub(crate) verbs: &'static str,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            group,
            resource,
            verbs,
        } = self;
        write!(
            f,
            "{{apiGroups: [{group:?}], resources: [{resource:?}], verbs: [{verbs}]}}"
        )
    }
}

impl Asking {
    pub(crate) const fn of(store: KubernetesStore) -> Self {
        Self { store }
    }

    pub(crate) const fn store(&self) -> &KubernetesStore {
        &self.store
    }

    pub(crate) async fn get(&self, path: &str) -> Result<Value, Refusal> {
        self.send(Request::get(path), Vec::new()).await
    }

    pub(crate) async fn create(&self, path: &str, object: &Value) -> Result<Value, Refusal> {
        let request = Request::post(path).header(http::header::CONTENT_TYPE, "application/json");
        self.send(request, object.to_string().into_bytes()).await
    }

    pub(crate) async fn merge(&self, path: &str, patch: &Value) -> Result<Value, Refusal> {
        let kind = "application/merge-patch+json";
        let request = Request::patch(path).header(http::header::CONTENT_TYPE, kind);
        self.send(request, patch.to_string().into_bytes()).await
    }

    async fn send(&self, request: http::request::Builder, body: Vec<u8>) -> Result<Value, Refusal> {
        let failed = |error: &dyn std::error::Error| Refusal::Failed(error.to_string());
        let request = request.body(body).map_err(|error| failed(&error))?;
        let asking = async {
            let client = self.store.client().await.map_err(|error| failed(&error))?;
            let answer = client.request::<Value>(request).await;
            answer.map_err(Refusal::of)
        };
        let no_answer = || Refusal::Failed(format!("no answer within {}s", PATIENCE.as_secs()));
        timeout(PATIENCE, asking)
            .await
            .unwrap_or_else(|_| Err(no_answer()))
    }
}
