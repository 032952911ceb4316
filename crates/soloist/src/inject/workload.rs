//! One Deployment or StatefulSet, and what has to be changed in it.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use soloist_core::time::Human;

use super::edit::Edits;
use super::tree::{Content, Node};
use super::{InjectArgs, rights};
use crate::delivery::{FOLDER, VOLUME};
use crate::duration;
use crate::manifests::Rights;
use crate::manifests::yaml::{list, string};
use crate::serving::{NOT_READY, TOLERATION, hook};
use crate::settings;

const PROBES: [&str; 3] = ["livenessProbe", "readinessProbe", "startupProbe"];

#[derive(Debug)]
pub(super) struct Workload<'a> {
    object: &'a Node,
    kind: &'a str,
}

impl<'a> Workload<'a> {
    /// `None` for everything else.
    pub(super) fn of(object: &'a Node) -> Option<Self> {
        let kind = object.text_at(&["kind"])?;
        let version = object.text_at(&["apiVersion"]).unwrap_or("apps/v1");
        if !version.starts_with("apps/") {
            return None;
        }
        matches!(kind, "Deployment" | "StatefulSet").then_some(Self { object, kind })
    }

    pub(super) fn name(&self) -> &'a str {
        self.object
            .text_at(&["metadata", "name"])
            .unwrap_or_default()
    }

    pub(super) fn namespace(&self) -> Option<&'a str> {
        self.object.text_at(&["metadata", "namespace"])
    }

    pub(super) fn in_words(&self) -> String {
        format!("{} {}", self.kind, self.name())
    }

    pub(super) fn service_account(&self) -> Option<&'a str> {
        let pod = self.object.get(&["spec", "template", "spec"])?;
        let named = ["serviceAccountName", "serviceAccount"].map(|key| pod.text_at(&[key]));
        named.into_iter().flatten().find(|name| !name.is_empty())
    }

    /// Makes the changes. `None` if soloist is there already, else the rights that are needed.
    pub(super) fn inject(
        &self,
        args: &InjectArgs,
        edits: &mut Edits<'_>,
        notes: &mut Vec<String>,
    ) -> anyhow::Result<Option<Rights>> {
        ensure!(!self.name().is_empty(), "it has no name");
        let pod = self.object.get(&["spec", "template", "spec"]);
        let pod = pod.context(
            "it has no spec.template.spec (a YAML alias or merge key must be written out first)",
        )?;
        let container = self.container(pod, args)?;
        if has_soloist(container) {
            return Ok(None);
        }
        refuse_what_cannot_be(pod, container, args)?;
        let lease = args.name.as_deref().unwrap_or(self.name());
        let variables = self.variables(pod, container, args, lease)?;
        // Without an election the program runs everywhere, and may be asked everywhere.
        if args.serving.elects() {
            self.check_probes(container, args, notes)?;
        }
        put_in_front(container, args, edits)?;
        edits.add_items(container, "env", &variables)?;
        if let Some(most) = args.serving.longest_hook(&args.run) {
            add_hook(container, &args.delivery.path(), most, edits)?;
            if !says_what_it_does_on_a_node_that_is_not_ready(pod) {
                edits.add_items(pod, "tolerations", TOLERATION)?;
            }
        }
        if let Some(mount) = args.delivery.mount() {
            edits.add_items(container, "volumeMounts", &mount)?;
        }
        if let Some(init) = args.delivery.init_container() {
            edits.add_items(pod, "initContainers", &init)?;
        }
        if let Some(volume) = args.delivery.volume() {
            edits.add_items(pod, "volumes", &volume)?;
        }
        let rights = match args.no_rights {
            true => None,
            false => Some(rights(self, args, lease)?),
        };
        if args.serving.elects() || args.serving.waits_for_traffic() {
            self.give_token(pod, rights.as_ref(), edits, notes)?;
        }
        self.remark(pod, notes);
        Ok(Some(rights.unwrap_or_default()))
    }

    fn container<'p>(&self, pod: &'p Node, args: &InjectArgs) -> anyhow::Result<&'p Node> {
        let containers = pod
            .get(&["containers"])
            .context("it has no containers")?
            .items();
        let names: Vec<&str> = containers
            .iter()
            .map(|c| c.text_at(&["name"]).unwrap_or_default())
            .collect();
        match (&args.container, containers) {
            (None, [only]) => Ok(only),
            (None, _) => bail!(
                "it has the containers {}: say which one runs the program, --container NAME",
                names.join(", ")
            ),
            (Some(wanted), _) => names
                .iter()
                .position(|name| name == wanted)
                .map(|at| &containers[at])
                .with_context(|| {
                    format!("it has no container {wanted:?}, only {}", names.join(", "))
                }),
        }
    }

    /// The container's new variables, as items of a list; the timeouts are checked against the Pod's own.
    fn variables(
        &self,
        pod: &Node,
        container: &Node,
        args: &InjectArgs,
        lease: &str,
    ) -> anyhow::Result<String> {
        let grace = match pod.text_at(&["terminationGracePeriodSeconds"]) {
            None => Duration::from_secs(30),
            Some(text) => Duration::from_secs(
                text.parse()
                    .with_context(|| format!("terminationGracePeriodSeconds {text:?}"))?,
            ),
        };
        let mut given = args.run.given.clone();
        let said = |given: &[(String, String)], name: &str| {
            let found = given.iter().find(|(variable, _)| variable == name);
            found.and_then(|(_, value)| duration::parse(value).ok())
        };
        if let Some(wanted) = said(&given, "SOLOIST_GRACE_PERIOD") {
            ensure!(
                wanted == grace,
                "its terminationGracePeriodSeconds is {}, and --grace-period says {}: change one of them",
                grace.as_secs(),
                Human(wanted)
            );
        }
        let hook = container.get(&["lifecycle", "preStop"]);
        let sleeps = hook.and_then(|hook| hook.text_at(&["sleep", "seconds"]));
        let ours = args.serving.longest_hook(&args.run);
        let prestop = match (ours.or(said(&given, "SOLOIST_PRESTOP")), hook, sleeps) {
            (Some(said), _, _) => said,
            (None, None, _) => Duration::ZERO,
            (None, Some(_), Some(seconds)) => {
                Duration::from_secs(seconds.parse().context("its preStop hook's seconds")?)
            }
            (None, Some(_), None) => bail!(
                "it has a preStop hook, and how long that takes cannot be known: say the longest time, --prestop DURATION. It is \
                 taken off the grace period of {}",
                Human(grace)
            ),
        };
        let mut stopping = args.run.stopping.clone();
        (stopping.grace_period, stopping.prestop) = (grace, prestop);
        settings::policy(&args.run.timings, &stopping, &args.run.health, false)?;

        given.retain(|(name, _)| {
            !["SOLOIST_GRACE_PERIOD", "SOLOIST_PRESTOP"].contains(&name.as_str())
        });
        let mut all = vec![
            ("SOLOIST_NAME".to_owned(), lease.to_owned()),
            (
                "SOLOIST_GRACE_PERIOD".to_owned(),
                format!("{}s", grace.as_secs()),
            ),
        ];
        if !prestop.is_zero() {
            all.push((
                "SOLOIST_PRESTOP".to_owned(),
                format!("{}ms", prestop.as_millis()),
            ));
        }
        if !args.serving.elects() {
            all.push(("SOLOIST_STORE".to_owned(), "none".to_owned()));
        }
        all.extend(given);
        let there: Vec<&str> = container
            .get(&["env"])
            .map_or(&[][..], Node::items)
            .iter()
            .filter_map(|entry| entry.text_at(&["name"]))
            .collect();
        if let Some((name, _)) = all.iter().find(|(name, _)| there.contains(&name.as_str())) {
            bail!(
                "its container sets {name} itself, but does not run soloist: remove the variable"
            );
        }
        let mut text = String::new();
        for (name, field) in [
            ("POD_NAME", "metadata.name"),
            ("POD_NAMESPACE", "metadata.namespace"),
            ("POD_UID", "metadata.uid"),
        ] {
            let own = container.get(&["env"]).map_or(&[][..], Node::items);
            let own = own
                .iter()
                .find(|entry| entry.text_at(&["name"]) == Some(name));
            if let Some(own) = own {
                ensure!(
                    own.text_at(&["valueFrom", "fieldRef", "fieldPath"]) == Some(field),
                    "its container sets {name} to something else than {field}, which soloist takes it for: give it another name"
                );
            } else {
                text += &format!(
                    "- name: {name}\n  valueFrom:\n    fieldRef:\n      fieldPath: {field}\n"
                );
            }
        }
        for (name, value) in all {
            text += &format!("- name: {name}\n  value: {}\n", string(&value));
        }
        Ok(text)
    }

    /// On a standby the program does not run: a probe that asks it would restart all standbys, or never call them ready.
    fn check_probes(
        &self,
        container: &Node,
        args: &InjectArgs,
        notes: &mut Vec<String>,
    ) -> anyhow::Result<()> {
        let found: Vec<&str> = PROBES
            .into_iter()
            .filter(|probe| container.entry(probe).is_some())
            .collect();
        if found.is_empty() {
            return Ok(());
        }
        let found = found.join(" and ");
        ensure!(
            args.keep_probes,
            "its container has a {found}, which asks the program; on standbys the program does not run, so they would be \
             restarted or never become ready. Remove it and let soloist check the program (--ready, --health; see soloist run --help), \
             or say --keep-probes"
        );
        notes.push(format!(
            "{}: its {found} must succeed on standbys too, where the program does not run",
            self.in_words()
        ));
        Ok(())
    }

    fn give_token(
        &self,
        pod: &Node,
        rights: Option<&Rights>,
        edits: &mut Edits<'_>,
        notes: &mut Vec<String>,
    ) -> anyhow::Result<()> {
        if let Some(rights) = rights.filter(|rights| rights.with_account) {
            edits.add_entry(pod, &format!("serviceAccountName: {}\n", rights.account))?;
        }
        match pod.entry("automountServiceAccountToken") {
            Some(entry) if entry.value.text() == Some("true") => {}
            Some(entry) => {
                edits.replace(&entry.value, "true");
                notes.push(format!(
                    "{}: automountServiceAccountToken is true now, because soloist needs the token",
                    self.in_words()
                ));
            }
            // The printed account does not mount it by itself.
            None => edits.add_entry(pod, "automountServiceAccountToken: true\n")?,
        }
        Ok(())
    }

    fn remark(&self, pod: &Node, notes: &mut Vec<String>) {
        let what = self.in_words();
        if pod.text_at(&["hostPID"]) == Some("true") {
            notes.push(format!("{what}: with hostPID soloist is one of the node's processes, and what it has started does not die with its container"));
        }
        let replicas = self.object.text_at(&["spec", "replicas"]).unwrap_or("1");
        if matches!(replicas, "0" | "1") {
            notes.push(format!(
                "{what}: replicas is {replicas}, so there is no standby; 3 are usual"
            ));
        }
        if pod.text_at(&["shareProcessNamespace"]) == Some("true") {
            notes.push(format!("{what}: with shareProcessNamespace soloist is not process 1, and a restarted container waits for its own lease to run out"));
        }
    }
}

