//! The program `soloist`, as a library: for the programs that test it under their own name, and for those that read durations as
//! it does. There is nothing else to call.

mod announce;
mod child;
mod cli;
mod command;
mod control;
mod cordon;
mod delivery;
mod demo;
mod doctor;
pub mod duration;
mod ending;
mod etcd;
mod health;
mod heirs;
mod http1;
mod in_cluster;
mod inject;
mod install;
mod listener;
mod logging;
#[cfg(test)]
mod man_pages;
mod manifests;
mod notices;
mod notify;
mod observers;
mod own_pod;
mod prestop;
mod probe;
mod report;
mod run;
mod service_manager;
mod serving;
mod settings;
mod signals;
mod socket_folder;
mod start;
mod status_line;
mod store;
mod switch;
mod term_summary;
mod terminal;
mod termination_message;
mod trees;
mod trial;
mod version;
mod web_page;
mod workload_labels;

use std::fmt::Display;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use soloist_elector::StoreError;
use soloist_elector::kubernetes::ConnectError;
use soloist_process::{HeldSignals, StillThere, guard, hold_signals, kill_abandoned_trees};
use tokio::runtime::{Builder, Runtime};
use tracing::error;

use crate::cli::{Cli, Command, RunArgs};
use crate::demo::{DemoArgs, DemoPartArgs};
use crate::doctor::DoctorArgs;
use crate::inject::Injected;
use crate::listener::ListenError;
use crate::logging::DroppedLines;
use crate::run::LostSight;
use crate::settings::Settings;
use crate::trial::TryArgs;

/// `soloist doctor` has found something that is broken.
const UNHEALTHY: u8 = 1;

/// What was asked for could not be done.
const FAILED: u8 = 1;

/// The configuration is bad; clap uses the same.
const BAD_CONFIGURATION: u8 = 2;

/// The lease store will not have us, whatever we try.
const REFUSED: u8 = 3;

/// Something that should not happen has happened: the system would not, or a bug.
const INTERNAL_ERROR: u8 = 6;

/// The child's tree may live on: nobody saw it die.
const LOST_SIGHT: u8 = 1;

/// For so long we kill what a failure has left, and no longer: as the first process of a container we end all of it by exiting.
const LONGEST_SWEEP: Duration = Duration::from_secs(5);

/// The whole program: reads the command line, runs, and says how it ended.
///
/// Must be the first thing that the process does: the child's guard is this very program, started anew.
#[must_use]
pub fn main() -> ExitCode {
    guard::run_if_guard();
    let held = hold_signals();
    // It holds credentials, and its child may be the same user. Should the kernel not want to, all else works.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    match Cli::read().command {
        Command::Run(args) => run(*args, held),
        Command::Manifests(args) => printed(args.print()),
        Command::Inject(args) => {
            held.release([]);
            injected(args.inject_stdin())
        }
        Command::Doctor(args) => {
            held.release([]);
            examine(&args)
        }
        Command::Try(args) => try_out(*args, held),
        Command::Demo(args) => demonstrate(&args, held),
        Command::DemoPart(args) => demo_part(args, held),
        Command::Completions { shell } => printed(Ok(Cli::completions(shell))),
        Command::Install { path } => install(&path),
        Command::Handover(args) => switched(held, args.order()),
        Command::Pause(args) => switched(held, args.order()),
        Command::Resume(args) => switched(held, args.order()),
        Command::Status(args) => switched(held, args.show()),
        Command::Prestop(args) => switched(held, args.run()),
    }
}

fn injected(injected: anyhow::Result<Injected>) -> ExitCode {
    for note in injected.iter().flat_map(|injected| &injected.notes) {
        let _ = writeln!(std::io::stderr(), "soloist: {note}");
    }
    printed(injected.map(|injected| injected.text))
}

fn examine(args: &DoctorArgs) -> ExitCode {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => return complain(INTERNAL_ERROR, format_args!("{error:#}")),
    };
    let findings = runtime.block_on(args.examine());
    runtime.shutdown_background();
    match findings {
        Err(error) => complain(BAD_CONFIGURATION, format_args!("{error:#}")),
        Ok(findings) => {
            let printed = printed(Ok(findings.text));
            match findings.is_well {
                true => printed,
                false => ExitCode::from(UNHEALTHY),
            }
        }
    }
}

/// Whatever interrupts it, nothing of the program is left.
fn try_out(args: TryArgs, held: HeldSignals) -> ExitCode {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => return complain(INTERNAL_ERROR, format_args!("{error:#}")),
    };
    let outcome = runtime.block_on(args.run(held));
    let swept = kill_abandoned_trees(LONGEST_SWEEP);
    runtime.shutdown_background();
    if let Err(left) = swept {
        return complain(LOST_SIGHT, format_args!("{left}: end it by hand"));
    }
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(error) => complain(BAD_CONFIGURATION, format_args!("{error:#}")),
    }
}

fn demonstrate(args: &DemoArgs, held: HeldSignals) -> ExitCode {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => return complain(INTERNAL_ERROR, format_args!("{error:#}")),
    };
    let outcome = runtime.block_on(args.run(held));
    runtime.shutdown_background();
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(error) => complain(BAD_CONFIGURATION, format_args!("{error:#}")),
    }
}

