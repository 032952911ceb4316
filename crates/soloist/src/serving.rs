//! Whether a Pod's replicas elect one of them, and what its preStop hook is: for `soloist manifests` and `soloist inject`.

use std::time::Duration;

use anyhow::ensure;
use clap::{Args, ValueEnum};

use crate::cli::PodFlags;
use crate::manifests::yaml::list;
use crate::settings;

/// What `soloist prestop` takes at most, unless told otherwise.
const LONGEST_HOOK: Duration = Duration::from_secs(15);

#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct ServingArgs {
    /// Where the lease lives; or none: no election, every replica runs the program, which serves
    #[arg(long, default_value = "kubernetes", value_name = "STORE")]
    pub(crate) store: PodStore,
    /// What the Pod's preStop hook is [default: soloist with --store none, else sleep]
    #[arg(long, value_name = "HOOK")]
    pub(crate) prestop_hook: Option<Hook>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PodStore {
    /// A Lease
    Kubernetes,
    /// None: no lease is needed, and no right to one
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Hook {
    /// `soloist prestop`: waits until no traffic comes any more, at most --prestop (15s)
    Soloist,
    /// A sleep of --prestop, or none if that is 0s; inject leaves the hook as it is
    Sleep,
}

impl ServingArgs {
    pub(crate) fn elects(self) -> bool {
        self.store == PodStore::Kubernetes
    }

    pub(crate) fn waits_for_traffic(self) -> bool {
        let usual = match self.store {
            PodStore::Kubernetes => Hook::Sleep,
            PodStore::None => Hook::Soloist,
        };
        self.prestop_hook.unwrap_or(usual) == Hook::Soloist
    }

    /// What `soloist prestop` takes at most, where it is the hook.
    pub(crate) fn longest_hook(self, run: &PodFlags) -> Option<Duration> {
        let said = run.stopping.prestop;
        let most = if said.is_zero() { LONGEST_HOOK } else { said };
        self.waits_for_traffic().then_some(most)
    }

    /// What is about a lease does not fit to `--store none`.
    pub(crate) fn check(self, run: &PodFlags, about_leases: &[(&str, bool)]) -> anyhow::Result<()> {
        if self.elects() {
            return Ok(());
        }
        let of_pods = [
            ("--label-role", run.pod.label_role),
            ("--leave-cordoned-node", run.pod.leave_cordoned_node),
        ];
        for (flag, is_given) in about_leases.iter().chain(&of_pods) {
            ensure!(
                !is_given,
                "{flag} is about a lease, and with --store none there is none: leave it out"
            );
        }
        settings::refuse_what_needs_a_lease(&run.timings, &run.health, false)
    }
}

/// What a Pod needs beside its hook for a node's shutdown, in which Kubernetes leaves it in its Services unless it is deleted.
/// A node that shuts down is not ready.
pub(crate) const TOLERATION: &str = "\
- key: node.kubernetes.io/not-ready
  operator: Exists
  effect: NoExecute
  tolerationSeconds: 0
";

/// The taint that it is about.
pub(crate) const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// An exec hook in the container where soloist is at this path, as an entry of the container.
pub(crate) fn hook(soloist: &str, most: Duration) -> String {
    let most = match most.subsec_nanos() {
        0 => format!("{}s", most.as_secs()),
        _ => format!("{}ms", most.as_millis()),
    };
    let command = list(&[soloist, "prestop", "--max", &most]);
    format!("lifecycle:\n  preStop:\n    exec:\n      command: {command}\n")
}
