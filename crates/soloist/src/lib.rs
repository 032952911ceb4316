//! The program `soloist`, as a library: for the programs that test it under their own name, and for those that read durations as
//! it does. There is nothing else to call.

mod child;
mod cli;
mod command;
pub mod duration;
mod health;
mod install;
mod logging;
mod notices;
mod notify;
mod probe;
mod run;
mod settings;
mod signals;
mod start;
mod store;
mod trees;

use std::fmt::Display;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::ExitCode;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use soloist_elector::StoreError;
use soloist_elector::kubernetes::ConnectError;
use soloist_process::{HeldSignals, guard, hold_signals};
use tracing::error;

use crate::cli::{Cli, Command};
use crate::settings::Settings;

/// What was asked for could not be done.
const FAILED: u8 = 1;

/// The configuration is bad; clap uses the same.
const BAD_CONFIGURATION: u8 = 2;

/// The lease store will not have us, whatever we try.
const REFUSED: u8 = 3;

/// Something that should not happen has happened: the system would not, or a bug.
const INTERNAL_ERROR: u8 = 6;

/// The whole program: reads the command line, runs, and says how it ended.
///
/// Must be the first thing that the process does: the child's guard is this very program, started anew.
#[must_use]
pub fn main() -> ExitCode {
    guard::run_if_guard();
    let held = hold_signals();
    // It holds credentials, and its child may be the same user. Should the kernel not want to, all else works.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
    let args = match Cli::read().command {
        Command::Run(args) => *args,
        Command::Install { path } => return install(&path),
    };
    let settings = match Settings::try_from(args) {
        Ok(settings) => settings,
        Err(error) => return complain(BAD_CONFIGURATION, format_args!("{error:#}")),
    };
    // Written to the end when this is over, whatever ends it.
    let _log = match logging::start(&settings.log) {
        Ok(log) => log,
        Err(error) => {
            return complain(
                INTERNAL_ERROR,
                format_args!("no thread for the log: {error}"),
            );
        }
    };
    ExitCode::from(execute(settings, held))
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

fn execute(settings: Settings, held: HeldSignals) -> u8 {
    // The choice of a program, not of a library: without one rustls panics if some crate brings a second provider.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            error!("no runtime: {error}");
            return INTERNAL_ERROR;
        }
    };
    let run = || runtime.block_on(start::run(settings, held));
    let outcome = catch_unwind(AssertUnwindSafe(run));
    // A look-up of a name, a lock on a file or a credential plugin may be under way in a thread: nobody waits for it.
    runtime.shutdown_background();
    match outcome {
        Ok(Ok(code)) => code,
        Ok(Err(error)) => {
            error!("{error:#}");
            code_of(&error)
        }
        // The log has it.
        Err(_) => INTERNAL_ERROR,
    }
}

fn code_of(error: &anyhow::Error) -> u8 {
    match error.downcast_ref() {
        Some(StoreError::Refused(_)) => REFUSED,
        _ if error.is::<ConnectError>() => BAD_CONFIGURATION,
        _ => INTERNAL_ERROR,
    }
}
