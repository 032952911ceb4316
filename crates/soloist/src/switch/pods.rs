//! The replicas as Kubernetes knows them: Pods, where we may read them.

use std::time::Duration;

use http::Request;
use serde_json::Value;
use soloist_elector::kubernetes::KubernetesStore;
use tokio::time::timeout;

use super::NotDone;
use super::lease::PATIENCE;
use crate::workload_labels;

/// Why a request has failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("{message} ({code})")]
    Answered { code: u16, message: String },
    #[error("{0}")]
    Broken(String),
}

impl Failure {
    fn is(&self, wanted: u16) -> bool {
        matches!(self, Self::Answered { code, .. } if *code == wanted)
    }
}

pub(super) async fn get(store: &KubernetesStore, path: &str) -> Result<Value, Failure> {
    let broken = |error: &dyn std::error::Error| Failure::Broken(error.to_string());
    let client = store.client().await.map_err(|error| broken(&error))?;
    let request = Request::get(path).body(Vec::new());
    let request = request.map_err(|error| broken(&error))?;
    match timeout(PATIENCE, client.request::<Value>(request)).await {
        Err(_) => Err(Failure::Broken("no answer".into())),
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(kube::Error::Api(status))) => Err(Failure::Answered {
            code: status.code,
            message: status.message.clone(),
        }),
        Ok(Err(error)) => Err(broken(&error)),
    }
}

/// Whether this Pod can take over. A warning where nobody lets us look.
pub(super) async fn check(store: &KubernetesStore, name: &str) -> Result<Option<String>, NotDone> {
    let namespace = store.namespace();
    let none = || NotDone::NoSuchReplica {
        name: name.to_owned(),
        place: format!(
            "namespace {namespace} has no such Pod; for replicas with other names: --unchecked"
        ),
    };
    let is_part_of_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    if !name.chars().all(is_part_of_name) {
        return Err(none());
    }
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
    match get(store, &path).await {
        Ok(pod) => match Pod::of(&pod).unfit() {
            Some(why) => Err(NotDone::Unfit {
                name: name.to_owned(),
                why,
            }),
            None => Ok(None),
        },
        Err(failure) if failure.is(404) => Err(none()),
        Err(failure) => Ok(Some(format!(
            "cannot look whether the replica {name} exists ({failure}); if it does not take the lease, another one does"
        ))),
    }
}

/// The Pods of the leader's workload, itself included; `None` where we may not read them, or it is none.
pub(super) async fn of_leader(store: &KubernetesStore, leader: &str) -> Result<Vec<Pod>, Failure> {
    let pods = format!("/api/v1/namespaces/{}/pods", store.namespace());
    let pod = get(store, &format!("{pods}/{leader}")).await?;
    let Some(selector) = workload_labels::selector(&pod) else {
        return Ok(vec![Pod::of(&pod)]);
    };
    let list = get(store, &format!("{pods}?labelSelector={selector}")).await?;
    let items = list.get("items").and_then(Value::as_array);
    Ok(items.into_iter().flatten().map(Pod::of).collect())
}

/// What of a Pod is of interest here.
pub(super) struct Pod {
    pub(super) name: String,
    pub(super) node: String,
    pub(super) phase: String,
    pub(super) ready: bool,
    pub(super) leaves: bool,
    pub(super) restarts: u64,
    pub(super) revision: String,
}

impl Pod {
    fn of(pod: &Value) -> Self {
        let text = |path: &str| {
            let found = pod.pointer(path).and_then(Value::as_str);
            found.unwrap_or_default().to_owned()
        };
        let list = |path: &str| pod.pointer(path).and_then(Value::as_array);
        let conditions = list("/status/conditions").into_iter().flatten();
        let mut ready = conditions.filter(|c| c["type"] == "Ready");
        let containers = list("/status/containerStatuses").into_iter().flatten();
        let revision = [
            "/metadata/labels/pod-template-hash",
            "/metadata/labels/controller-revision-hash",
        ];
        Self {
            name: text("/metadata/name"),
            node: text("/spec/nodeName"),
            phase: text("/status/phase"),
            ready: ready.any(|c| c["status"] == "True"),
            leaves: !text("/metadata/deletionTimestamp").is_empty(),
            restarts: containers.filter_map(|c| c["restartCount"].as_u64()).sum(),
            revision: revision
                .map(text)
                .into_iter()
                .find(|hash| !hash.is_empty())
                .unwrap_or_default(),
        }
    }

    fn unfit(&self) -> Option<String> {
        match self.phase.as_str() {
            _ if self.leaves => Some("its Pod is being deleted".into()),
            "Succeeded" | "Failed" => Some(format!("its Pod has ended ({})", self.phase)),
            "Pending" => Some("its Pod has not started yet".into()),
            _ => None,
        }
    }

    pub(super) const fn state(&self) -> &str {
        match (self.leaves, self.ready) {
            (true, _) => "leaving",
            (false, true) => "ready",
            (false, false) => "not ready",
        }
    }
}

/// How often a table that is watched is looked at anew for what the lease does not show.
pub(super) const LOOK: Duration = Duration::from_secs(2);
