//! The command line. What is said here is the help.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{BoolishValueParser, Resettable};
use clap::parser::ValueSource;
use clap::{
    ArgAction, ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum,
};
use clap_complete::Shell;
use soloist_process::{Signal, StopTo};

use crate::demo::{DemoArgs, DemoPartArgs};
use crate::doctor::DoctorArgs;
use crate::duration::parse as duration;
use crate::etcd::EtcdArgs;
use crate::inject::InjectArgs;
use crate::listener::ListenAddress;
use crate::logging::Filter;
use crate::manifests::ManifestsArgs;
use crate::prestop::PrestopArgs;
use crate::probe::Probe;
use crate::store::StoreChoice;
use crate::switch::{HandoverArgs, PauseArgs, ResumeArgs, StatusArgs};
use crate::trial::TryArgs;

/// Keeps exactly one copy of a program running across any number of replicas: never two, almost never none.
#[derive(Debug, Parser)]
#[command(name = "soloist", version, long_version = crate::version::LONG, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What soloist tells its child, too: whoever runs under another soloist does not mean that one's lease.
const TOLD_TO_CHILDREN: [&str; 2] = ["name", "identity"];

const WRITING_FOR_PODS: [&str; 2] = ["manifests", "inject"];

/// What was said on the command line that `run` can be told by a variable, as variables.
fn given(matches: &ArgMatches) -> Vec<(String, String)> {
    let command = PodFlags::augment_args(clap::Command::new("run"));
    let flags = command.get_arguments();
    let was_said = |id: &str| matches.value_source(id) == Some(ValueSource::CommandLine);
    let mut given = Vec::new();
    for flag in flags.filter(|flag| was_said(flag.get_id().as_str())) {
        let value = matches
            .get_raw(flag.get_id().as_str())
            .and_then(|mut v| v.next_back());
        if let (Some(variable), Some(value)) = (flag.get_env(), value) {
            let text = |text: &std::ffi::OsStr| text.to_string_lossy().into_owned();
            given.push((text(variable), text(value)));
        }
    }
    given
}

impl Cli {
    /// Reads the command line and the variables, or ends with what is wrong with them.
    pub(crate) fn read() -> Self {
        Self::try_read(std::env::args_os()).unwrap_or_else(|error| error.exit())
    }

    /// Reads this command line.
    pub(crate) fn try_read<T: Into<OsString> + Clone>(
        line: impl IntoIterator<Item = T>,
    ) -> Result<Self, clap::Error> {
        // Every child is told this, and no flag has that variable.
        let is_child = std::env::var_os("SOLOIST_STOP_SECONDS").is_some();
        let matches = Self::definition(is_child).try_get_matches_from(line)?;
        let mut cli = Self::from_arg_matches(&matches)?;
        let pod_flags = match &mut cli.command {
            Command::Manifests(args) => Some(&mut args.run),
            Command::Inject(args) => Some(&mut args.run),
            Command::Run(_)
            | Command::Doctor(_)
            | Command::Try(_)
            | Command::Demo(_)
            | Command::DemoPart(_)
            | Command::Completions { .. }
            | Command::Install { .. }
            | Command::Handover(_)
            | Command::Pause(_)
            | Command::Resume(_)
            | Command::Status(_)
            | Command::Prestop(_) => None,
        };
        if let (Some(flags), Some((_, matches))) = (pod_flags, matches.subcommand()) {
            flags.given = given(matches);
        }
        Ok(cli)
    }

    /// What `run` would be told by these flags alone, whatever the variables are here.
    pub(crate) fn run_elsewhere(line: Vec<String>) -> Result<RunArgs, clap::Error> {
        let run = RunArgs::augment_args(clap::Command::new("soloist run"));
        let run = run.mut_args(|arg| match arg.get_action() {
            // A variable gives it a value.
            ArgAction::SetTrue => arg
                .env(Resettable::Reset)
                .action(ArgAction::Set)
                .num_args(0..=1)
                .require_equals(true)
                .default_value("false")
                .default_missing_value("true"),
            _ => arg.env(Resettable::Reset),
        });
        RunArgs::from_arg_matches(&run.try_get_matches_from(line)?)
    }

