//! The objects as texts. They are written out with their comments, because people will read and change them.

use std::fmt;
use std::time::Duration;

use super::ManifestsArgs;
use super::rights::{Rights, labels, metadata};
use super::yaml::{indented, list, string};
use crate::delivery::HARDENED;
use crate::serving::{TOLERATION, hook};

/// All objects of one program.
pub(super) struct Documents<'a> {
    pub(super) args: &'a ManifestsArgs,
    pub(super) grace_seconds: u64,
    pub(super) prestop_seconds: u64,
}

impl fmt::Display for Documents<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let args = self.args;
        let all = [
            (!args.no_namespace).then(|| self.namespace()),
            Some(self.rights().to_string()),
            Some(self.deployment()),
            (args.replicas > 1).then(|| self.disruption_budget()),
            args.flow_schema.then(|| self.flow_schema()),
        ];
        let all: Vec<String> = all.into_iter().flatten().collect();
        f.write_str(&all.join("---\n"))
    }
}

impl Documents<'_> {
    fn namespace_name(&self) -> &str {
        self.args.or_name(&self.args.namespace)
    }

    fn lease(&self) -> &str {
        self.args.or_name(&self.args.lease)
    }

    fn account(&self) -> &str {
        self.args.or_name(&self.args.service_account)
    }

    fn rights(&self) -> Rights {
        let args = self.args;
        Rights {
            app: args.name.clone(),
            namespace: self.namespace_name().to_owned(),
            lease: args.serving.elects().then(|| self.lease().to_owned()),
            account: self.account().to_owned(),
            role: args.or_name(&args.role).to_owned(),
            role_binding: args.or_name(&args.role_binding).to_owned(),
            with_account: true,
            extra: args.extra_rights,
            label_role: args.run.pod.label_role,
            leave_cordoned_node: args.run.pod.leave_cordoned_node,
            prestop: args.serving.waits_for_traffic(),
        }
    }

    fn metadata(&self, name: &str) -> String {
        metadata(&self.args.name, self.namespace_name(), name)
    }

    fn labels(&self) -> String {
        labels(&self.args.name)
    }

    fn namespace(&self) -> String {
        let name = string(self.namespace_name());
        format!(
            "apiVersion: v1
kind: Namespace
metadata:
  name: {name}
  labels:
    pod-security.kubernetes.io/enforce: restricted
"
        )
    }

    fn deployment(&self) -> String {
        let metadata = self.metadata(&self.args.name);
        let replicas = self.args.replicas;
        let selector = indented(&self.labels(), 6);
        let pod_labels = indented(&self.labels(), 8);
        let pod = indented(&self.pod(), 6);
        let standby = match self.args.serving.elects() {
            true => "there is always a standby, and ",
            false => "",
        };
        format!(
            "apiVersion: apps/v1
kind: Deployment
{metadata}spec:
  replicas: {replicas}
  # One more at first, and never one less: {standby}what the new version brings is seen before the old one goes.
  strategy:
    type: RollingUpdate
    rollingUpdate:
      maxSurge: 1
      maxUnavailable: 0
  # What ends soon after it was ready does not replace what works.
  minReadySeconds: 10
  selector:
    matchLabels:
{selector}  template:
    metadata:
      labels:
{pod_labels}    spec:
{pod}"
        )
    }

    fn pod(&self) -> String {
        let args = self.args;
        let account = string(self.account());
        let user = args.run_as_user;
        let grace = self.grace_seconds;
        let token = args.serving.elects() || args.serving.waits_for_traffic();
        let selector = indented(&self.labels(), 4);
        let spread = match args.replicas {
            1 => String::new(),
            _ => format!(
                "# A preference, so that replicas also start where there are fewer nodes than replicas.
topologySpreadConstraints:
- maxSkew: 1
  topologyKey: kubernetes.io/hostname
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
{}  matchLabelKeys: [pod-template-hash]
",
                indented(&selector, 2)
            ),
        };
        let tolerations = match args.serving.waits_for_traffic() {
            true => format!(
                "# A node that shuts down is not ready, and then the Pod is deleted, which alone takes it out of its Services before its end.
tolerations:
{TOLERATION}"
            ),
            false => String::new(),
        };
        let container = indented(&self.container(), 2);
        let init = section("initContainers", args.delivery.init_container());
        let volumes = section(
            "volumes",
            args.delivery
                .volume()
                .into_iter()
                .chain(self.writable_volumes()),
        );
        format!(
            "serviceAccountName: {account}
automountServiceAccountToken: {token}
enableServiceLinks: false
# The ladder: soloist stops the program in time for this.
terminationGracePeriodSeconds: {grace}
securityContext:
  runAsNonRoot: true
  runAsUser: {user}
  runAsGroup: {user}
  seccompProfile:
    type: RuntimeDefault
{spread}{tolerations}{init}containers:
- name: {name}
{container}{volumes}",
            name = string(&args.name),
        )
    }

    /// What follows the container's name.
    fn container(&self) -> String {
        let args = self.args;
        let image = string(
            args.image
                .as_deref()
                .unwrap_or(&format!("{}:latest", args.name)),
        );
        let command = list(&[args.delivery.path().as_str(), "run", "--"]);
        let program = list(&args.command);
        let variables = self.variables();
        let probes = self.probes();
        let hardened = indented(HARDENED, 2);
        let (cpu, memory) = (string(&args.cpu), string(&args.memory));
        let mounts = section(
            "volumeMounts",
            args.delivery
                .mount()
                .into_iter()
                .chain(self.writable_mounts()),
        );
        let prestop = match self.prestop_seconds {
            0 => String::new(),
            seconds if args.serving.waits_for_traffic() => {
                hook(&args.delivery.path(), Duration::from_secs(seconds))
            }
            seconds => {
                format!("lifecycle:\n  preStop:\n    sleep:\n      seconds: {seconds}\n")
            }
        };
        format!(
            "image: {image}
command: {command}
args: {program}
env:
{variables}{probes}{prestop}# No CPU limit: a throttled leader renews late. The default requests are soloist's own need; the program's come on top.
resources:
  requests:
    cpu: {cpu}
    memory: {memory}
securityContext:
{hardened}{mounts}"
        )
    }

    fn probes(&self) -> String {
        let ready = match self.args.serving.elects() {
            true => "a standby is as ready as the leader",
            false => "it is ready when the program is, until its end is near",
        };
        match self.args.listen_port {
            0 => "# No probes: soloist has no address here that could be asked. It checks the program itself (--ready, --health).\n".into(),
            port => format!(
                "ports:
- name: soloist
  containerPort: {port}
# They ask soloist: {ready}. The program is checked by soloist itself (--ready, --health).
livenessProbe:
  httpGet:
    path: /livez
    port: soloist
  timeoutSeconds: 3
readinessProbe:
  httpGet:
    path: /readyz
    port: soloist
  periodSeconds: 5
  timeoutSeconds: 3
"
            ),
        }
    }

    fn variables(&self) -> String {
        let stopping = &self.args.run.stopping;
        let grace = format!("{}s", stopping.grace_period.as_secs());
        let given = &self.args.run.given;
        let listen = match self.args.listen_port {
            0 => None,
            port => Some(("SOLOIST_LISTEN", format!(":{port}"))),
        };
        let listen = listen.iter().map(|(name, value)| (*name, value.as_str()));
        let prestop = format!("{}s", self.prestop_seconds);
        let elects = self.args.serving.elects();
        // What there is by default, and whether it is said here.
        let defaults = [
            ("SOLOIST_NAME", self.lease(), true),
            ("SOLOIST_STORE", "none", !elects),
            ("SOLOIST_PRESET", "standard", elects),
            ("SOLOIST_GRACE_PERIOD", &grace, true),
            (
                "SOLOIST_PRESTOP",
                &prestop,
                self.args.serving.waits_for_traffic(),
            ),
        ];
        let defaults = defaults.into_iter().filter(|(.., is_said)| *is_said);
        let defaults: Vec<_> = defaults.map(|(name, value, _)| (name, value)).collect();
        let is_default = |name: &str| defaults.iter().any(|(default, _)| *default == name);
        let first = defaults.iter().map(|(name, default)| {
            let said = given.iter().find(|(variable, _)| variable == name);
            // The hook's longest time is computed from what was said of it.
            let said = said.filter(|_| *name != "SOLOIST_PRESTOP");
            (*name, said.map_or(*default, |(_, value)| value))
        });
        let others = given.iter().filter(|(name, _)| !is_default(name));
        let others = others.map(|(name, value)| (name.as_str(), value.as_str()));
        let fields = [
            ("POD_NAME", "metadata.name"),
            ("POD_NAMESPACE", "metadata.namespace"),
            ("POD_UID", "metadata.uid"),
        ];
        let mut text = String::new();
        for (name, field) in fields {
            text +=
                &format!("- name: {name}\n  valueFrom:\n    fieldRef:\n      fieldPath: {field}\n");
        }
        for (name, value) in first.chain(listen).chain(others) {
            text += &format!("- name: {name}\n  value: {}\n", string(value));
        }
        text
    }

    fn writable_volumes(&self) -> impl Iterator<Item = String> {
        let count = self.args.writable.len();
        (0..count).map(|n| format!("- name: writable-{n}\n  emptyDir: {{}}\n"))
    }

    fn writable_mounts(&self) -> impl Iterator<Item = String> {
        let paths = self.args.writable.iter().enumerate();
        paths.map(|(n, path)| format!("- name: writable-{n}\n  mountPath: {}\n", string(path)))
    }

    fn disruption_budget(&self) -> String {
        let metadata = self.metadata(&self.args.name);
        let selector = indented(&self.labels(), 6);
        format!(
            "apiVersion: policy/v1
kind: PodDisruptionBudget
{metadata}spec:
  maxUnavailable: 1
  # A replica that crashes does not keep its node from being drained.
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels:
{selector}"
        )
    }

    fn flow_schema(&self) -> String {
        let (namespace, account) = (self.namespace_name(), self.account());
        let name = format!("soloist.{namespace}.{}", self.args.name);
        let (namespace, account) = (string(namespace), string(account));
        let labels = indented(&self.labels(), 4);
        format!(
            "apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata:
  name: {name}
  labels:
{labels}spec:
  # Before the built-in schemas for service accounts (9000), after those for the control plane's own elections (100 to 200).
  matchingPrecedence: 1000
  priorityLevelConfiguration:
    name: leader-election
  distinguisherMethod:
    type: ByUser
  rules:
  - subjects:
    - kind: ServiceAccount
      serviceAccount:
        name: {account}
        namespace: {namespace}
    resourceRules:
    - apiGroups: [coordination.k8s.io]
      resources: [leases]
      namespaces: [{namespace}]
      verbs: [create, get, list, watch, update]
"
        )
    }
}

/// A list under its key, or nothing.
fn section(key: &str, items: impl IntoIterator<Item = String>) -> String {
    let items: String = items.into_iter().collect();
    match items.as_str() {
        "" => String::new(),
        items => format!("{key}:\n{items}"),
    }
}