/// What no edit could make right.
fn refuse_what_cannot_be(pod: &Node, container: &Node, args: &InjectArgs) -> anyhow::Result<()> {
    for node in [pod, container] {
        ensure!(
            node.entry("<<").is_none(),
            "a YAML merge key (<<) brings what cannot be seen here: write it out first"
        );
    }
    let on_windows = pod.text_at(&["os", "name"]) == Some("windows")
        || pod.text_at(&["nodeSelector", "kubernetes.io/os"]) == Some("windows");
    ensure!(
        !on_windows,
        "it runs on Windows, and soloist on Linux alone"
    );
    if args.delivery.mount().is_none() {
        return Ok(());
    }
    let has = |node: &Node, list: &str, key: &str, value: &str| {
        let items = node.get(&[list]).map_or(&[][..], Node::items);
        items.iter().any(|item| item.text_at(&[key]) == Some(value))
    };
    ensure!(
        !has(pod, "volumes", "name", VOLUME),
        "it has a volume {VOLUME:?} already, which is the name of the one that brings soloist: rename it, or take --delivery in-image"
    );
    ensure!(
        !has(container, "volumeMounts", "mountPath", FOLDER),
        "its container mounts something at {FOLDER} already, where soloist comes: mount it elsewhere, or take --delivery in-image"
    );
    Ok(())
}

