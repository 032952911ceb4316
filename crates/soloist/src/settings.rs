//! The settings, checked as a whole before anything starts.

use std::ffi::{OsStr, OsString};
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use soloist_core::backoff::Backoff;
use soloist_core::ids::Identity;
use soloist_core::ladder::{Ladder, LadderRequest};
use soloist_core::replica::{OnLoss, OnUnhealthy, Policy, Restarts};
use soloist_core::time::Human;
use soloist_core::timings::{Preset, Timings};
use soloist_elector::kubernetes::Options;
use soloist_process::{Signal, StopTo, User};

use crate::cli::{
    Health, HealthArgs, LogArgs, OnLossArg, OnUnhealthyArg, PodArgs, PresetArg, Ready, RunArgs,
    StopArgs, TimingArgs,
};
use crate::ending::LEAST as LEAST_GRACE;
use crate::listener::{ListenAddress, Timeouts};
use crate::store::{Location, StoreChoice, default_path};

/// Everything that `soloist run` needs to know.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) name: String,
    pub(crate) location: Location,
    pub(crate) identity: Option<Identity>,
    pub(crate) policy: Policy,
    /// The Pod's, as we were told.
    pub(crate) grace_period: Duration,
    /// What the kubelet gives it without anybody's deletion.
    pub(crate) kubelet_grace_period: Option<Duration>,
    /// What the preStop hook takes of it, as we were told.
    pub(crate) prestop: Duration,
    pub(crate) stop_signal: Signal,
    pub(crate) stop_to: StopTo,
    pub(crate) ready: Ready,
    pub(crate) health: Health,
    pub(crate) health_interval: Duration,
    pub(crate) health_timeout: Duration,
    pub(crate) wait: Option<Duration>,
    /// Where probes, people and Prometheus are answered.
    pub(crate) listen: Option<ListenAddress>,
    pub(crate) in_pod: InPod,
    /// Whom the child becomes.
    pub(crate) user: Option<User>,
    pub(crate) log: LogArgs,
    pub(crate) command: Vec<OsString>,
}

/// What a replica does for its Pod beside the lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct InPod {
    /// Show who leads, as a label.
    pub(crate) label_role: bool,
    /// Hand over when the node is to be emptied.
    pub(crate) leave_cordoned_node: bool,
}

impl From<&PodArgs> for InPod {
    fn from(args: &PodArgs) -> Self {
        Self {
            label_role: args.label_role,
            leave_cordoned_node: args.leave_cordoned_node,
        }
    }
}

impl TryFrom<RunArgs> for Settings {
    type Error = anyhow::Error;

