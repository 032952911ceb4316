//! The kinds of objects that a lease can be kept in.

use serde_json::{Map, Value, json};

/// The annotation in which client-go kept its record before there were Leases.
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";

/// What kind of object the lease is. All but the Lease are deprecated: they are for groups that elect by an old client-go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Resource {
    /// `coordination.k8s.io/v1`.
    #[default]
    Lease,
    /// A ConfigMap's annotation.
    ConfigMap,
    /// An Endpoints' annotation.
    Endpoints,
}

impl Resource {
    /// As an object calls it.
    #[must_use]
    pub const fn kind(self) -> &'static str {
        match self {
            Self::Lease => "Lease",
            Self::ConfigMap => "ConfigMap",
            Self::Endpoints => "Endpoints",
        }
    }

    /// As paths and Roles call it.
    #[must_use]
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Lease => "leases",
            Self::ConfigMap => "configmaps",
            Self::Endpoints => "endpoints",
        }
    }

    /// Its API group; the core's is empty.
    #[must_use]
    pub const fn group(self) -> &'static str {
        match self {
            Self::Lease => "coordination.k8s.io",
            Self::ConfigMap | Self::Endpoints => "",
        }
    }

    pub(super) const fn api_version(self) -> &'static str {
        match self {
            Self::Lease => "coordination.k8s.io/v1",
            Self::ConfigMap | Self::Endpoints => "v1",
        }
    }

    /// For people.
    pub(super) const fn noun(self) -> &'static str {
        match self {
            Self::Lease => "lease",
            Self::ConfigMap => "configmap",
            Self::Endpoints => "endpoints",
        }
    }

    /// Where the API has those of a namespace.
    #[must_use]
    pub fn path(self, namespace: &str) -> String {
        let root = match self {
            Self::Lease => "apis",
            Self::ConfigMap | Self::Endpoints => "api",
        };
        let (version, plural) = (self.api_version(), self.plural());
        format!("/{root}/{version}/namespaces/{namespace}/{plural}")
    }

    /// What the record calls the number of its terms.
    pub(super) const fn transitions(self) -> &'static str {
        match self {
            Self::Lease => "leaseTransitions",
            Self::ConfigMap | Self::Endpoints => "leaderTransitions",
        }
    }

    /// The record's own fields; none if there are none that can be read.
    #[must_use]
    pub fn fields(self, object: &Value) -> Map<String, Value> {
        let found = match self {
            Self::Lease => object.get("spec").cloned(),
            Self::ConfigMap | Self::Endpoints => {
                let annotations = object.pointer("/metadata/annotations");
                let text = annotations.and_then(|all| all.get(LEADER)?.as_str());
                text.and_then(|text| serde_json::from_str(text).ok())
            }
        };
        match found {
            Some(Value::Object(fields)) => fields,
            _ => Map::new(),
        }
    }

    pub(super) fn set_fields(self, object: &mut Map<String, Value>, fields: Map<String, Value>) {
        match self {
            Self::Lease => {
                object.insert("spec".into(), fields.into());
            }
            Self::ConfigMap | Self::Endpoints => {
                let text = Value::Object(fields).to_string();
                let annotations = super::object::annotations(object);
                annotations.insert(LEADER.into(), json!(text));
            }
        }
    }
}
