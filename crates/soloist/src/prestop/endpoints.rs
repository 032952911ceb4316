//! Waits until no EndpointSlice shows this Pod as one to send traffic to.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt;
use http::Request;
use kube::Client;
use kube::core::WatchEvent;
use serde_json::Value;
use soloist_elector::clock;
use tokio::time::{sleep, timeout};

use crate::own_pod::{Failure, OwnPod, get};

/// A watch that says nothing for so long may be one whose server is gone: a new list tells.
const SILENCE: Duration = Duration::from_secs(3);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(300);

/// How many slices had it. A server that cannot be reached is tried again for so long.
pub(super) async fn leave(pod: &OwnPod, patience: Duration) -> Result<usize, Failure> {
    let began = clock::now();
    loop {
        let failure = match pod.client().await {
            Ok(client) => match until_left(&client, pod).await {
                Ok(slices) => return Ok(slices),
                Err(failure) => failure,
            },
            Err(failure) => failure,
        };
        let is_over = clock::now().since(began) >= patience;
        if is_over || matches!(failure, Failure::Forbidden(_)) {
            return Err(failure);
        }
        sleep(PAUSE).await;
    }
}

async fn until_left(client: &Client, pod: &OwnPod) -> Result<usize, Failure> {
    let mut slices = Slices::default();
    let slices_path = format!(
        "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices",
        pod.namespace
    );
    loop {
        let list = get(client, &slices_path).await?;
        slices.serving.clear();
        for slice in list["items"].as_array().into_iter().flatten() {
            slices.changed(slice, pod);
        }
        if slices.serving.is_empty() {
            return Ok(slices.seen.len());
        }
        let version = list.pointer("/metadata/resourceVersion");
        let version = version.and_then(Value::as_str).unwrap_or_default();
        let path = format!("{slices_path}?watch=true&resourceVersion={version}&timeoutSeconds=290");
        let request = Request::get(path).body(Vec::new());
        let request = request.map_err(|error| Failure::Broken(error.to_string()))?;
        let events = timeout(SILENCE, client.request_events::<Value>(request)).await;
        let events = events.map_err(|_| Failure::Silence)?;
        let mut events = pin!(events.map_err(|error| Failure::of(&error))?);
        while let Ok(Some(event)) = timeout(SILENCE, events.next()).await {
            match event.map_err(|error| Failure::of(&error))? {
                WatchEvent::Added(slice) | WatchEvent::Modified(slice) => {
                    slices.changed(&slice, pod);
                }
                WatchEvent::Deleted(slice) => slices.gone(&slice),
                WatchEvent::Bookmark(_) => {}
                // Too old a version: list anew.
                WatchEvent::Error(_) => break,
            }
            if slices.serving.is_empty() {
                return Ok(slices.seen.len());
            }
        }
    }
}

/// By their names.
#[derive(Debug, Default)]
struct Slices {
    /// All that ever had the Pod.
    seen: BTreeSet<String>,
    /// Those that still show it as one to send traffic to.
    serving: BTreeSet<String>,
}

impl Slices {
    fn changed(&mut self, slice: &Value, pod: &OwnPod) {
        let name = name_of(slice);
        let endpoints = slice["endpoints"].as_array().into_iter().flatten();
        let mut own = endpoints.filter(|endpoint| is_of(endpoint, pod)).peekable();
        if own.peek().is_some() {
            self.seen.insert(name.clone());
        }
        match own.any(gets_traffic) {
            true => self.serving.insert(name),
            false => self.serving.remove(&name),
        };
    }

    fn gone(&mut self, slice: &Value) {
        self.serving.remove(&name_of(slice));
    }
}

fn name_of(slice: &Value) -> String {
    let name = slice.pointer("/metadata/name").and_then(Value::as_str);
    name.unwrap_or_default().to_owned()
}

fn is_of(endpoint: &Value, pod: &OwnPod) -> bool {
    let target = &endpoint["targetRef"];
    target["kind"] == "Pod" && target["name"] == pod.name
}

/// What is not said about readiness is meant as yes.
fn gets_traffic(endpoint: &Value) -> bool {
    let conditions = &endpoint["conditions"];
    conditions["ready"] != false && conditions["terminating"] != true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod() -> OwnPod {
        OwnPod {
            name: "web-1".into(),
            namespace: "shop".into(),
        }
    }

    fn slice(name: &str, endpoints: &[(&str, Value)]) -> Value {
        let endpoint = |(pod, conditions): &(&str, Value)| json!({ "targetRef": { "kind": "Pod", "name": pod }, "conditions": conditions });
        let endpoints: Vec<Value> = endpoints.iter().map(endpoint).collect();
        json!({ "metadata": { "name": name }, "endpoints": endpoints })
    }

    #[test]
    fn it_has_left_when_every_slice_shows_it_as_not_ready_or_terminating() {
        let ready = || json!({ "ready": true });
        let mut slices = Slices::default();
        slices.changed(
            &slice("a", &[("web-1", ready()), ("web-2", ready())]),
            &pod(),
        );
        slices.changed(&slice("b", &[("web-1", json!({}))]), &pod());
        slices.changed(&slice("c", &[("web-2", ready())]), &pod());
        slices.changed(
            &json!({ "metadata": { "name": "d" }, "endpoints": null }),
            &pod(),
        );
        assert_eq!(Vec::from_iter(&slices.serving), ["a", "b"]);
        let terminating = json!({ "ready": false, "serving": true, "terminating": true });
        slices.changed(
            &slice("a", &[("web-1", terminating), ("web-2", ready())]),
            &pod(),
        );
        assert_eq!(Vec::from_iter(&slices.serving), ["b"]);
        slices.changed(&slice("b", &[("web-1", json!({ "ready": false }))]), &pod());
        assert!(slices.serving.is_empty());
        assert_eq!(slices.seen.len(), 2);
    }

    #[test]
    fn a_slice_that_is_gone_or_has_lost_the_pod_sends_nothing() {
        let mut slices = Slices::default();
        let own = slice("a", &[("web-1", json!({ "ready": true }))]);
        slices.changed(&own, &pod());
        slices.gone(&own);
        assert!(slices.serving.is_empty());
        slices.changed(&own, &pod());
        slices.changed(&slice("a", &[]), &pod());
        assert!(slices.serving.is_empty());
    }

    #[test]
    fn a_service_that_publishes_unready_addresses_is_left_too() {
        // It shows a terminating Pod as ready.
        let conditions = json!({ "ready": true, "serving": true, "terminating": true });
        assert!(!gets_traffic(&json!({ "conditions": conditions })));
    }
}
