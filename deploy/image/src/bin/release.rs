//! `release`: what a release consists of, from this checkout.

#![forbid(unsafe_code)]

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Parser;
use image::release::{self, Release};

/// Makes the files of a release: the static program with its manual pages as an archive, checksums, and the manifests of krew and Homebrew with
/// those checksums in them.
///
/// Nothing is published. For Linux on amd64 alone, which is what the image is made for. The same commit gives the same bytes with the same
/// toolchain and gzip.
#[derive(Debug, Parser)]
#[command(name = "release", version, max_term_width = 100)]
struct Arguments {
    /// Where to
    #[arg(long, value_name = "DIR", default_value = "target/release-files")]
    out: PathBuf,
    /// Where the archive will be, for the manifests of krew and Homebrew: https://HOST/…/releases/download/v0.1.0
    #[arg(long, value_name = "URL")]
    url: String,
    /// The project's page, for the same
    #[arg(long, value_name = "URL")]
    homepage: String,
    /// Take this program instead of building it
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .context("no checkout above this crate")?;
    let program = match &arguments.program {
        Some(program) => program.clone(),
        None => image::build_static(checkout)?.join("soloist"),
    };
    let content =
        fs::read(&program).with_context(|| format!("cannot read {}", program.display()))?;
    let release = Release {
        version: env!("CARGO_PKG_VERSION"),
        url: arguments.url.trim_end_matches('/'),
        homepage: &arguments.homepage,
        time: image::commit_time(checkout)?,
    };
    for path in release::write(&release, checkout, content, &arguments.out)? {
        println!("{}", path.display());
    }
    Ok(())
}