/// A toleration without a key is one of every taint.
fn says_what_it_does_on_a_node_that_is_not_ready(pod: &Node) -> bool {
    let own = pod.get(&["tolerations"]).map_or(&[][..], Node::items);
    let keys = own.iter().map(|item| item.text_at(&["key"]));
    keys.into_iter()
        .any(|key| matches!(key, None | Some("" | NOT_READY)))
}

/// `soloist prestop` as the preStop hook.
fn add_hook(
    container: &Node,
    soloist: &str,
    most: Duration,
    edits: &mut Edits<'_>,
) -> anyhow::Result<()> {
    let text = hook(soloist, most);
    let Some(lifecycle) = container.entry("lifecycle") else {
        return edits.add_entry(container, &text);
    };
    ensure!(
        lifecycle.value.entry("preStop").is_none(),
        "it has a preStop hook: remove it, so that soloist prestop takes its place, or keep it with --prestop-hook sleep --prestop DURATION"
    );
    let (_, inner) = text.split_once('\n').context("the hook")?;
    let inner: String = inner
        .lines()
        .map(|line| format!("{}\n", line.strip_prefix("  ").unwrap_or(line)))
        .collect();
    edits.add_entry(&lifecycle.value, &inner)
}

fn has_soloist(container: &Node) -> bool {
    let command = container.get(&["command"]).map_or(&[][..], Node::items);
    let first = command.first().and_then(Node::text).unwrap_or_default();
    first == "soloist" || first.ends_with("/soloist")
}

