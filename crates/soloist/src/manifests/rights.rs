//! The rights of one program: its account, the least Role, and what binds them.

use std::fmt;

use super::yaml::{indented, list, string};

/// Whose rights, on which lease.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rights {
    /// The program's name, for the label.
    pub(crate) app: String,
    pub(crate) namespace: String,
    /// `None`: nobody is elected.
    pub(crate) lease: Option<String>,
    pub(crate) account: String,
    pub(crate) role: String,
    pub(crate) role_binding: String,
    /// Whether the account is made, too.
    pub(crate) with_account: bool,
    /// Whether there are those that soloist can do without.
    pub(crate) extra: bool,
    /// Whether it may label its Pod.
    pub(crate) label_role: bool,
    /// Whether it may see where its standbys are, and whether nodes are to be emptied.
    pub(crate) leave_cordoned_node: bool,
    /// Whether `soloist prestop` may see when its Pod is out of the Services.
    pub(crate) prestop: bool,
}

const PRESTOP: &str = "\
# For the preStop hook, soloist prestop: it sees when no EndpointSlice shows the Pod any more, and what its grace period really is.
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list, watch]
- apiGroups: [\"\"]
  resources: [pods]
  verbs: [get]
";

const EXTRA: &str = "\
# soloist can do without what follows. Events on the Lease and the Pods:
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
# A leader whose Pod is told to end names an heir that is ready and of the newest revision, and one whose container has ended is
# succeeded at once (watch). Nobody knows the names of such Pods before.
- apiGroups: [\"\"]
  resources: [pods]
  verbs: [get, list, watch]
- apiGroups: [apps]
  resources: [replicasets, statefulsets]
  verbs: [get, list]
";

const LABEL_ROLE: &str = "\
# For --label-role. The names of a Deployment's Pods are not known before, so these are all Pods of the namespace.
- apiGroups: [\"\"]
  resources: [pods]
  verbs: [patch]
";

const LEAVE_CORDONED_NODE: &str = "\
# For --leave-cordoned-node, beside the ClusterRole that reads nodes: who is ready to take over, and where.
- apiGroups: [\"\"]
  resources: [pods]
  verbs: [get, list]
";

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.with_account {
            let metadata = self.metadata(&self.account);
            write!(
                f,
                "apiVersion: v1
kind: ServiceAccount
{metadata}# Only the Pods that need the token ask for it.
automountServiceAccountToken: false
"
            )?;
        }
        let Self {
            namespace,
            account,
            role,
            ..
        } = self;
        let [role, account, namespace] = [role, account, namespace].map(|name| string(name));
        let separator = if self.with_account { "---\n" } else { "" };
        let of_role = self.metadata(&self.role);
        let of_binding = self.metadata(&self.role_binding);
        let extra = if self.extra { EXTRA } else { "" };
        let label = if self.label_role { LABEL_ROLE } else { "" };
        let leave = if self.leave_cordoned_node {
            LEAVE_CORDONED_NODE
        } else {
            ""
        };
        let prestop = if self.prestop { PRESTOP } else { "" };
        let rules = format!("{}{extra}{label}{leave}{prestop}", self.of_lease());
        if rules.is_empty() {
            return Ok(());
        }
        write!(
            f,
            r#"{separator}apiVersion: rbac.authorization.k8s.io/v1
kind: Role
{of_role}rules:
{rules}---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
{of_binding}roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {role}
subjects:
- kind: ServiceAccount
  name: {account}
  namespace: {namespace}
"#
        )?;
        match self.leave_cordoned_node {
            true => f.write_str(&self.of_nodes()),
            false => Ok(()),
        }
    }
}

impl Rights {
    /// Whether there is anything to print.
    pub(crate) const fn is_empty(&self) -> bool {
        let any_rule = self.lease.is_some()
            || self.extra
            || self.label_role
            || self.leave_cordoned_node
            || self.prestop;
        !any_rule && !self.with_account
    }

    fn of_lease(&self) -> String {
        let Some(lease) = &self.lease else {
            return String::new();
        };
        let lease = list(&[lease]);
        format!(
            r#"# "create" cannot be limited to a name: there is no object yet whose name could be looked at.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: {lease}
  verbs: [get, list, watch, update]
"#
        )
    }

    /// Nodes belong to no namespace.
    fn of_nodes(&self) -> String {
        let Self {
            app,
            namespace,
            account,
            ..
        } = self;
        let name = format!("soloist.{namespace}.{app}");
        let labels = indented(&labels(app), 4);
        let [account, namespace] = [account, namespace].map(|name| string(name));
        format!(
            r#"---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {name}
  labels:
{labels}rules:
# For --leave-cordoned-node: whether the leader's node is to be emptied, and the heir's is not. Nobody knows the nodes' names before.
- apiGroups: [""]
  resources: [nodes]
  verbs: [get, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {name}
  labels:
{labels}roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {name}
subjects:
- kind: ServiceAccount
  name: {account}
  namespace: {namespace}
"#
        )
    }

    fn metadata(&self, name: &str) -> String {
        metadata(&self.app, &self.namespace, name)
    }
}

pub(super) fn metadata(app: &str, namespace: &str, name: &str) -> String {
    let labels = indented(&labels(app), 4);
    let (name, namespace) = (string(name), string(namespace));
    format!("metadata:\n  name: {name}\n  namespace: {namespace}\n  labels:\n{labels}")
}

pub(super) fn labels(app: &str) -> String {
    format!("app.kubernetes.io/name: {}\n", string(app))
}
