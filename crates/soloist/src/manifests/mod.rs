//! `soloist manifests`: the objects that run a program as one of several replicas, as a text to apply.

mod render;
mod rights;
pub(crate) mod yaml;

use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use soloist_core::time::Human;

use crate::cli::{PodFlags, StopArgs};
use crate::delivery::{DeliveryArgs, FOLDER};
use crate::serving::ServingArgs;
use crate::settings;

pub(crate) use rights::Rights;

/// Durations are written as 15s, 750ms or 1m30s.
#[derive(Debug, Args)]
pub(crate) struct ManifestsArgs {
    /// The program's name: the Deployment's, and all other objects' where nothing else is said
    #[arg(long)]
    pub(crate) name: String,
    /// The program's image [default: NAME:latest]
    #[arg(long)]
    pub(crate) image: Option<String>,
    /// The namespace [default: NAME]
    #[arg(long)]
    pub(crate) namespace: Option<String>,
    /// Leave the Namespace out: it is there already. Label it yourself: pod-security.kubernetes.io/enforce=restricted
    #[arg(long)]
    pub(crate) no_namespace: bool,
    /// The Lease's name [default: NAME]
    #[arg(long)]
    pub(crate) lease: Option<String>,
    /// The ServiceAccount's name [default: NAME]
    #[arg(long, value_name = "NAME")]
    pub(crate) service_account: Option<String>,
    /// The Role's name [default: NAME]
    #[arg(long, value_name = "NAME")]
    pub(crate) role: Option<String>,
    /// The RoleBinding's name [default: NAME]
    #[arg(long, value_name = "NAME")]
    pub(crate) role_binding: Option<String>,
    /// How many replicas there are: one leads, the others stand by
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) replicas: u32,
    /// What a replica asks of its node's CPU; the default is soloist's own need, so add the program's
    #[arg(long, default_value = "10m", value_name = "QUANTITY")]
    pub(crate) cpu: String,
    /// What a replica asks of its node's memory; the default is soloist's own need, so add the program's
    #[arg(long, default_value = "16Mi", value_name = "QUANTITY")]
    pub(crate) memory: String,
    /// The user, by number, that soloist and the program run as
    #[arg(long, default_value_t = 65532, value_name = "UID", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) run_as_user: u32,
    /// A folder that the program may write to, empty at every start of a Pod; can be repeated. Nothing else can be written
    #[arg(long, value_name = "PATH")]
    pub(crate) writable: Vec<String>,
    /// The port of soloist's own listener, which the kubelet's probes ask; 0 for neither
    #[arg(long, default_value_t = 9808, value_name = "PORT")]
    pub(crate) listen_port: u16,
    /// Add a FlowSchema (cluster-wide), so that a flood of other requests does not delay the lease's
    #[arg(long)]
    pub(crate) flow_schema: bool,
    /// Add rights that soloist can do without: Events, and an heir that stays when a leader's Pod is told to end
    #[arg(long)]
    pub(crate) extra_rights: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub(crate) command: Vec<String>,

    #[command(flatten)]
    pub(crate) serving: ServingArgs,
    #[command(flatten)]
    pub(crate) delivery: DeliveryArgs,
    #[command(flatten)]
    pub(crate) run: PodFlags,
}

impl ManifestsArgs {
    /// All objects, each a YAML document.
    pub(crate) fn print(&self) -> anyhow::Result<String> {
        let run = &self.run;
        let about_leases = [
            ("--lease", self.lease.is_some()),
            ("--flow-schema", self.flow_schema),
            ("--extra-rights", self.extra_rights),
        ];
        self.serving.check(run, &about_leases)?;
        let prestop = self.serving.longest_hook(run);
        let prestop = prestop.unwrap_or(run.stopping.prestop);
        let stopping = StopArgs {
            prestop,
            ..run.stopping.clone()
        };
        settings::policy(&run.timings, &stopping, &run.health, false)?;
        for (what, name) in self.names() {
            ensure!(
                is_name(name),
                "{what} {name:?} is no name for Kubernetes: at most 63 lower-case letters, digits and '-', a letter first and no '-' last"
            );
        }
        for (what, quantity) in [("--cpu", &self.cpu), ("--memory", &self.memory)] {
            ensure!(
                is_quantity(quantity),
                "{what} {quantity:?} is no quantity: write it as 250m, 2, 64Mi or 1Gi"
            );
        }
        for path in &self.writable {
            ensure!(
                path.starts_with('/') && path.len() > 1 && !path.contains(':'),
                "--writable {path:?} is no folder to mount at: give an absolute path other than / and without ':'"
            );
            let is_taken = self.delivery.mount().is_some() && path.trim_end_matches('/') == FOLDER;
            ensure!(
                !is_taken,
                "--writable {path:?} is where soloist itself is mounted"
            );
            let same = self.writable.iter().filter(|other| *other == path);
            ensure!(same.count() == 1, "--writable {path:?} was given twice");
        }
        let documents = render::Documents {
            args: self,
            grace_seconds: whole_seconds(run.stopping.grace_period)
                .context("--grace-period is the Pod's terminationGracePeriodSeconds")?,
            prestop_seconds: whole_seconds(prestop)
                .context("--prestop is what the preStop hook takes")?,
        };
        Ok(documents.to_string())
    }

    fn or_name<'a>(&'a self, other: &'a Option<String>) -> &'a str {
        other.as_deref().unwrap_or(&self.name)
    }

