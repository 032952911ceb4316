//! The Pods, as their Deployment, StatefulSet or own object describes them.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::Value;
use soloist_core::time::Human;
use soloist_core::timings::Timings;

use super::cluster::{Cluster, text};
use crate::cli::{Cli, RunArgs};
use crate::report::{Report, Verdict, read};
use crate::settings::{self, InPod};
use crate::store::StoreChoice;

const GROUP: &str = "Pod";

/// What describes the Pods.
#[derive(Debug)]
pub(super) struct Workload {
    /// A Deployment or StatefulSet; for a lone Pod there is none.
    owner: Option<Value>,
    labels: Value,
    spec: Value,
}

impl Workload {
    pub(super) fn of_owner(owner: Value) -> Self {
        let template = owner["spec"]["template"].clone();
        Self {
            labels: template["metadata"]["labels"].clone(),
            spec: template["spec"].clone(),
            owner: Some(owner),
        }
    }

    pub(super) fn of_pod(pod: &Value) -> Self {
        Self {
            labels: pod["metadata"]["labels"].clone(),
            spec: pod["spec"].clone(),
            owner: None,
        }
    }

    /// The container that runs soloist, else the first.
    pub(super) fn container(&self) -> &Value {
        let containers = self.spec["containers"]
            .as_array()
            .map_or(&[][..], Vec::as_slice);
        let runs = |container: &&Value| {
            let words = words(container);
            words.iter().any(|word| is_soloist(word))
                || variable(container, "SOLOIST_NAME").is_some()
        };
        containers
            .iter()
            .find(runs)
            .or(containers.first())
            .unwrap_or(&Value::Null)
    }

    /// The lease that they compete for.
    pub(super) fn lease(&self) -> Result<Option<String>, String> {
        Ok(self.run_args()?.name)
    }

    /// Its replicas' timings, if they fit together.
    pub(super) fn timings(&self) -> Option<Timings> {
        settings::timings(&self.run_args().ok()?.timings).ok()
    }

    /// What its replicas do for their Pods.
    pub(super) fn wants(&self) -> InPod {
        let args = self.run_args();
        args.map_or_else(|_| InPod::default(), |args| InPod::from(&args.pod))
    }

    /// Every replica runs the program.
    pub(super) fn elects_nobody(&self) -> bool {
        let store = self.run_args().ok().and_then(|args| args.store);
        store == Some(StoreChoice::None)
    }

    pub(super) fn service_account(&self) -> &str {
        match text(&self.spec, "/serviceAccountName") {
            "" => "default",
            name => name,
        }
    }

    /// What `soloist run` reads there: its flags and its variables.
    fn run_args(&self) -> Result<RunArgs, String> {
        let container = self.container();
        let flags = words(container);
        let flags = flags.iter().skip_while(|word| *word != "run").skip(1);
        let flags: Vec<&String> = flags.take_while(|word| *word != "--").collect();
        let mut line = vec!["soloist run".to_owned()];
        line.extend(flags.iter().map(|flag| (*flag).clone()));
        for entry in container["env"].as_array().into_iter().flatten() {
            let (name, value) = (text(entry, "/name"), entry["value"].as_str());
            if let (Some(flag), Some(value)) = (name.strip_prefix("SOLOIST_"), value) {
                let flag = format!("--{}", flag.replace('_', "-").to_lowercase());
                let is_said =
                    |said: &&String| **said == flag || said.starts_with(&format!("{flag}="));
                if !flags.iter().any(is_said) {
                    line.push(format!("{flag}={value}"));
                }
            }
        }
        line.extend(["--".to_owned(), "program".to_owned()]);
        Cli::run_elsewhere(line).map_err(|error| first_line(&error.to_string()))
    }

    pub(super) async fn check(&self, cluster: &Cluster, report: &mut Report) {
        let elects = !self.elects_nobody();
        let advice = "Change the flags or the SOLOIST_ variables of its container";
        let args = self.run_args();
        let fits = args.as_ref().map_err(Clone::clone).and_then(|args| {
            let fits = settings::policy(&args.timings, &args.stopping, &args.health, args.once);
            let fits = fits.and_then(|_| match elects {
                true => Ok(()),
                false => settings::refuse_what_needs_a_lease(
                    &args.timings,
                    &args.health,
                    args.wait.is_some(),
                ),
            });
            fits.map_err(|error| format!("{error:#}"))
        });
        report.add(
            GROUP,
            "its settings fit together",
            match fits {
                Ok(()) => Verdict::good(""),
                Err(reason) => Verdict::bad(reason, advice, read::OPERATIONS),
            },
        );
        if let Ok(args) = &args {
            report.add(GROUP, "its grace period is soloist's", self.grace(args));
            report.add(GROUP, "its preStop hook is soloist's", self.prestop(args));
        }
        if elects {
            report.add(GROUP, "it knows its name and UID", self.downward_api());
            report.add(GROUP, "its identity is its own", self.identity());
        }
        if elects || self.has_prestop() {
            report.add(GROUP, "it has a token", self.token());
        }
        report.add(GROUP, "soloist is its first process", self.first_process());
        if elects {
            report.add(
                GROUP,
                "it is ready whether or not it leads",
                self.readiness(),
            );
        }
        report.add(GROUP, "its CPU is not limited", self.cpu());
        if let Some(owner) = &self.owner {
            let what = if elects {
                "there are standbys"
            } else {
                "there are others"
            };
            report.add(GROUP, what, replicas(owner));
            report.add(
                GROUP,
                "they are on several nodes",
                self.nodes(cluster).await,
            );
            report.add(
                GROUP,
                "a PodDisruptionBudget guards them",
                self.budget(cluster).await,
            );
        }
    }