    /// A script that completes soloist's commands and flags in this shell.
    pub(crate) fn completions(shell: Shell) -> String {
        let mut script = Vec::new();
        clap_complete::generate(shell, &mut Self::command(), "soloist", &mut script);
        String::from_utf8_lossy(&script).into_owned()
    }

    pub(crate) fn definition(is_child: bool) -> clap::Command {
        let untold = |run: clap::Command| {
            let untold =
                |run: clap::Command, name| run.mut_arg(name, |arg| arg.env(Resettable::Reset));
            TOLD_TO_CHILDREN.into_iter().fold(run, untold)
        };
        // They write for other machines: the variables here say nothing about those.
        let elsewhere = |command: clap::Command| command.mut_args(|arg| arg.env(Resettable::Reset));
        let command = WRITING_FOR_PODS
            .into_iter()
            .fold(Self::command(), |command, name| {
                command.mut_subcommand(name, elsewhere)
            });
        match is_child {
            true => command.mut_subcommand("run", untold),
            false => command,
        }
    }

    /// The flags' variables.
    pub(crate) fn variables() -> Vec<OsString> {
        let command = Self::command();
        let of = |command: &clap::Command| {
            let variables = command.get_arguments().filter_map(clap::Arg::get_env);
            variables.map(OsString::from).collect::<Vec<_>>()
        };
        command.get_subcommands().flat_map(of).collect()
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Takes part in the election and, while it leads, runs the program.
    ///
    /// Exit codes: 0 clean; 1 the child had to be killed; 2 bad configuration; 3 the lease store refused us for
    /// good; 4 --wait ran out; 5 with --once, we were told to stop before the program ran; 6 an internal error; 126 the program
    /// cannot be run; 127 it cannot be found; with --once the program's own (128 and the signal, if one ended it).
    Run(Box<RunArgs>),
    /// Prints the Kubernetes objects that run a program as one of three replicas: pipe them to `kubectl apply -f -`.
    ///
    /// Namespace, ServiceAccount, Role with the least rights, RoleBinding, Deployment and PodDisruptionBudget, under the Pod security
    /// standard `restricted`. Flags of `soloist run` become variables of the Pod. Nothing is sent anywhere.
    Manifests(ManifestsArgs),
    /// Reads a Deployment or StatefulSet from standard input and prints it with soloist in front of its command.
    ///
    /// Adds the variables, the volume that brings soloist, and the rights; everything else stays as it is, comments included. What
    /// it cannot know it asks for. What has soloist already is left alone. Flags of `soloist run` become variables of the Pod.
    Inject(InjectArgs),
    /// Looks at all that an election needs, and says what is wrong, what to do, and where to read on.
    ///
    /// Settings, the API server, rights by verb and resource, the lease and its holder, the Pods, this machine. Changes nothing. From a
    /// Pod with its service account, or from anywhere with a kubeconfig. Exit codes: 0 nothing is broken; 1 something is; 2 bad flags.
    Doctor(DoctorArgs),
    /// Takes a program through what soloist will do to it, and says what it did well and what not.
    ///
    /// Starts it four times: it is stopped, loses the lease, is killed, and has to start after that. Nobody is elected and nothing is
    /// written anywhere. What the program prints goes to standard error. Exit codes: 0 nothing is bad; 1 something is; 2 bad flags; 126
    /// the program cannot be run; 127 it cannot be found; 130 or 143 interrupted.
    Try(Box<TryArgs>),
    /// Shows it on this machine: three replicas, what hurts them, and the proof that there was never a second child.
    ///
    /// Needs nothing but this program. The replicas share a lease in a private temporary folder, and their child consumes a feed of
    /// numbered messages. The leader is killed, frozen, cut off, stopped or told to hand over, its child crashes, its guard is killed: by buttons on
    /// a page (its address is the first line) and keys on the terminal, or with --headless by itself. The proof and the time without a child for each switch are counted from what the children wrote. Nothing is left
    /// behind. Exit codes: 0 the proof holds; 1 it does not, or the demo failed; 2 bad flags, the port is taken, no temporary folder.
    Demo(DemoArgs),
    /// What the demo starts of this program.
    #[command(hide = true)]
    DemoPart(DemoPartArgs),
    /// Prints a script that completes soloist's commands and flags in a shell.
    ///
    /// For bash: `source <(soloist completions bash)`, or once into a file of bash-completion's folder.
    Completions {
        /// Which shell
        shell: Shell,
    },
    /// Shows who leads, in which term, since when, who stands by, and what is ordered.
    ///
    /// From anywhere with a kubeconfig, in a Pod, or for a lease file. Needs get and list on the one Lease; with get and list on Pods it
    /// also tells the replicas. Exit codes: 0; 1 there is no such lease; 2 bad flags; 3 the lease store refused us.
    Status(StatusArgs),
    /// Has the leader stop its child in order, release the lease, and let another replica lead.
    ///
    /// The order is an annotation on the Lease, soloist.dev/handover, for the leader of one term, and is obeyed once. Whoever may update the Lease may
    /// order it. Exit codes: 0 ordered, with --wait done; 1 not ordered, or another one leads than was named; 2 bad flags; 3 the lease
    /// store refused us; 4 --wait ran out.
    Handover(HandoverArgs),
    /// Lets nobody take the lease: the leader goes on, and whoever stops or dies is not succeeded; with --stop nobody leads.
    ///
    /// The order is an annotation on the Lease, soloist.dev/pause. Exit codes as for handover.
    Pause(PauseArgs),
    /// Ends a pause.
    Resume(ResumeArgs),
    /// For the Pod's preStop hook: waits until nobody sends traffic here any more.
    ///
    /// Tells the soloist that runs in the same container that the end is near; waits until no EndpointSlice shows this Pod as ready
    /// (needs get, list and watch on endpointslices), then until no new TCP connection has come for --settle; tells soloist how long that
    /// took, which leaves the program what is left of the grace period. What it saw is in soloist's log. Exit codes: 0; 2 bad flags.
    Prestop(PrestopArgs),
    /// Copies this program to a path, or into a folder, for all to run: from an init container to an emptyDir.
    Install {
        /// Where to
        path: PathBuf,
    },
}

/// Flags of `soloist run` that a Pod can be told as variables.
#[derive(Debug, Args)]
pub(crate) struct PodFlags {
    #[command(flatten)]
    pub(crate) timings: TimingArgs,
    #[command(flatten)]
    pub(crate) stopping: StopArgs,
    #[command(flatten)]
    pub(crate) health: HealthArgs,
    #[command(flatten)]
    pub(crate) pod: PodArgs,
    #[command(flatten)]
    pub(crate) log: LogArgs,
    /// Those that were given, as variables and their values.
    #[arg(skip)]
    pub(crate) given: Vec<(String, String)>,
}

/// Durations are written as 15s, 750ms or 1m30s.
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The lease's name: the same in all replicas. Required on Kubernetes and etcd [default: made from the program's name]
    #[arg(long, env = "SOLOIST_NAME")]
    pub(crate) name: Option<String>,
    /// Where the lease lives: kubernetes, etcd:HOST:PORT[,HOST:PORT…]/PREFIX, file, or file:PATH; or none: no election, every replica runs
    /// the program; deprecated: configmap, endpoints, configmap+lease, endpoints+lease [default: kubernetes in a Pod, file elsewhere]
    #[arg(long, env = "SOLOIST_STORE", value_name = "STORE")]
    pub(crate) store: Option<StoreChoice>,
    /// The lease's namespace [default: $NAMESPACE, $POD_NAMESPACE, the service account's, the context's]
    #[arg(long, env = "SOLOIST_NAMESPACE")]
    pub(crate) namespace: Option<String>,
    /// A kubeconfig file [default: $KUBECONFIG, the Pod's service account, ~/.kube/config]
    #[arg(long, env = "SOLOIST_KUBECONFIG", value_name = "PATH")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// A context of the kubeconfig instead of its current one
    #[arg(long, env = "SOLOIST_CONTEXT")]
    pub(crate) context: Option<String>,
    /// This replica's name in the lease [default: $POD_NAME, or the host's name and a random part]
    #[arg(long, env = "SOLOIST_IDENTITY")]
    pub(crate) identity: Option<String>,
    /// Run the program to its end, once; release the lease and exit with its code
    #[arg(long, env = "SOLOIST_ONCE", value_parser = BoolishValueParser::new())]
    pub(crate) once: bool,
    /// Run the program as this user, by name or number; takes root with CAP_SETUID, CAP_SETGID and CAP_KILL [default: our own]
    #[arg(long, env = "SOLOIST_USER")]
    pub(crate) user: Option<String>,
    /// Run the program in this group, by name or number [default: the user's]
    #[arg(long, env = "SOLOIST_GROUP")]
    pub(crate) group: Option<String>,
    /// Give up, with exit code 4, if we have not led after this long
    #[arg(long, env = "SOLOIST_WAIT", value_parser = duration)]
    pub(crate) wait: Option<Duration>,
    /// Answer probes (/livez, /readyz, /startupz), /leader, /status and /metrics by HTTP at IP:PORT, or :PORT for all addresses
    #[arg(long, env = "SOLOIST_LISTEN", value_name = "ADDR")]
    pub(crate) listen: Option<ListenAddress>,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub(crate) command: Vec<OsString>,

    #[command(flatten)]
    pub(crate) etcd: EtcdArgs,
    #[command(flatten)]
    pub(crate) timings: TimingArgs,
    #[command(flatten)]
    pub(crate) stopping: StopArgs,
    #[command(flatten)]
    pub(crate) health: HealthArgs,
    #[command(flatten)]
    pub(crate) pod: PodArgs,
    #[command(flatten)]
    pub(crate) log: LogArgs,
}

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Pod")]
pub(crate) struct PodArgs {
    /// Label this replica's Pod soloist.dev/role=leader or standby, so that a Service can select the leader; takes the right to patch Pods
    #[arg(long, env = "SOLOIST_LABEL_ROLE", value_parser = BoolishValueParser::new())]
    pub(crate) label_role: bool,
    /// Hand over to a ready standby on another node when this one is cordoned or tainted for deletion, before the eviction comes; takes the
    /// rights to get and list Pods, and to get and watch nodes
    #[arg(long, env = "SOLOIST_LEAVE_CORDONED_NODE", value_parser = BoolishValueParser::new())]
    pub(crate) leave_cordoned_node: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Lease")]
pub(crate) struct TimingArgs {
    /// Timings that fit together: lease, renew deadline, retry period
    #[arg(long, env = "SOLOIST_PRESET", default_value = "standard")]
    pub(crate) preset: PresetArg,
    /// How long a lease lasts, in whole seconds [default: the preset's]
    #[arg(long, env = "SOLOIST_LEASE_DURATION", value_parser = duration, value_name = "DURATION")]
    pub(crate) lease_duration: Option<Duration>,
    /// Without a renewal for this long, the child is asked to stop [default: the preset's]
    #[arg(long, env = "SOLOIST_RENEW_DEADLINE", value_parser = duration, value_name = "DURATION")]
    pub(crate) renew_deadline: Option<Duration>,
    /// The pause between tries when the store fails [default: the preset's]
    #[arg(long, env = "SOLOIST_RETRY_PERIOD", value_parser = duration, value_name = "DURATION")]
    pub(crate) retry_period: Option<Duration>,
    /// What a lost lease means for the child
    #[arg(long, env = "SOLOIST_ON_LOSS", default_value = "strict")]
    pub(crate) on_loss: OnLossArg,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum PresetArg {
    /// 15s, 10s, 2s
    Standard,
    /// 10s, 8s, 1s
    HighAvailability,
    /// 60s, 45s, 5s
    LowLoad,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum OnLossArg {
    /// The child is dead before the lease ends
    Strict,
    /// The child has its whole stop timeout; the next leader's may run beside it
    Graceful,
}

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Stopping")]
pub(crate) struct StopArgs {
    /// The Pod's terminationGracePeriodSeconds; the timeouts below follow from it
    #[arg(long, env = "SOLOIST_GRACE_PERIOD", value_parser = duration, default_value = "30s", value_name = "DURATION")]
    pub(crate) grace_period: Duration,
    /// What the kubelet gives the Pod where nobody deletes it, in a node's shutdown or an eviction, if that is less; needs the right to
    /// get Pods
    #[arg(long, env = "SOLOIST_KUBELET_GRACE_PERIOD", value_parser = duration, value_name = "DURATION")]
    pub(crate) kubelet_grace_period: Option<Duration>,
    /// What the Pod's preStop hook takes of it
    #[arg(long, env = "SOLOIST_PRESTOP", value_parser = duration, default_value = "0s", value_name = "DURATION")]
    pub(crate) prestop: Duration,
    /// From the stop signal until the child's tree is killed [default: grace period - 5s]
    #[arg(long, env = "SOLOIST_STOP_TIMEOUT", value_parser = duration, value_name = "DURATION")]
    pub(crate) stop_timeout: Option<Duration>,
    /// The signal that asks the child to end. As SIGTERM and SIGINT do, it asks soloist to stop
    #[arg(
        long,
        env = "SOLOIST_STOP_SIGNAL",
        default_value = "TERM",
        value_name = "SIGNAL",
        value_parser = crate::signals::can_stop
    )]
    pub(crate) stop_signal: Signal,
    /// Who gets it; what else is left of the tree gets it when the child itself has ended
    #[arg(long, env = "SOLOIST_STOP_TO", default_value = "group")]
    pub(crate) stop_to: StopToArg,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum StopToArg {
    /// The child's process group
    Group,
    /// The child alone, which ends its workers itself
    Child,
}

impl From<StopToArg> for StopTo {
    fn from(to: StopToArg) -> Self {
        match to {
            StopToArg::Group => Self::Group,
            StopToArg::Child => Self::Child,
        }
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Health and restarts")]
pub(crate) struct HealthArgs {
    /// When the child counts as up: started, notify (READY=1), or a probe that passes: exec:COMMAND, tcp:HOST:PORT,
    /// http://HOST:PORT/PATH, grpc:HOST:PORT[/SERVICE]
    #[arg(
        long,
        env = "SOLOIST_READY",
        default_value = "started",
        value_name = "HOW"
    )]
    pub(crate) ready: Ready,
    /// It must be up after this long, else another replica may try
    #[arg(long, env = "SOLOIST_START_LIMIT", value_parser = duration, default_value = "60s", value_name = "DURATION")]
    pub(crate) start_limit: Duration,
    /// How its health is checked while it is up: none, notify (WATCHDOG=1), or a probe as above
    #[arg(
        long,
        env = "SOLOIST_HEALTH",
        default_value = "none",
        value_name = "HOW"
    )]
    pub(crate) health: Health,
    /// The pause between checks
    #[arg(long, env = "SOLOIST_HEALTH_INTERVAL", value_parser = duration, default_value = "5s", value_name = "DURATION")]
    pub(crate) health_interval: Duration,
    /// A check that takes longer has failed
    #[arg(long, env = "SOLOIST_HEALTH_TIMEOUT", value_parser = duration, default_value = "1s", value_name = "DURATION")]
    pub(crate) health_timeout: Duration,
    /// So many failures in a row, and something is done
    #[arg(long, env = "SOLOIST_HEALTH_THRESHOLD", default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) health_threshold: u32,
    /// What is done about a child that is not well
    #[arg(long, env = "SOLOIST_ON_UNHEALTHY", default_value = "restart")]
    pub(crate) on_unhealthy: OnUnhealthyArg,
    /// Restarts within the window, beyond which another replica may try
    #[arg(
        long,
        env = "SOLOIST_RESTART_LIMIT",
        default_value_t = 5,
        value_name = "N"
    )]
    pub(crate) restart_limit: u32,
    /// The time over which restarts are counted
    #[arg(long, env = "SOLOIST_RESTART_WINDOW", value_parser = duration, default_value = "5m", value_name = "DURATION")]
    pub(crate) restart_window: Duration,
    /// After giving the lease away, stay out for this long
    #[arg(long, env = "SOLOIST_COOL_DOWN", value_parser = duration, default_value = "30s", value_name = "DURATION")]
    pub(crate) cool_down: Duration,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum OnUnhealthyArg {
    /// Stop it in order and start it again
    Restart,
    /// Stop it in order and let another replica lead
    StepDown,
}