fn demo_part(args: DemoPartArgs, held: HeldSignals) -> ExitCode {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => return complain(INTERNAL_ERROR, format_args!("{error:#}")),
    };
    match runtime.block_on(args.run(held)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(FAILED, format_args!("{error:#}")),
    }
}

/// Orders something, or looks.
fn switched(held: HeldSignals, work: impl Future<Output = anyhow::Result<()>>) -> ExitCode {
    held.release([]);
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => return complain(INTERNAL_ERROR, format_args!("{error:#}")),
    };
    let done = runtime.block_on(work);
    runtime.shutdown_background();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(switch::code_of(&error), format_args!("{error:#}")),
    }
}

fn run(args: RunArgs, held: HeldSignals) -> ExitCode {
    let settings = match Settings::try_from(args) {
        Ok(settings) => settings,
        Err(error) => return complain(BAD_CONFIGURATION, format_args!("{error:#}")),
    };
    // Written to the end when this is over, whatever ends it.
    let log = match logging::start(&settings.log) {
        Ok(log) => log,
        Err(error) => {
            return complain(
                INTERNAL_ERROR,
                format_args!("no thread for the log: {error}"),
            );
        }
    };
    ExitCode::from(execute(settings, held, log.dropped_lines()))
}

/// A text for standard output. Whoever closes it early, as `head` does, has enough.
fn printed(text: anyhow::Result<String>) -> ExitCode {
    match text {
        Ok(text) => match std::io::stdout().write_all(text.as_bytes()) {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                complain(INTERNAL_ERROR, format_args!("standard output: {error}"))
            }
            Ok(()) | Err(_) => ExitCode::SUCCESS,
        },
        Err(error) => complain(BAD_CONFIGURATION, format_args!("{error:#}")),
    }
}

fn install(path: &Path) -> ExitCode {
    match install::install(path) {
        Ok(target) => {
            let _ = writeln!(std::io::stdout(), "{}", target.display());
            ExitCode::SUCCESS
        }
        Err(error) => complain(FAILED, format_args!("{error:#}")),
    }
}

/// There is no log yet.
fn complain(code: u8, what: impl Display) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "soloist: {what}");
    ExitCode::from(code)
}

fn execute(settings: Settings, held: HeldSignals, dropped_lines: DroppedLines) -> u8 {
    // The choice of a program, not of a library: without one rustls panics if some crate brings a second provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(error) => {
            error!("{error:#}");
            return INTERNAL_ERROR;
        }
    };
    let run = || runtime.block_on(start::run(settings, held, dropped_lines));
    let outcome = catch_unwind(AssertUnwindSafe(run));
    let code = code_of(outcome, || kill_abandoned_trees(LONGEST_SWEEP));
    // A look-up of a name, a lock on a file or a credential plugin may be under way in a thread: nobody waits for it.
    runtime.shutdown_background();
    code
}

/// To make one takes a handful of descriptors. It panics where some of them cannot be had.
fn runtime() -> anyhow::Result<Runtime> {
    const ADVICE: &str = "no runtime: soloist needs some file descriptors, see `ulimit -n`";
    let build = || Builder::new_current_thread().enable_all().build();
    match catch_unwind(build) {
        Ok(built) => built.context(ADVICE),
        // The log has the panic.
        Err(_) => Err(anyhow!(ADVICE)),
    }
}

/// Who has failed may have left a tree behind, and a dead guard kills nobody: nothing of it is left when we exit.
fn code_of(
    outcome: thread::Result<anyhow::Result<u8>>,
    kill_trees: impl FnOnce() -> Result<(), StillThere>,
) -> u8 {
    let code = match outcome {
        Ok(Ok(code)) => return code,
        Ok(Err(error)) => {
            error!("{error:#}");
            code_of_error(&error)
        }
        // The log has it.
        Err(_) => INTERNAL_ERROR,
    };
    if let Err(left) = kill_trees() {
        error!(
            "{left}. It may run beside the next child, here or (once the lease has run out, or at once if that is on this machine) that \
             of the next leader: end it by hand"
        );
    }
    code
}

fn code_of_error(error: &anyhow::Error) -> u8 {
    match error.downcast_ref() {
        Some(StoreError::Refused(_)) => REFUSED,
        _ if error.is::<LostSight>() => LOST_SIGHT,
        _ if error.is::<ConnectError>() || error.is::<ListenError>() => BAD_CONFIGURATION,
        _ => INTERNAL_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// The code, and whether trees were killed.
    fn ending(outcome: thread::Result<anyhow::Result<u8>>) -> (u8, bool) {
        let swept = Cell::new(false);
        let code = code_of(outcome, || {
            swept.set(true);
            Ok(())
        });
        (code, swept.get())
    }

    #[test]
    fn whoever_fails_kills_what_it_may_have_left_behind() {
        assert_eq!(ending(Ok(Err(LostSight.into()))), (LOST_SIGHT, true));
        assert_eq!(ending(Ok(Err(anyhow!("no timer")))), (INTERNAL_ERROR, true));
        assert_eq!(ending(Err(Box::new("a panic"))), (INTERNAL_ERROR, true));
    }

    #[test]
    fn who_has_ended_in_order_has_left_nothing() {
        assert_eq!(ending(Ok(Ok(7))), (7, false));
    }
}
