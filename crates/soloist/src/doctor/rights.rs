//! Rights, by verb and resource.

use serde_json::{Value, json};

use super::cluster::{Cluster, text};
use crate::report::{Report, Verdict, read};
use crate::settings::InPod;

const GROUP: &str = "rights";

/// Whose rights.
#[derive(Clone, Debug)]
pub(super) enum Whose {
    Ours,
    User(String),
}

impl Whose {
    fn name<'a>(&'a self, cluster: &'a Cluster) -> &'a str {
        match self {
            Self::Ours => &cluster.user,
            Self::User(user) => user,
        }
    }
}

/// Checks what an election needs, and whether the API server would take a lease.
pub(super) async fn check(cluster: &Cluster, whose: &Whose, wanted: InPod, report: &mut Report) {
    let user = whose.name(cluster);
    for verb in ["create", "get", "list", "watch", "update"] {
        let name = (verb != "create").then(|| cluster.lease());
        let what = match name {
            None => format!("{user} may {verb} leases"),
            Some(name) => format!("{user} may {verb} the lease {name}"),
        };
        report.add(GROUP, what, may(cluster, whose, user, verb, name).await);
    }
    for extra in &EXTRAS {
        let what = format!("optional: {}", extra.gives);
        let verdict = extra.check(cluster, whose, user, wanted).await;
        report.add(GROUP, what, verdict);
    }
    if let Whose::Ours = whose {
        report.add(
            GROUP,
            "the namespace takes a lease (dry run)",
            takes_lease(cluster).await,
        );
    }
}

/// Checks what `soloist prestop` does better with.
pub(super) async fn check_prestop(cluster: &Cluster, whose: &Whose, report: &mut Report) {
    let user = whose.name(cluster);
    for (what, extra) in &PRESTOP {
        let verdict = match extra.missing(cluster, whose).await {
            Err(why) => Verdict::Unknown(why),
            Ok(None) => Verdict::good("yes"),
            Ok(Some(rule)) => Verdict::warning(
                format!("{user} may not; without it {}", extra.gives),
                format!(
                    "Add this rule to a Role in the namespace {} that is bound to {user}:\n- {rule}",
                    cluster.namespace()
                ),
                read::PRESTOP,
            ),
        };
        report.add(GROUP, *what, verdict);
    }
}

const PRESTOP: [(&str, Extra); 2] = [
    (
        "prestop sees when its Pod is out of the EndpointSlices",
        Extra {
            gives: "it waits for --fallback instead",
            group: "discovery.k8s.io",
            resource: "endpointslices",
            verbs: &["get", "list", "watch"],
            is_wanted: |_| false,
        },
    ),
    (
        "the Pod's real grace period can be read",
        Extra {
            gives: "a grace period that was shortened at the deletion is not known",
            group: "",
            resource: "pods",
            verbs: &["get"],
            is_wanted: |_| false,
        },
    ),
];

/// They belong to no namespace, so no Role gives a right on them.
const NODES: &str = "nodes";

/// Rights that soloist can do without.
struct Extra {
    gives: &'static str,
    group: &'static str,
    resource: &'static str,
    verbs: &'static [&'static str],
    /// Whether the replicas were told to do what it is for.
    is_wanted: fn(InPod) -> bool,
}

const EXTRAS: [Extra; 6] = [
    Extra {
        gives: "Events tell who leads and why it stopped",
        group: "events.k8s.io",
        resource: "events",
        verbs: &["create"],
        is_wanted: |_| false,
    },
    Extra {
        gives: "a leader whose Pod is told to end names an heir that stays, its real grace period is known, and status tells the replicas",
        group: "",
        resource: "pods",
        verbs: &["get", "list"],
        is_wanted: |_| false,
    },
    Extra {
        gives: "a leader whose container has ended is succeeded at once, without waiting for its lease",
        group: "",
        resource: "pods",
        verbs: &["watch"],
        is_wanted: |_| false,
    },
    Extra {
        gives: "the heir is right after a rollback, too",
        group: "apps",
        resource: "replicasets",
        verbs: &["list"],
        is_wanted: |_| false,
    },
    Extra {
        gives: "--label-role shows the role on the Pod",
        group: "",
        resource: "pods",
        verbs: &["patch"],
        is_wanted: |wanted| wanted.label_role,
    },
    Extra {
        gives: "--leave-cordoned-node hands over before an eviction, and no heir is on a node that is to be emptied",
        group: "",
        resource: NODES,
        verbs: &["get", "watch"],
        is_wanted: |wanted| wanted.leave_cordoned_node,
    },
];

impl Extra {
    async fn check(&self, cluster: &Cluster, whose: &Whose, user: &str, wanted: InPod) -> Verdict {
        match self.missing(cluster, whose).await {
            Err(why) => Verdict::Unknown(why),
            Ok(None) => Verdict::good("yes"),
            Ok(Some(rule)) if (self.is_wanted)(wanted) => Verdict::warning(
                format!("the replicas are told to, but {user} may not"),
                format!("Give {user} {rule}"),
                read::RIGHTS,
            ),
            Ok(Some(rule)) => Verdict::good(format!("no, {user} may not; with {rule}")),
        }
    }

