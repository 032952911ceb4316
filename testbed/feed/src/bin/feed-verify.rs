//! Says whether a worker's output holds every message once, in order.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use feed::{payload, verify};

/// Reads a worker's output and says whether every message stands in it once, in order and with the right payload.
///
/// The exit code is 0 if so, 1 if not, and 2 if the output cannot be read.
#[derive(Parser)]
struct Arguments {
    /// The file that the worker wrote.
    output: PathBuf,
    /// The last position that must be there; more may follow. Without it, the last that is there.
    #[arg(long)]
    messages: Option<u64>,
    /// The server's seed.
    #[arg(long, default_value_t = payload::DEFAULT_SEED)]
    seed: u64,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match verify::file(&arguments.output, arguments.seed, arguments.messages) {
        Ok(report) => {
            println!("{report}");
            ExitCode::from(u8::from(!report.is_right()))
        }
        Err(error) => {
            let output = arguments.output.display();
            eprintln!("feed-verify: cannot read {output}: {error}");
            ExitCode::from(2)
        }
    }
}
