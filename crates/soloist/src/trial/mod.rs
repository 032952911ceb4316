//! `soloist try`: takes a program through what soloist will do to it, and says what it did well and what not.

mod program;
mod survivors;
mod verdicts;

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use soloist_core::ids::Identity;
use soloist_process::{HeldSignals, Signal, Supervisor};

use crate::cli::{Cli, HealthArgs, RunArgs, StopArgs, TimingArgs};
use crate::doctor::Output;
use crate::duration::parse as duration;
use crate::report::{Report, Summary, Verdict};
use crate::settings::Settings;
use crate::signals::{self, Signalled};
use program::{End, Program, Start};

const SOMETHING_IS_BAD: u8 = 1;
const INTERRUPTED: u8 = 128;

const SUMMARY: Summary = Summary {
    well: "It can run under soloist",
    not_well: "It should be mended first",
};

const START: &str = "start";
const STOP: &str = "stop";
const LOST_LEASE: &str = "lost lease";
const KILL: &str = "kill";

/// Durations are written as 15s, 750ms or 1m30s.
#[derive(Debug, Args)]
pub(crate) struct TryArgs {
    /// Run the program as this user, by name or number; takes root with CAP_SETUID, CAP_SETGID and CAP_KILL [default: our own]
    #[arg(long, env = "SOLOIST_USER")]
    user: Option<String>,
    /// Run the program in this group, by name or number [default: the user's]
    #[arg(long, env = "SOLOIST_GROUP")]
    group: Option<String>,
    /// It is watched for this long after each start: one that ends meanwhile does not stay up
    #[arg(long, value_parser = duration, default_value = "2s", value_name = "DURATION")]
    settle: Duration,
    /// A program that does not heed the stop signal is waited for beyond the stop timeout, to say how long it takes
    #[arg(long, value_parser = duration, default_value = "60s", value_name = "DURATION")]
    patience: Duration,
    /// How the findings are written
    #[arg(long, default_value = "text", value_name = "FORMAT")]
    output: Output,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    command: Vec<OsString>,

    #[command(flatten)]
    timings: TimingArgs,
    #[command(flatten)]
    stopping: StopArgs,
    #[command(flatten)]
    health: HealthArgs,
}

impl TryArgs {
    /// The exit code.
    pub(crate) async fn run(self, held: HeldSignals) -> anyhow::Result<u8> {
        let (settle, patience, output) = (self.settle, self.patience, self.output);
        let settings = self.settings()?;
        let mut signals = signals::listen(settings.stop_signal, held)?;
        let stdout = part_streams().context("the standard streams")?;
        let trial = Trial {
            supervisor: Supervisor::new()?.with_timings(settings.policy.timings),
            identity: Identity::try_new("try")?,
            patience: patience.max(settings.policy.ladder.stop()),
            settle,
            settings,
        };
        let mut report = Report::default();
        let code = tokio::select! {
            tried = trial.run(&mut report) => tried?,
            signal = interruption(&mut signals) => {
                tell(&format!("interrupted by {signal}: the program is killed"));
                return Ok(INTERRUPTED + u8::try_from(signal.number()).unwrap_or_default());
            }
        };
        let text = match output {
            Output::Text => report.to_text(SUMMARY),
            Output::Json => report.to_json(),
        };
        // Whoever closes it early, as `head` does, has enough.
        let _ = File::from(stdout).write_all(text.as_bytes());
        Ok(code)
    }

    /// As `soloist run` would have them with the same flags.
    fn settings(self) -> anyhow::Result<Settings> {
        let line = [
            "soloist run",
            "--name",
            "try",
            "--store",
            "file:/unused",
            "--",
            "program",
        ];
        let run = Cli::run_elsewhere(line.map(str::to_owned).to_vec())?;
        Settings::try_from(RunArgs {
            user: self.user,
            group: self.group,
            timings: self.timings,
            stopping: self.stopping,
            health: self.health,
            command: self.command,
            ..run
        })
    }
}

/// Standard output is for the report alone: what the program prints goes to standard error. Its standard input is empty, as in a Pod.
fn part_streams() -> std::io::Result<OwnedFd> {
    let ours = rustix::io::fcntl_dupfd_cloexec(std::io::stdout(), 3)?;
    rustix::stdio::dup2_stdout(std::io::stderr())?;
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    Ok(ours)
}

/// There is no child that the others could be passed on to: it is killed at the end anyway.
async fn interruption(signals: &mut tokio::sync::mpsc::UnboundedReceiver<Signalled>) -> Signal {
    loop {
        match signals.recv().await {
            Some(Signalled::Stop(signal)) => return signal,
            Some(Signalled::PassOn(_)) => {}
            None => std::future::pending().await,
        }
    }
}

fn tell(what: &str) {
    let _ = writeln!(std::io::stderr(), "soloist: {what}");
}

struct Trial {
    supervisor: Supervisor,
    settings: Settings,
    identity: Identity,
    settle: Duration,
    patience: Duration,
}

impl Trial {
    async fn run(&self, report: &mut Report) -> anyhow::Result<u8> {
        tell("1/4: it is started, and asked to stop");
        let mut program = match self.start(START, report).await? {
            Ok(program) => program,
            Err(code) => {
                for group in [STOP, LOST_LEASE, KILL] {
                    let why = "it does not start".to_owned();
                    report.add(group, "it is tried", Verdict::Unknown(why));
                }
                return Ok(code);
            }
        };
        program.checks(&self.settings, report).await;
        let ending = program.end(End::Stop(self.patience)).await;
        verdicts::stop(&self.settings, &ending, report);

        tell("2/4: it is started again, and the lease is lost");
        if let Ok(mut program) = self.start(LOST_LEASE, report).await? {
            let grace = self.settings.policy.timings.loss_grace();
            let ending = program.end(End::Loss(grace)).await;
            verdicts::lost_lease(&self.settings, &ending, report);
        }

        tell("3/4: it is started again, and killed");
        if let Ok(mut program) = self.start(KILL, report).await? {
            let ending = program.end(End::Kill).await;
            verdicts::kill(&ending, report);

            tell("4/4: it is started after the kill");
            if let Ok(mut program) = self.start(KILL, report).await? {
                program.end(End::Kill).await;
            }
        }
        Ok(match report.is_well() {
            true => 0,
            false => SOMETHING_IS_BAD,
        })
    }

    /// A program that is up and stays so, or the exit code.
    async fn start(
        &self,
        group: &'static str,
        report: &mut Report,
    ) -> anyhow::Result<Result<Program, u8>> {
        let mut program = Program::start(&self.supervisor, &self.settings, &self.identity)?;
        let start = program.until_up(&self.settings, self.settle).await;
        verdicts::start(&self.settings, group, &start, report);
        Ok(match start {
            Start::Up(_) => Ok(program),
            Start::CannotRun(error) => Err(verdicts::code_of(error.failure)),
            Start::Ended { .. } => Err(SOMETHING_IS_BAD),
            Start::NotUp { .. } => {
                program.end(End::Kill).await;
                Err(SOMETHING_IS_BAD)
            }
        })
    }
}
