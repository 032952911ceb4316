//! Whether a node is to be emptied, as its object says.

use std::fmt;

use serde_json::Value;

/// Who puts one of these on a node is about to evict its Pods, or has lost the machine.
const TAINTS: [&str; 7] = [
    "node.kubernetes.io/unschedulable",
    "node.kubernetes.io/out-of-service",
    "node.cloudprovider.kubernetes.io/shutdown",
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
    "cloud.google.com/impending-node-termination",
];
/// And all that begin so, which name the reason after it.
const TAINTS_BEGIN: &str = "aws-node-termination-handler/";

/// How a node says that it is to be emptied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    Cordoned,
    Tainted(String),
    Deleted,
}

impl Leaving {
    /// `None`: it is as any other.
    pub(crate) fn of(node: &Value) -> Option<Self> {
        if node["metadata"].get("deletionTimestamp").is_some() {
            return Some(Self::Deleted);
        }
        // What says more than that no Pod is to come comes first.
        let taints = node["spec"]["taints"].as_array().into_iter().flatten();
        let keys = taints.filter_map(|taint| taint["key"].as_str());
        let (cordon, others): (Vec<&str>, Vec<&str>) = keys
            .filter(|key| TAINTS.contains(key) || key.starts_with(TAINTS_BEGIN))
            .partition(|key| *key == TAINTS[0]);
        match others.first() {
            Some(key) => Some(Self::Tainted((*key).to_owned())),
            None if !cordon.is_empty() || node["spec"]["unschedulable"] == true => {
                Some(Self::Cordoned)
            }
            None => None,
        }
    }
}

impl fmt::Display for Leaving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cordoned => f.write_str("is cordoned"),
            Self::Tainted(key) => write!(f, "has the taint {key}"),
            Self::Deleted => f.write_str("is being deleted"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tainted(keys: &[&str]) -> Value {
        let taints: Vec<Value> = keys
            .iter()
            .map(|key| json!({ "key": key, "effect": "NoSchedule" }))
            .collect();
        json!({ "metadata": { "name": "one" }, "spec": { "taints": taints } })
    }

    #[test]
    fn a_node_is_to_be_emptied_by_a_cordon_a_taint_of_who_empties_nodes_or_its_deletion() {
        let cordoned = json!({ "spec": { "unschedulable": true } });
        assert_eq!(Leaving::of(&cordoned), Some(Leaving::Cordoned));
        for key in &TAINTS[1..] {
            let leaving = Leaving::of(&tainted(&[TAINTS[0], key]));
            assert_eq!(leaving, Some(Leaving::Tainted((*key).to_owned())));
        }
        assert_eq!(Leaving::of(&tainted(&[TAINTS[0]])), Some(Leaving::Cordoned));
        let spot = tainted(&["aws-node-termination-handler/spot-itn"]);
        assert!(Leaving::of(&spot).is_some());
        let deleted = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } });
        assert_eq!(Leaving::of(&deleted), Some(Leaving::Deleted));
    }

    #[test]
    fn other_taints_and_odd_objects_mean_nothing() {
        for node in [
            tainted(&[]),
            tainted(&["dedicated", "node.kubernetes.io/not-ready"]),
            // It may be taken back.
            tainted(&["DeletionCandidateOfClusterAutoscaler"]),
            json!({ "spec": { "unschedulable": false } }),
            json!({ "spec": { "unschedulable": "yes", "taints": "many" } }),
            json!({ "spec": { "taints": [{ "effect": "NoSchedule" }, 7, null] } }),
            json!(null),
            json!([]),
        ] {
            assert_eq!(Leaving::of(&node), None, "{node}");
        }
    }
}