    fn try_from(args: RunArgs) -> anyhow::Result<Self> {
        let store = args.store.clone().unwrap_or_else(StoreChoice::fitting);
        if store == StoreChoice::None {
            refuse_what_needs_a_lease(&args.timings, &args.health, args.wait.is_some())?;
        }
        let in_kubernetes = matches!(store, StoreChoice::Kubernetes(_) | StoreChoice::Pair(_));
        ensure!(
            !args.pod.label_role || in_kubernetes,
            "--label-role labels Pods, by a lease in Kubernetes: leave it out (and SOLOIST_LABEL_ROLE), or take --store kubernetes"
        );
        ensure!(
            !args.pod.leave_cordoned_node || in_kubernetes,
            "--leave-cordoned-node hands over between Pods, by a lease in Kubernetes: leave it out (and SOLOIST_LEAVE_CORDONED_NODE), or take \
             --store kubernetes"
        );
        let name = match (args.name, &store) {
            (Some(name), _) => name,
            (None, StoreChoice::File(_) | StoreChoice::None) => name_of(&args.command[0]),
            (None, StoreChoice::Kubernetes(_) | StoreChoice::Pair(_)) => {
                return Err(needs_a_name(
                    "Kubernetes",
                    "in the namespace",
                    &args.command[0],
                ));
            }
            (None, StoreChoice::Etcd(_)) => {
                return Err(needs_a_name("etcd", "below the prefix", &args.command[0]));
            }
        };
        let identity = args
            .identity
            .as_deref()
            .map(Identity::try_new)
            .transpose()?;
        let policy = policy(&args.timings, &args.stopping, &args.health, args.once)?;
        let location = match store {
            StoreChoice::File(Some(path)) => Location::File(path),
            StoreChoice::File(None) => Location::File(default_path(&name)?),
            StoreChoice::Etcd(address) => Location::Etcd(args.etcd.lease(&address, &name)),
            StoreChoice::Kubernetes(resource) | StoreChoice::Pair(resource) => {
                let mut options = Options::lease(&name).resource(resource);
                if let Some(namespace) = args.namespace {
                    options = options.namespace(namespace);
                }
                if let Some(kubeconfig) = args.kubeconfig {
                    options = options.kubeconfig(kubeconfig);
                }
                if let Some(context) = args.context {
                    options = options.context(context);
                }
                match store {
                    StoreChoice::Pair(_) => Location::Pair(options),
                    _ => Location::Kubernetes(options),
                }
            }
            StoreChoice::None => Location::Nowhere,
        };
        let user = match (&args.user, &args.group) {
            (None, None) => None,
            (user, group) => Some(User::find(user.as_deref(), group.as_deref())?),
        };
        Ok(Self {
            user,
            name,
            location,
            identity,
            policy,
            grace_period: args.stopping.grace_period,
            kubelet_grace_period: args.stopping.kubelet_grace_period,
            prestop: args.stopping.prestop,
            stop_signal: args.stopping.stop_signal,
            stop_to: args.stopping.stop_to.into(),
            ready: args.health.ready,
            health: args.health.health,
            health_interval: args.health.health_interval,
            health_timeout: args.health.health_timeout,
            wait: args.wait,
            listen: args.listen,
            in_pod: InPod::from(&args.pod),
            log: args.log,
            command: args.command,
        })
    }
}

impl Settings {
    /// What follows from the settings, for the first line of the log.
    /// For the listener.
    pub(crate) fn timeouts(&self) -> Timeouts {
        let Policy {
            ladder,
            timings,
            on_loss,
            ..
        } = self.policy;
        Timeouts {
            grace: self.grace_period,
            ladder,
            timings,
            loss_grace: match on_loss {
                OnLoss::Strict => timings.loss_grace(),
                OnLoss::Graceful => ladder.stop(),
            },
        }
    }

    pub(crate) fn ladder_in_words(&self) -> String {
        let Policy {
            ladder, timings, ..
        } = &self.policy;
        let steps = format!(
            "stop {}, child {}, drain {}",
            Human(ladder.stop()),
            Human(ladder.child()),
            Human(ladder.drain()),
        );
        if self.location.is_nowhere() {
            return format!("{steps}; nobody is elected, every replica runs the program");
        }
        format!(
            "{steps}; a lost lease leaves the child {}",
            match self.policy.on_loss {
                OnLoss::Strict => format!(
                    "{} between SIGTERM and SIGKILL",
                    Human(timings.loss_grace())
                ),
                OnLoss::Graceful => format!(
                    "its whole {}, and for {} of it the next leader's may run beside it",
                    Human(ladder.stop()),
                    Human(
                        ladder
                            .stop()
                            .saturating_sub(timings.lease().get() - timings.renew_deadline())
                    ),
                ),
            }
        )
    }
}

/// Who sets these expects a lease that there is not.
pub(crate) fn refuse_what_needs_a_lease(
    timings: &TimingArgs,
    health: &HealthArgs,
    waits: bool,
) -> anyhow::Result<()> {
    let TimingArgs {
        preset,
        lease_duration,
        renew_deadline,
        retry_period,
        on_loss,
    } = timings;
    let about_leases = [
        ("--lease-duration", lease_duration.is_some()),
        ("--renew-deadline", renew_deadline.is_some()),
        ("--retry-period", retry_period.is_some()),
        ("--preset", !matches!(preset, PresetArg::Standard)),
        ("--on-loss", !matches!(on_loss, OnLossArg::Strict)),
        ("--wait", waits),
    ];
    if let Some((flag, _)) = about_leases.iter().find(|(_, given)| *given) {
        bail!(
            "{flag} is about a lease, and with --store none there is none: every replica runs the program, at once. Leave {flag} out (and its \
             variable), or name another store"
        );
    }
    ensure!(
        !matches!(health.on_unhealthy, OnUnhealthyArg::StepDown),
        "--on-unhealthy step-down lets another replica lead, and with --store none nobody does: every replica runs the program. Write \
         --on-unhealthy restart, or name another store"
    );
    Ok(())
}