/// soloist, and behind it what the container runs now.
fn put_in_front(container: &Node, args: &InjectArgs, edits: &mut Edits<'_>) -> anyhow::Result<()> {
    let soloist = [args.delivery.path().as_str(), "run", "--"].map(str::to_owned);
    let written = container.get(&["command"]);
    ensure!(
        written.is_none_or(|node| node.is_nothing()
            || !matches!(node.content, Content::Scalar { .. } | Content::Map { .. })),
        "its command is no list: write it as one, as Kubernetes wants it"
    );
    let command = written.filter(|command| !command.items().is_empty());
    match command {
        Some(command) => {
            ensure!(
                args.entrypoint.is_empty(),
                "its container has a command, so the image's ENTRYPOINT does not matter: leave it out"
            );
            edits.prepend(command, &soloist)
        }
        None => {
            let there = written;
            ensure!(
                there.is_none_or(|node| !matches!(node.content, Content::Alias)),
                "its command is a YAML alias (*): write it out first"
            );
            let image = container.text_at(&["image"]).unwrap_or_default();
            ensure!(
                !args.entrypoint.is_empty(),
                "its container has no command, so the ENTRYPOINT of the image {image} runs, and that cannot be known here: look it up \
                 (for example, skopeo inspect --config docker://{image}) and give it, with the image's CMD if the container has no \
                 args: soloist inject … -- ENTRYPOINT"
            );
            let words: Vec<&str> = soloist
                .iter()
                .chain(&args.entrypoint)
                .map(String::as_str)
                .collect();
            match there {
                Some(node) => edits.replace(node, &list(&words)),
                None => edits.add_entry(container, &format!("command: {}\n", list(&words)))?,
            }
            Ok(())
        }
    }
}
