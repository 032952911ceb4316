//! The Pod's preStop hook: whether it fits into the grace period, and whether what serves has one.

use std::time::Duration;

use serde_json::Value;
use soloist_core::time::Human;

use super::cluster::text;
use super::workload::{Workload, first_line, is_soloist, words};
use crate::cli::RunArgs;
use crate::prestop::PrestopArgs;
use crate::report::{Verdict, read};

impl Workload {
    /// Its preStop hook is `soloist prestop`.
    pub(super) fn has_prestop(&self) -> bool {
        self.prestop_args().is_some()
    }

    /// The words after `soloist prestop` in its hook.
    fn prestop_args(&self) -> Option<Result<PrestopArgs, String>> {
        let hook = words(&self.container()["lifecycle"]["preStop"]["exec"]);
        let [program, command, rest @ ..] = hook.as_slice() else {
            return None;
        };
        let is_soloist = is_soloist(program) && command == "prestop";
        is_soloist.then(|| {
            let line = ["soloist prestop"].into_iter();
            let line = line.chain(rest.iter().map(String::as_str));
            PrestopArgs::elsewhere(line).map_err(|error| first_line(&error.to_string()))
        })
    }

    pub(super) fn prestop(&self, args: &RunArgs) -> Verdict {
        let hook = &self.container()["lifecycle"]["preStop"];
        let said = args.stopping.prestop;
        if let Some(ours) = self.prestop_args() {
            return Self::own_prestop(ours, args);
        }
        let sleeps = hook["sleep"]["seconds"].as_u64();
        match (hook, sleeps) {
            (Value::Null, _) if said.is_zero() && self.serves_without_end() => Verdict::warning(
                "there is none: the Pod is told to end while Services still send it connections, and a rolling update loses some",
                "Let the container's lifecycle.preStop.exec.command be [\"/soloist-bin/soloist\", \"prestop\"] (where soloist is), as \
                 `soloist manifests --store none` prints",
                read::PRESTOP,
            ),
            (Value::Null, _) if said.is_zero() => Verdict::good("there is none"),
            (Value::Null, _) => Verdict::warning(
                format!("there is none, and soloist leaves {} for it", Human(said)),
                "Remove SOLOIST_PRESTOP",
                read::POD,
            ),
            (_, Some(seconds)) if Duration::from_secs(seconds) > said => Verdict::bad(
                format!(
                    "it sleeps {seconds} s of the grace period, and soloist leaves {} for it",
                    Human(said)
                ),
                format!("Set SOLOIST_PRESTOP to {seconds}s, so that the timeouts below it fit"),
                read::POD,
            ),
            (_, None) if said.is_zero() => Verdict::warning(
                "how long it takes cannot be known, and soloist leaves nothing for it",
                "Set SOLOIST_PRESTOP to the longest time that it may take",
                read::POD,
            ),
            _ => Verdict::good(Human(said).to_string()),
        }
    }

    /// `soloist prestop` says how long it took, but the program is told at its start how much it will have.
    fn own_prestop(ours: Result<PrestopArgs, String>, args: &RunArgs) -> Verdict {
        let said = args.stopping.prestop;
        let most = match ours {
            Ok(ours) => ours.max(),
            Err(reason) => {
                let advice = "Change the hook's flags; `soloist prestop --help` tells them";
                return Verdict::bad(reason, advice, read::PRESTOP);
            }
        };
        if most >= args.stopping.grace_period {
            return Verdict::bad(
                format!(
                    "soloist prestop takes at most {} of a grace period of {}, which can leave nothing for the program",
                    Human(most),
                    Human(args.stopping.grace_period)
                ),
                "Give the hook a shorter --max, or the Pod a longer terminationGracePeriodSeconds",
                read::PRESTOP,
            );
        }
        match said < most {
            true => Verdict::warning(
                format!(
                    "soloist prestop takes at most {}, and soloist leaves {} for it: the program may be stopped sooner than it was told",
                    Human(most),
                    Human(said)
                ),
                format!("Set SOLOIST_PRESTOP to {}", Human(most)),
                read::PRESTOP,
            ),
            false => Verdict::good(format!("soloist prestop, at most {}", Human(most))),
        }
    }

    /// Without a lease, with ports of the program's own, and without a hook.
    fn serves_without_end(&self) -> bool {
        let ports = self.container()["ports"].as_array();
        let own = |port: &&Value| text(port, "/name") != "soloist";
        self.elects_nobody() && ports.into_iter().flatten().any(|port| own(&port))
    }
}