/// Checks what the flags say about times, stops and health, alone and together.
pub(crate) fn policy(
    timing: &TimingArgs,
    stopping: &StopArgs,
    health: &HealthArgs,
    once: bool,
) -> anyhow::Result<Policy> {
    let timings = timings(timing)?;
    let ladder = Ladder::try_new(LadderRequest {
        prestop: stopping.prestop,
        stop: stopping.stop_timeout,
        ..LadderRequest::from_grace(stopping.grace_period)
    })?;
    ensure!(
        stopping
            .kubelet_grace_period
            .is_none_or(|grace| grace >= LEAST_GRACE),
        "--kubelet-grace-period is less than {}, which every kubelet gives",
        Human(LEAST_GRACE)
    );
    ensure!(
        !health.health_interval.is_zero() && !health.health_timeout.is_zero(),
        "the health interval and timeout must be longer than 0s"
    );
    ensure!(
        health.health != Health::Notify || health.ready == Ready::Notify,
        "--health notify needs --ready notify: a child that speaks the notify protocol says READY=1 first"
    );
    Ok(Policy {
        timings,
        ladder,
        on_loss: match timing.on_loss {
            OnLossArg::Strict => OnLoss::Strict,
            OnLossArg::Graceful => OnLoss::Graceful,
        },
        start_limit: health.start_limit,
        restarts: Restarts {
            backoff: Backoff::STANDARD,
            most: health.restart_limit,
            window: health.restart_window,
            ..Restarts::STANDARD
        },
        unhealthy_after: health.health_threshold,
        on_unhealthy: match health.on_unhealthy {
            OnUnhealthyArg::Restart => OnUnhealthy::Restart,
            OnUnhealthyArg::StepDown => OnUnhealthy::StepDown,
        },
        cool_down: health.cool_down,
        first_process: rustix::process::getpid().is_init(),
        once,
    })
}

/// Checks the three numbers.
pub(crate) fn timings(args: &TimingArgs) -> anyhow::Result<Timings> {
    let preset = Timings::preset(match args.preset {
        PresetArg::Standard => Preset::Standard,
        PresetArg::HighAvailability => Preset::HighAvailability,
        PresetArg::LowLoad => Preset::LowLoad,
    });
    Timings::try_new(
        args.lease_duration.unwrap_or(preset.lease().get()),
        args.renew_deadline.unwrap_or(preset.renew_deadline()),
        args.retry_period.unwrap_or(preset.retry_period()),
    )
    .context("the timings do not fit together")
}

fn needs_a_name(store: &str, neighbours: &str, program: &OsStr) -> anyhow::Error {
    anyhow!(
        "on {store} the lease needs a name, the same in all replicas and no other program's {neighbours}: give \
         --name, or set SOLOIST_NAME (here, for example, --name {})",
        name_of(program)
    )
}

