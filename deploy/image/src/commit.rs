//! What git knows of the commit.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};

/// In seconds since 1970.
///
/// # Errors
/// Where there is no git, or no commit.
pub fn commit_time(checkout: &Path) -> anyhow::Result<u64> {
    let time = commit(checkout, "%ct")?;
    time.parse().context("git gave no time of the commit")
}

/// In git's own format.
///
/// # Errors
/// Where there is no git, or no commit.
pub fn commit(checkout: &Path, format: &str) -> anyhow::Result<String> {
    let output = Command::new("git")
        .args(["log", "-1", &format!("--format={format}")])
        .current_dir(checkout)
        .output()
        .context("cannot start git, which knows the commit")?;
    if !output.status.success() {
        bail!(
            "git does not know the commit: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
