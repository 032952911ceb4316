//! `soloist inject`: somebody's Deployment or StatefulSet, with soloist in front of its command.

mod edit;
mod tree;
mod workload;

use std::collections::BTreeSet;
use std::io::{self, Read};

use anyhow::{Context, bail, ensure};
use clap::Args;

use crate::cli::PodFlags;
use crate::delivery::DeliveryArgs;
use crate::manifests::Rights;
use crate::serving::ServingArgs;
use edit::Edits;
use tree::Node;
use workload::Workload;

/// Durations are written as 15s, 750ms or 1m30s.
#[derive(Debug, Args)]
pub(crate) struct InjectArgs {
    /// The lease's name [default: the Deployment's or StatefulSet's]
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// The namespace, if the objects do not say it
    #[arg(long)]
    pub(crate) namespace: Option<String>,
    /// The container that runs the program [default: the only one]
    #[arg(long)]
    pub(crate) container: Option<String>,
    /// Print no ServiceAccount, Role and RoleBinding: the rights are there already
    #[arg(long)]
    pub(crate) no_rights: bool,
    /// Add rights that soloist can do without: Events, and an heir that stays when a leader's Pod is told to end
    #[arg(long, conflicts_with = "no_rights")]
    pub(crate) extra_rights: bool,
    /// Keep the container's probes, although they ask the program, which does not run on standbys
    #[arg(long)]
    pub(crate) keep_probes: bool,
    /// The image's ENTRYPOINT, and its CMD if the container has no args; needed if the container has no command
    #[arg(last = true, value_name = "ENTRYPOINT")]
    pub(crate) entrypoint: Vec<String>,

    #[command(flatten)]
    pub(crate) serving: ServingArgs,
    #[command(flatten)]
    pub(crate) delivery: DeliveryArgs,
    #[command(flatten)]
    pub(crate) run: PodFlags,
}

/// The new text, and what its owner should know.
#[derive(Debug)]
pub(crate) struct Injected {
    pub(crate) text: String,
    pub(crate) notes: Vec<String>,
}

impl InjectArgs {
    /// Reads standard input.
    pub(crate) fn inject_stdin(&self) -> anyhow::Result<Injected> {
        let mut text = String::new();
        io::stdin()
            .read_to_string(&mut text)
            .context("standard input")?;
        self.inject(&text)
    }

    fn inject(&self, text: &str) -> anyhow::Result<Injected> {
        // An editor's mark of the encoding, which no reader of YAML needs.
        let mut text = text.trim_start_matches('\u{feff}').to_owned();
        if !text.ends_with('\n') {
            text.push('\n');
        }
        let documents = tree::parse(&text)?;
        let objects: Vec<&Node> = documents.iter().flat_map(with_items).collect();
        let workloads: Vec<Workload<'_>> =
            objects.iter().copied().filter_map(Workload::of).collect();
        if workloads.is_empty() {
            bail!(nothing_to_inject(&objects));
        }
        if let Some(name) = &self.name {
            ensure!(
                is_subdomain(name),
                "--name {name:?} is no name for a Lease: lower-case letters, digits, '-' and '.'"
            );
        }
        let about_leases = [
            ("--name", self.name.is_some()),
            ("--extra-rights", self.extra_rights),
        ];
        self.serving.check(&self.run, &about_leases)?;
        ensure!(
            self.name.is_none() || workloads.len() == 1,
            "--name is one lease, and these are {} workloads, which must not share one: inject them one by one",
            workloads.len()
        );
        let mut edits = Edits::new(&text);
        let (mut notes, mut rights) = (Vec::new(), Vec::new());
        for workload in &workloads {
            let what = workload.in_words();
            let needed = workload
                .inject(self, &mut edits, &mut notes)
                .with_context(|| what.clone())?;
            match needed {
                None => notes.push(format!("{what} has soloist already and is left as it is")),
                Some(needed) if !self.no_rights && !needed.is_empty() => rights.push(needed),
                Some(_) => {}
            }
        }
        let mut new = edits.apply();
        // A change that the text's form did not allow for must not reach a cluster.
        tree::parse(&new).context(
            "the result would be no YAML; the input has a form that cannot be changed in place",
        )?;
        // Whoever reads JSON reads nothing else in the same text.
        let is_json = new.trim_start().starts_with('{');
        for rights in rights {
            let rights = rights.to_string();
            match is_json {
                true => {
                    for object in tree::parse(&rights)? {
                        new += &format!("{:#}\n", object.to_json());
                    }
                }
                false => new += &format!("---\n{rights}"),
            }
        }
        Ok(Injected { text: new, notes })
    }
}