    fn grace(&self, args: &RunArgs) -> Verdict {
        let seconds = self.spec["terminationGracePeriodSeconds"]
            .as_u64()
            .unwrap_or(30);
        let (real, said) = (Duration::from_secs(seconds), args.stopping.grace_period);
        let found = format!(
            "terminationGracePeriodSeconds is {seconds}, and soloist counts with {}",
            Human(said)
        );
        let advice = format!(
            "Set SOLOIST_GRACE_PERIOD to {seconds}s, or terminationGracePeriodSeconds to {}",
            said.as_secs()
        );
        match real {
            real if real < said => Verdict::bad(
                format!(
                    "{found}: the kubelet would kill soloist before it has stopped the program and released the lease"
                ),
                advice,
                read::POD,
            ),
            real if real > said => Verdict::warning(
                format!("{found}: the program is given less time than there is"),
                advice,
                read::POD,
            ),
            _ => Verdict::good(Human(real).to_string()),
        }
    }

    fn identity(&self) -> Verdict {
        let said = variable(self.container(), "SOLOIST_IDENTITY");
        let flags = words(self.container());
        let flag = flags.iter().position(|word| word == "--identity");
        let flag = flag.and_then(|at| flags.get(at + 1)).map(String::as_str);
        let joined = flags
            .iter()
            .find_map(|word| word.strip_prefix("--identity="));
        let value = said.and_then(|entry| entry["value"].as_str());
        match flag.or(joined).or(value) {
            Some(fixed) if !fixed.contains("$(") => Verdict::bad(
                format!(
                    "all replicas are called {fixed:?}: nobody can tell them apart in the Lease"
                ),
                "Remove SOLOIST_IDENTITY or --identity: with POD_NAME from the downward API each has its Pod's name",
                read::POD,
            ),
            _ => Verdict::good(""),
        }
    }

    fn downward_api(&self) -> Verdict {
        let wanted = [("POD_NAME", "metadata.name"), ("POD_UID", "metadata.uid")];
        let missing: Vec<&str> = wanted
            .into_iter()
            .filter(|(name, field)| {
                let found = variable(self.container(), name);
                found.is_none_or(|entry| text(entry, "/valueFrom/fieldRef/fieldPath") != *field)
            })
            .map(|(name, _)| name)
            .collect();
        if missing.is_empty() {
            return Verdict::good("");
        }
        Verdict::warning(
            format!(
                "{} does not come from the downward API",
                missing.join(" and ")
            ),
            "Without POD_NAME the lease does not name the Pod; without POD_UID a restarted container waits for its own lease to run out. \
             Add for each: {name: POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}",
            read::POD,
        )
    }

    fn token(&self) -> Verdict {
        let mounts = self.container()["volumeMounts"].as_array();
        let place = "/var/run/secrets/kubernetes.io/serviceaccount";
        let mounted = mounts
            .into_iter()
            .flatten()
            .any(|mount| text(mount, "/mountPath") == place);
        match self.spec["automountServiceAccountToken"].as_bool() {
            Some(false) if !mounted => Verdict::bad(
                "automountServiceAccountToken is false, so soloist cannot reach the API server",
                "Set it to true in the Pod's spec",
                read::POD,
            ),
            Some(_) => Verdict::good(self.service_account()),
            None => Verdict::good(format!(
                "{}, if that account does not forbid it",
                self.service_account()
            )),
        }
    }

    fn first_process(&self) -> Verdict {
        if self.spec["shareProcessNamespace"] == true {
            return Verdict::warning(
                "shareProcessNamespace is true: what a killed container has started may live on in the others' namespace",
                "Remove it. soloist then is process 1 of a namespace of its own, and a restarted container takes its lease back at once",
                read::POD,
            );
        }
        if self.spec["hostPID"] == true {
            return Verdict::warning(
                "hostPID is true: soloist is one of the node's processes",
                "Remove it",
                read::POD,
            );
        }
        let words = words(self.container());
        match words.first() {
            Some(first) if is_soloist(first) => Verdict::good(""),
            None => Verdict::Unknown("the command is the image's own".into()),
            Some(first) => Verdict::warning(
                format!("the container runs {first:?}"),
                "Let soloist be the container's command, without a shell or an init in front of it",
                read::POD,
            ),
        }
    }