/// When the child counts as up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ready {
    Started,
    Notify,
    Probe(Probe),
}

impl std::str::FromStr for Ready {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "started" => Ok(Self::Started),
            "notify" => Ok(Self::Notify),
            probe => Ok(Self::Probe(probe.parse()?)),
        }
    }
}

/// How its health is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    None,
    Notify,
    Probe(Probe),
}

impl std::str::FromStr for Health {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::None),
            "notify" => Ok(Self::Notify),
            probe => Ok(Self::Probe(probe.parse()?)),
        }
    }
}

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Logging")]
pub(crate) struct LogArgs {
    /// How the log is written, to standard error
    #[arg(long, env = "SOLOIST_LOG", default_value = "text")]
    pub(crate) log: LogFormat,
    /// What is logged, as `info` or `soloist=debug`
    #[arg(
        long,
        env = "SOLOIST_LOG_LEVEL",
        default_value = "info",
        value_name = "FILTER"
    )]
    pub(crate) log_level: Filter,
    /// Say this often who leads; 0s for never
    #[arg(long, env = "SOLOIST_LOG_STATUS", value_parser = duration, default_value = "1m", value_name = "DURATION")]
    pub(crate) log_status: Duration,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people
    Text,
    /// One JSON object a line
    Json,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::definition(false).debug_assert();
        Cli::definition(true).debug_assert();
    }

    #[test]
    fn a_flag_without_a_value_is_read_from_its_variable_too() {
        let read = |flag: &str| {
            let line = ["soloist run", flag, "--", "program"].map(str::to_owned);
            Cli::run_elsewhere(line.to_vec()).map(|args| args.pod.label_role)
        };
        for (flag, expected) in [
            ("--label-role", true),
            ("--label-role=true", true),
            ("--label-role=1", true),
            ("--label-role=false", false),
            ("--once", false),
        ] {
            assert_eq!(read(flag).unwrap(), expected, "{flag}");
        }
        assert!(read("--label-role=perhaps").is_err());
    }

    #[test]
    fn every_flag_of_run_has_a_variable() {
        let variables = Cli::variables();
        let command = Cli::command();
        let run = command.find_subcommand("run").unwrap();
        let flags = run.get_arguments().filter_map(clap::Arg::get_long);
        for flag in flags.filter(|flag| *flag != "help") {
            let name = format!("SOLOIST_{}", flag.replace('-', "_").to_uppercase());
            assert!(variables.contains(&name.clone().into()), "{name}");
        }
    }
}