    /// The rule that is missing; or why it cannot be known.
    async fn missing(&self, cluster: &Cluster, whose: &Whose) -> Result<Option<String>, String> {
        let Self {
            group,
            resource,
            verbs,
            ..
        } = self;
        for verb in *verbs {
            let mut attributes = json!({"verb": verb, "group": group, "resource": resource});
            if *resource != NODES {
                attributes["namespace"] = json!(cluster.namespace());
            }
            if !is_allowed(&review(cluster, whose, attributes).await?) {
                let of_a = match *resource {
                    NODES => "a ClusterRole's ",
                    _ => "",
                };
                return Ok(Some(format!(
                    "{of_a}{{apiGroups: [{group:?}], resources: [{resource:?}], verbs: [{}]}}",
                    verbs.join(", ")
                )));
            }
        }
        Ok(None)
    }
}

async fn may(
    cluster: &Cluster,
    whose: &Whose,
    user: &str,
    verb: &str,
    name: Option<&str>,
) -> Verdict {
    let namespace = cluster.namespace();
    let mut attributes = json!({
        "namespace": namespace, "verb": verb, "group": "coordination.k8s.io", "resource": "leases",
    });
    if let Some(name) = name {
        attributes["name"] = json!(name);
    }
    let answer = match review(cluster, whose, attributes).await {
        Ok(answer) => answer,
        Err(why) => return Verdict::Unknown(why),
    };
    if is_allowed(&answer) {
        return Verdict::good("");
    }
    let because = match text(&answer, "/status/reason") {
        "" => String::new(),
        reason => format!(" ({reason})"),
    };
    Verdict::bad(
        format!(
            "{user} may not \"{verb}\" leases (coordination.k8s.io) in the namespace {namespace}{because}"
        ),
        format!(
            "Add this rule to a Role in the namespace {namespace} that is bound to {user}:\n{}",
            rule(verb, name)
        ),
        read::RIGHTS,
    )
}

/// What the API server says to such a request; or why it cannot be asked.
async fn review(cluster: &Cluster, whose: &Whose, attributes: Value) -> Result<Value, String> {
    let (kind, spec) = match whose {
        Whose::Ours => (
            "SelfSubjectAccessReview",
            json!({"resourceAttributes": attributes}),
        ),
        Whose::User(user) => (
            "SubjectAccessReview",
            json!({"resourceAttributes": attributes, "user": user, "groups": groups(user)}),
        ),
    };
    let review = json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec});
    let path = format!("/apis/authorization.k8s.io/v1/{}s", kind.to_lowercase());
    let answer = cluster.post(&path, &review).await;
    answer.map_err(|failure| format!("{} may not ask: {failure}", cluster.user))
}

fn is_allowed(answer: &Value) -> bool {
    answer.pointer("/status/allowed") == Some(&Value::Bool(true))
}

fn rule(verb: &str, name: Option<&str>) -> String {
    let names = name.map_or(String::new(), |name| {
        format!("  resourceNames: [{name:?}]\n")
    });
    format!(
        "- apiGroups: [\"coordination.k8s.io\"]\n  resources: [\"leases\"]\n{names}  verbs: [\"{verb}\"]"
    )
}

/// What the API server would add to a service account by itself.
fn groups(user: &str) -> Vec<String> {
    let mut groups = vec!["system:authenticated".to_owned()];
    let account = user.strip_prefix("system:serviceaccount:");
    if let Some((namespace, _)) = account.and_then(|account| account.split_once(':')) {
        groups.push("system:serviceaccounts".to_owned());
        groups.push(format!("system:serviceaccounts:{namespace}"));
    }
    groups
}

/// Whether the namespace is there, and no quota, policy or webhook is in the way.
async fn takes_lease(cluster: &Cluster) -> Verdict {
    let namespace = cluster.namespace();
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases?dryRun=All");
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"generateName": "soloist-doctor-", "namespace": namespace},
    });
    match cluster.post(&path, &lease).await {
        Ok(_) => Verdict::good(namespace),
        Err(failure) if failure.is(404) => Verdict::bad(
            format!("there is no namespace {namespace}: {failure}"),
            format!(
                "Create it (kubectl create namespace {namespace}), or choose another one: --namespace, SOLOIST_NAMESPACE"
            ),
            read::CLUSTER,
        ),
        Err(failure) if failure.to_string().contains("is forbidden: User") => {
            Verdict::Unknown("the right to create one is missing, see above".into())
        }
        Err(failure) => Verdict::bad(
            failure.to_string(),
            "No right is missing: a quota, an admission policy or a webhook is in the way; the message says which",
            read::TROUBLES,
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_account_is_in_the_groups_that_the_server_gives_it() {
        let groups = groups("system:serviceaccount:shop:feed");
        assert!(groups.contains(&"system:serviceaccounts:shop".to_owned()));
        assert_eq!(super::groups("ada"), ["system:authenticated"]);
    }
}