    fn readiness(&self) -> Verdict {
        let probe = &self.container()["readinessProbe"];
        let path = text(probe, "/httpGet/path");
        match path.contains("leader") {
            false => Verdict::good(""),
            true => Verdict::bad(
                format!(
                    "its readiness probe asks {path}: standbys are never ready, and a rolling update never ends"
                ),
                "Ask something that is true for a healthy standby too",
                read::POD,
            ),
        }
    }

    fn cpu(&self) -> Verdict {
        match &self.container()["resources"]["limits"]["cpu"] {
            Value::Null => Verdict::good(""),
            limit => Verdict::warning(
                format!(
                    "its CPU limit is {limit}: when the program uses it up, soloist waits with it and renews late"
                ),
                "Remove the limit and keep the request, or make sure that the program stays well below it",
                read::POD,
            ),
        }
    }

    async fn nodes(&self, cluster: &Cluster) -> Verdict {
        let selector: Vec<String> = pairs(&self.labels)
            .map(|(key, value)| format!("{key}%3D{value}"))
            .collect();
        let path = format!(
            "/api/v1/namespaces/{}/pods?labelSelector={}",
            cluster.namespace(),
            selector.join(",")
        );
        let pods = match cluster.get(&path).await {
            Ok(pods) => pods,
            Err(failure) => return Verdict::Unknown(failure.to_string()),
        };
        let pods = pods["items"].as_array().cloned().unwrap_or_default();
        let nodes: Vec<&str> = pods
            .iter()
            .map(|pod| text(pod, "/spec/nodeName"))
            .filter(|node| !node.is_empty())
            .collect();
        let different: BTreeSet<&str> = nodes.iter().copied().collect();
        match (nodes.len(), different.len()) {
            (2.., 1) => Verdict::warning(
                format!(
                    "all {} Pods are on the node {}: when it fails, there is no standby",
                    nodes.len(),
                    nodes[0]
                ),
                "Spread them: topologySpreadConstraints with topologyKey kubernetes.io/hostname, as `soloist manifests` prints",
                read::POD,
            ),
            (0 | 1, _) => Verdict::Unknown(format!("{} Pods run", nodes.len())),
            (pods, nodes) => Verdict::good(format!("{pods} Pods on {nodes} nodes")),
        }
    }

    async fn budget(&self, cluster: &Cluster) -> Verdict {
        let path = format!(
            "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
            cluster.namespace()
        );
        let budgets = match cluster.get(&path).await {
            Ok(budgets) => budgets,
            Err(failure) => return Verdict::Unknown(failure.to_string()),
        };
        let selects = |budget: &&Value| {
            let wanted = &budget["spec"]["selector"]["matchLabels"];
            wanted.is_object() && pairs(wanted).all(|(key, value)| self.labels[key] == value)
        };
        match budgets["items"]
            .as_array()
            .into_iter()
            .flatten()
            .find(selects)
        {
            Some(budget) => Verdict::good(text(budget, "/metadata/name")),
            None => Verdict::warning(
                "there is none: draining nodes may stop all replicas at once",
                "Add one with maxUnavailable: 1, as `soloist manifests` prints",
                read::POD,
            ),
        }
    }
}

fn replicas(owner: &Value) -> Verdict {
    match owner["spec"]["replicas"].as_u64().unwrap_or(1) {
        count @ 2.. => Verdict::good(format!("{count} replicas")),
        count => Verdict::warning(
            format!(
                "replicas is {count}: when it fails there is nobody to take over until a new Pod has started"
            ),
            "Take 3",
            read::POD,
        ),
    }
}

pub(super) fn is_soloist(word: &str) -> bool {
    word == "soloist" || word.ends_with("/soloist")
}

pub(super) fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// The container's command and arguments.
pub(super) fn words(container: &Value) -> Vec<String> {
    let lists = ["command", "args"].map(|key| container[key].as_array());
    let words = lists.into_iter().flatten().flatten();
    words
        .filter_map(|word| word.as_str().map(str::to_owned))
        .collect()
}

fn variable<'a>(container: &'a Value, name: &str) -> Option<&'a Value> {
    let entries = container["env"].as_array()?;
    entries.iter().find(|entry| text(entry, "/name") == name)
}

fn pairs(labels: &Value) -> impl Iterator<Item = (&str, &str)> {
    let labels = labels.as_object().into_iter().flatten();
    labels.filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
}