    fn names(&self) -> [(&'static str, &str); 6] {
        [
            ("--name", &self.name),
            ("--namespace", self.or_name(&self.namespace)),
            ("--lease", self.or_name(&self.lease)),
            ("--service-account", self.or_name(&self.service_account)),
            ("--role", self.or_name(&self.role)),
            ("--role-binding", self.or_name(&self.role_binding)),
        ]
    }
}

fn whole_seconds(duration: Duration) -> anyhow::Result<u64> {
    ensure!(
        duration.subsec_nanos() == 0,
        "{} is not whole seconds, and Kubernetes can only count those",
        Human(duration)
    );
    Ok(duration.as_secs())
}

/// A DNS label that begins with a letter: good for every kind of object here.
pub(crate) fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    (1..=63).contains(&name.len())
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.ends_with(plain)
        && name.chars().all(|c| plain(c) || c == '-')
}

fn is_quantity(text: &str) -> bool {
    const SUFFIXES: [&str; 13] = [
        "", "m", "k", "M", "G", "T", "P", "Ki", "Mi", "Gi", "Ti", "Pi", "E",
    ];
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    SUFFIXES.contains(&&text[number.len()..]) && number.parse::<f64>().is_ok_and(|n| n > 0.0)
}

#[cfg(test)]
mod tests {
    use crate::cli::{Cli, Command};

    fn printed(flags: &[&str]) -> anyhow::Result<String> {
        let mut line = vec!["soloist", "manifests"];
        line.extend(flags);
        line.extend(["--", "/feed", "--all"]);
        match Cli::try_read(line)?.command {
            Command::Manifests(args) => args.print(),
            other => unreachable!("{other:?}"),
        }
    }

    #[test]
    fn flags_of_run_become_variables_of_the_pod() {
        let text = printed(&[
            "--name", "feed", "--preset", "low-load", "--ready", "notify",
        ])
        .unwrap();
        for (variable, value) in [
            ("SOLOIST_NAME", "feed"),
            ("SOLOIST_PRESET", "low-load"),
            ("SOLOIST_READY", "notify"),
            ("SOLOIST_GRACE_PERIOD", "\"30s\""),
        ] {
            let expected = format!("- name: {variable}\n          value: {value}\n");
            assert!(text.contains(&expected), "{variable}: {text}");
        }
        assert!(!text.contains("SOLOIST_STOP_SIGNAL"));
    }

    #[test]
    fn the_kubelet_asks_soloist_and_not_the_program() {
        let text = printed(&["--name", "feed"]).unwrap();
        for part in [
            "- name: SOLOIST_LISTEN\n          value: \":9808\"\n",
            "- name: soloist\n          containerPort: 9808\n",
            "path: /livez\n            port: soloist\n",
            "path: /readyz\n            port: soloist\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let text = printed(&["--name", "feed", "--listen-port", "0"]).unwrap();
        for part in ["SOLOIST_LISTEN", "containerPort", "Probe:"] {
            assert!(!text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_before_a_cluster_sees_it() {
        for (flags, reason) in [
            (
                ["--name", "Feed"],
                "--name \"Feed\" is no name for Kubernetes",
            ),
            (["--namespace", "a.b"], "--namespace \"a.b\" is no name"),
            (
                ["--grace-period", "1500ms"],
                "is not whole seconds, and Kubernetes can only count those",
            ),
            (["--stop-timeout", "28s"], "stop 28s + margin 5s = 33s"),
            (["--renew-deadline", "20s"], "too late"),
            (["--memory", "lots"], "is no quantity: write it as 250m"),
            (["--writable", "tmp"], "is no folder to mount at"),
            (["--writable", "/soloist-bin"], "where soloist itself is"),
            (["--writable=/a", "--writable=/a"], "\"/a\" was given twice"),
        ] {
            let mut all = vec![];
            if flags[0] != "--name" {
                all.extend(["--name", "feed"]);
            }
            all.extend(flags);
            let error = format!("{:#}", printed(&all).unwrap_err());
            assert!(error.contains(reason), "{flags:?}: {error}");
        }
    }

    #[test]
    fn without_an_election_there_is_no_right_to_a_lease_and_a_hook() {
        let text = printed(&["--name", "web", "--store", "none"]).unwrap();
        for part in [
            "command: [\"/soloist-bin/soloist\", \"prestop\", \"--max\", \"15s\"]\n",
            "- name: SOLOIST_STORE\n          value: none\n",
            "- name: SOLOIST_PRESTOP\n          value: \"15s\"\n",
            "resources: [endpointslices]\n  verbs: [get, list, watch]\n",
            "automountServiceAccountToken: true\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        for part in ["leases", "SOLOIST_PRESET", "standby"] {
            assert!(!text.contains(part), "{part}: {text}");
        }
        let text = printed(&[
            "--name",
            "work",
            "--store",
            "none",
            "--prestop-hook",
            "sleep",
        ])
        .unwrap();
        for part in [
            "lifecycle",
            "kind: Role",
            "automountServiceAccountToken: true",
        ] {
            assert!(!text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn what_is_about_a_lease_or_does_not_fit_is_refused_without_an_election() {
        for (flags, reason) in [
            (&["--lease", "l"][..], "--lease is about a lease"),
            (&["--flow-schema"], "--flow-schema is about a lease"),
            (&["--extra-rights"], "--extra-rights is about a lease"),
            (&["--label-role"], "--label-role is about a lease"),
            (
                &["--leave-cordoned-node"],
                "--leave-cordoned-node is about a lease",
            ),
            (&["--preset", "low-load"], "--preset is about a lease"),
            (&["--prestop", "30s"], "leaves nothing of the grace period"),
            (
                &["--grace-period", "15s"],
                "leaves nothing of the grace period",
            ),
            (&["--stop-timeout", "25s"], "stop 25s + margin"),
        ] {
            let all = [&["--name", "web", "--store", "none"], flags].concat();
            let error = format!("{:#}", printed(&all).unwrap_err());
            assert!(error.contains(reason), "{flags:?}: {error}");
        }
    }
}
