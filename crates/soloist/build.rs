//! Which commit this is, for `soloist --version`: from `SOLOIST_BUILD_COMMIT`, else from git, else unknown, as in a tarball.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=SOLOIST_BUILD_COMMIT");
    let given = std::env::var("SOLOIST_BUILD_COMMIT").ok();
    let commit = given.filter(|commit| !commit.is_empty()).or_else(from_git);
    let commit = commit.unwrap_or_else(|| "unknown".to_owned());
    println!("cargo::rustc-env=SOLOIST_BUILD_COMMIT={commit}");
}

/// Of this very repository, not of one that an unpacked tarball happens to lie in.
fn from_git() -> Option<String> {
    git(&["ls-files", "--error-unmatch", "build.rs"])?;
    for path in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", path])?;
        if Path::new(&path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
