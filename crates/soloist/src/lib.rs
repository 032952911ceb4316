//! The program `soloist`, as a library: for the programs that test it under their own name, and for those that read durations as
//! it does. There is nothing else to call.

mod child;
mod cli;
pub mod duration;
mod logging;
mod notify;
mod probe;
mod run;
mod settings;
mod signals;
mod store;

use std::process::ExitCode;

use clap::Parser;
use soloist_elector::StoreError;

/// The configuration is bad; clap uses the same.
const BAD_CONFIGURATION: u8 = 2;

/// The lease store will not have us, whatever we try.
const REFUSED: u8 = 3;

/// The whole program: reads the command line, runs, and says how it ended.
///
/// Must be the first thing that the process does: the child's guard is this very program, started anew.
#[must_use]
pub fn main() -> ExitCode {
    soloist_process::guard::run_if_guard();
    let cli::Command::Run(args) = cli::Cli::parse().command;
    let settings = match settings::Settings::try_from(args) {
        Ok(settings) => settings,
        Err(error) => {
            eprintln!("soloist: {error:#}");
            return ExitCode::from(BAD_CONFIGURATION);
        }
    };
    logging::start(&settings.log);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let outcome = runtime
        .map_err(anyhow::Error::from)
        .and_then(|runtime| runtime.block_on(run::run(settings)));
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::from(match error.downcast_ref() {
                Some(StoreError::Refused(_)) => REFUSED,
                _ => BAD_CONFIGURATION,
            })
        }
    }
}
