//! The programs that are measured.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, ensure};

const SOLOIST: [&str; 2] = ["-p", "soloist"];
const CHILD: [&str; 4] = ["-p", "bench", "--bin", "bench-child"];

/// Where they are.
#[derive(Debug)]
pub(crate) struct Programs {
    pub(crate) soloist: PathBuf,
    pub(crate) child: PathBuf,
}

impl Programs {
    /// They are next to this program: under `cargo run` built first, else as they are.
    pub(crate) fn find(soloist: Option<PathBuf>) -> anyhow::Result<Self> {
        if soloist.is_none() {
            build(&SOLOIST)?;
        }
        build(&CHILD)?;
        let own = env::current_exe().context("where this program is")?;
        let programs = Self {
            soloist: soloist.unwrap_or_else(|| own.with_file_name("soloist")),
            child: own.with_file_name("bench-child"),
        };
        for (program, how) in [(&programs.soloist, &SOLOIST[..]), (&programs.child, &CHILD)] {
            ensure!(
                program.is_file(),
                "{} is missing: `cargo build --release {}`",
                program.display(),
                how.join(" "),
            );
        }
        Ok(programs)
    }
}

fn build(what: &[&str]) -> anyhow::Result<()> {
    let (Some(cargo), Some(package)) = (env::var_os("CARGO"), env::var_os("CARGO_MANIFEST_DIR"))
    else {
        return Ok(());
    };
    // One at a time: built together, one would get the features that only the other asked for.
    let status = Command::new(cargo)
        .args(["build", "--release", "--quiet"])
        .args(what)
        .current_dir(package)
        .status()
        .context("cargo cannot be started")?;
    ensure!(
        status.success(),
        "`cargo build --release {}` has failed",
        what.join(" ")
    );
    Ok(())
}