/// The object itself, or those in a `List`.
fn with_items(document: &Node) -> Vec<&Node> {
    match document.text_at(&["kind"]) {
        Some("List") => {
            let items = document.get(&["items"]).map_or(&[][..], Node::items);
            items.iter().collect()
        }
        _ => vec![document],
    }
}

/// Why soloist cannot be put in front of what there is.
fn nothing_to_inject(objects: &[&Node]) -> String {
    let nothing = "there is no Deployment and no StatefulSet in standard input";
    let kinds: BTreeSet<&str> = objects
        .iter()
        .filter_map(|o| o.text_at(&["kind"]))
        .collect();
    let why = kinds.iter().find_map(|kind| match *kind {
        "Job" | "CronJob" => Some(format!(
            "a {kind} runs a program to its end. Write soloist into its command yourself: soloist run --once --name … -- PROGRAM, and give \
             its account the rights that `soloist manifests` prints"
        )),
        "DaemonSet" => Some(
            "a DaemonSet wants one on every node, soloist one in all: make it a Deployment of 3 replicas".to_owned(),
        ),
        "Pod" | "ReplicaSet" | "ReplicationController" => Some(format!(
            "a {kind} has nobody who replaces it in order: make it a Deployment of 3 replicas"
        )),
        _ => None,
    });
    let kinds: BTreeSet<String> = objects.iter().filter_map(|o| named(o)).collect();
    let kinds: Vec<String> = kinds.into_iter().collect();
    match (why, kinds.is_empty()) {
        (Some(why), _) => format!("{nothing}; {why}"),
        (None, true) => nothing.to_owned(),
        (None, false) => format!("{nothing}, only: {}", kinds.join(", ")),
    }
}

/// Its kind, and of which group one is that another has the name of, too.
fn named(object: &Node) -> Option<String> {
    let kind = object.text_at(&["kind"])?;
    let version = object.text_at(&["apiVersion"]).unwrap_or_default();
    Some(match kind {
        "Deployment" | "StatefulSet" => format!("{kind} of {version}, not of apps/v1"),
        _ => kind.to_owned(),
    })
}

fn is_subdomain(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_label = |label: &str| {
        label.starts_with(plain)
            && label.ends_with(plain)
            && label.chars().all(|c| plain(c) || c == '-')
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

/// Which account has to get which rights.
fn rights(workload: &Workload<'_>, args: &InjectArgs, lease: &str) -> anyhow::Result<Rights> {
    let Some(namespace) = workload.namespace().or(args.namespace.as_deref()) else {
        bail!(
            "it does not say its namespace, and a RoleBinding must: give --namespace, or --no-rights"
        );
    };
    let account = workload.service_account();
    Ok(Rights {
        app: workload.name().to_owned(),
        namespace: namespace.to_owned(),
        lease: args.serving.elects().then(|| lease.to_owned()),
        account: account.unwrap_or(workload.name()).to_owned(),
        role: format!("{}-soloist", workload.name()),
        role_binding: format!("{}-soloist", workload.name()),
        with_account: account.is_none(),
        extra: args.extra_rights,
        label_role: args.run.pod.label_role,
        leave_cordoned_node: args.run.pod.leave_cordoned_node,
        prestop: args.serving.waits_for_traffic(),
    })
}

#[cfg(test)]
mod strange_input;
#[cfg(test)]
mod tests;
