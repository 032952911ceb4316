//! The labels that the Pods of one workload have in common.

use serde_json::Value;

/// Labels that differ between the Pods of one workload, or between its revisions.
const OF_SOME_PODS: [&str; 7] = [
    "pod-template-hash",
    "controller-revision-hash",
    "statefulset.kubernetes.io/pod-name",
    "apps.kubernetes.io/pod-index",
    "app.kubernetes.io/version",
    "helm.sh/chart",
    "soloist.dev/role",
];

/// A selector of all of them, as a query takes it; `None` if there is nothing to select by.
pub(crate) fn selector(pod: &Value) -> Option<String> {
    let labels = pod.pointer("/metadata/labels")?.as_object()?;
    let selector: Vec<_> = labels
        .iter()
        .filter(|(name, _)| !OF_SOME_PODS.contains(&name.as_str()))
        .filter_map(|(name, value)| Some(format!("{name}%3D{}", value.as_str()?)))
        .collect();
    let selector = selector.join("%2C").replace('/', "%2F");
    (!selector.is_empty()).then_some(selector)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_differs_between_pods_and_revisions_is_left_out() {
        let labels = json!({ "example.org/app": "web", "pod-template-hash": "aa", "app.kubernetes.io/version": "2" });
        let pod = json!({ "metadata": { "labels": labels } });
        assert_eq!(selector(&pod).as_deref(), Some("example.org%2Fapp%3Dweb"));
        let bare = json!({ "metadata": { "labels": { "pod-template-hash": "aa" } } });
        assert_eq!(selector(&bare), None);
    }
}