/// A lease's name from a program's: what Kubernetes allows of it.
fn name_of(program: &OsStr) -> String {
    let path = std::path::Path::new(program);
    let file = path.file_name().unwrap_or(program).to_string_lossy();
    let allowed: String = file
        .to_lowercase()
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
        .collect();
    match allowed.trim_matches('-') {
        "" => "soloist".to_owned(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;
    use crate::cli::{Cli, Command};

    fn settings(flags: &[&str]) -> anyhow::Result<Settings> {
        let mut line = vec!["soloist", "run"];
        if !flags.contains(&"--store") {
            line.extend(["--store", "file"]);
        }
        line.extend(flags);
        line.extend(["--", "/usr/bin/My_Feed.sh"]);
        let Command::Run(args) = Cli::try_read(line)?.command else {
            bail!("not run");
        };
        Settings::try_from(*args)
    }

    #[test]
    fn the_defaults_are_the_guides() {
        let settings = settings(&[]).unwrap();
        assert_eq!(settings.name, "my-feed-sh");
        assert_eq!(
            settings.ladder_in_words(),
            "stop 25s, child 20s, drain 15s; a lost lease leaves the child 3.5s between SIGTERM and SIGKILL"
        );
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_reason() {
        for (flags, reason) in [
            (["--lease-duration", "1500ms"], "whole seconds"),
            (["--renew-deadline", "20s"], "too late"),
            (["--retry-period", "9s"], "jitter"),
            (["--stop-timeout", "28s"], "stop 28s + margin 5s = 33s"),
            (["--prestop", "30s"], "leaves nothing"),
            (
                ["--kubelet-grace-period", "1s"],
                "--kubelet-grace-period is less than ",
            ),
            (["--identity", "a b"], "contains ' '"),
            (
                ["--health", "notify"],
                "--health notify needs --ready notify: a child that",
            ),
            (["--stop-signal", "NOPE"], "not a signal"),
            (["--ready", "sometimes"], "is not a probe"),
            (["--store", "redis"], "is not a store"),
            (["--wait", "10"], "is not a duration"),
            (
                ["--store", "kubernetes"],
                "the lease needs a name, the same in all replicas",
            ),
            (["--store", "etcd:a:1"], "on etcd the lease needs a name"),
            (["--store", "etcd:a:b"], "is no address of an etcd"),
            (["--etcd-user", "me"], "--etcd-password-file"),
            (["--log-level", "inof"], "says not what is to be logged"),
        ] {
            let error = format!("{:#}", settings(&flags).unwrap_err());
            assert!(error.contains(reason), "{flags:?}: {error}");
        }
    }

    #[test]
    fn pods_are_labelled_by_a_lease_in_kubernetes_alone() {
        for store in ["file", "none"] {
            let error = settings(&["--store", store, "--label-role"]).unwrap_err();
            assert!(error.to_string().contains("by a lease in Kubernetes"));
        }
        let named = ["--store", "kubernetes", "--name", "feed", "--label-role"];
        assert!(settings(&named).unwrap().in_pod.label_role);
    }

    #[test]
    fn a_node_is_left_by_a_lease_in_kubernetes_alone() {
        for store in ["file", "none"] {
            let error = settings(&["--store", store, "--leave-cordoned-node"]).unwrap_err();
            assert!(error.to_string().contains("by a lease in Kubernetes"));
        }
        let named = ["--store", "kubernetes", "--name", "feed"];
        let off = settings(&named).unwrap().in_pod;
        assert_eq!(off, InPod::default());
        let named = [&named[..], &["--leave-cordoned-node"]].concat();
        assert!(settings(&named).unwrap().in_pod.leave_cordoned_node);
    }

    #[test]
    fn without_a_lease_nothing_is_said_about_one_and_its_flags_are_refused() {
        let alone = settings(&["--store", "none"]).unwrap();
        assert_eq!(
            alone.ladder_in_words(),
            "stop 25s, child 20s, drain 15s; nobody is elected, every replica runs the program"
        );
        for flags in [
            ["--lease-duration", "30s"],
            ["--renew-deadline", "10s"],
            ["--retry-period", "2s"],
            ["--preset", "low-load"],
            ["--on-loss", "graceful"],
            ["--wait", "10s"],
            ["--on-unhealthy", "step-down"],
        ] {
            let all = [&["--store", "none"][..], &flags].concat();
            let error = settings(&all).unwrap_err().to_string();
            assert!(error.starts_with(flags[0]), "{error}");
            assert!(error.contains("with --store none"), "{error}");
        }
        let leaves = ["--store", "none", "--on-unhealthy", "step-down"];
        let error = settings(&leaves).unwrap_err().to_string();
        assert!(
            error.contains("lets another replica lead, and with --store none nobody does"),
            "{error}"
        );
        let standard = ["--store", "none", "--preset", "standard"];
        settings(&standard).expect("what is so anyway may be said");
    }

    #[test]
    fn a_lease_is_named_after_the_program_as_kubernetes_allows() {
        for (program, name) in [
            ("/bin/sh", "sh"),
            ("./Run Me.py", "run-me-py"),
            ("___", "soloist"),
        ] {
            assert_eq!(name_of(OsStr::new(program)), name);
        }
    }
}
