//! A workspace of its own under the target directory, in which broken rules are built and played.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::sources::{FOLDERS, Sources, write_if_other};

/// Builds take longer than plays: what is built once is hardly optimised, what is built for every mutant only as far as it has
/// changed since the one before.
const PROFILE: &str = r#"
[profile.release]
codegen-units = 16
incremental = true
opt-level = 3
[profile.release.package."*"]
opt-level = 0
[profile.release.package.rand_pcg]
opt-level = 3
"#;

const PLAYER_MANIFEST: &str = r#"[package]
name = "play"
edition.workspace = true

[dependencies]
sim = { path = "../sim" }
"#;

const PLAYER: &str = include_str!("../examples/play.rs");

/// A folder with the sources, a manifest and a target directory.
pub(crate) struct Copy {
    folder: PathBuf,
}

/// What became of a build.
pub(crate) enum Built {
    /// It can be played.
    Player {
        /// The program.
        path: PathBuf,
        /// How long it took to build.
        took: Duration,
    },
    /// The compiler's own words.
    Refused(String),
}

/// What became of the tests.
pub(crate) enum Tested {
    /// They ran.
    Ran {
        /// Those that failed.
        failed: Vec<String>,
        /// How long they took to build.
        took: Duration,
    },
    /// The compiler's own words.
    Refused(String),
}

/// A schedule that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// Plays it again.
    pub(crate) seed: u64,
    /// The violation's.
    pub(crate) name: String,
}

impl Copy {
    /// Prepares a copy of the workspace at `root`. What is left of an earlier one is built upon, but not its sources:
    /// files may have been removed since.
    pub(crate) fn new(root: &Path, folder: PathBuf) -> Result<Self> {
        for sources in FOLDERS {
            let old = folder.join(sources);
            if old.exists() {
                std::fs::remove_dir_all(&old)
                    .with_context(|| format!("cannot remove {}", old.display()))?;
            }
        }
        let manifest = std::fs::read_to_string(root.join("Cargo.toml"))
            .context("cannot read the workspace's Cargo.toml")?;
        write_if_other(&folder.join("Cargo.toml"), &workspace_manifest(&manifest))?;
        write_if_other(&folder.join("play/Cargo.toml"), PLAYER_MANIFEST)?;
        write_if_other(&folder.join("play/src/main.rs"), PLAYER)?;
        // Cargo strikes out what the copy does not need; the versions stay.
        std::fs::copy(root.join("Cargo.lock"), folder.join("Cargo.lock"))
            .context("cannot copy Cargo.lock")?;
        Ok(Self { folder })
    }

    /// Builds these sources, to be played.
    pub(crate) fn build(&self, sources: &Sources) -> Result<Built> {
        sources.write(&self.folder)?;
        let began = Instant::now();
        let output = self.cargo(&["build", "--release", "--quiet", "--package", "play"])?;
        Ok(match output.status.success() {
            true => Built::Player {
                path: self.target().join("release/play"),
                took: began.elapsed(),
            },
            false => Built::Refused(words(&output.stderr)),
        })
    }

    /// Builds these sources and runs the tests of the rules.
    pub(crate) fn test(&self, sources: &Sources) -> Result<Tested> {
        sources.write(&self.folder)?;
        let began = Instant::now();
        let build = self.cargo(&["test", "--quiet", "--package", "soloist-core", "--no-run"])?;
        if !build.status.success() {
            return Ok(Tested::Refused(words(&build.stderr)));
        }
        let took = began.elapsed();
        let run = self.cargo(&["test", "--package", "soloist-core", "--lib"])?;
        let failed = failed_tests(&words(&run.stdout));
        ensure!(
            run.status.success() == failed.is_empty(),
            "the tests ended with {}, and {} failed",
            run.status,
            failed.len()
        );
        Ok(Tested::Ran { failed, took })
    }

    fn cargo(&self, arguments: &[&str]) -> Result<Output> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        Command::new(cargo)
            .args(arguments)
            .arg("--target-dir")
            .arg(self.target())
            .current_dir(&self.folder)
            .env_remove("CARGO_INCREMENTAL")
            .output()
            .context("cannot start cargo")
    }

    fn target(&self) -> PathBuf {
        self.folder.join("target")
    }
}

fn words(output: &[u8]) -> String {
    String::from_utf8_lossy(output).into_owned()
}

/// The names, without their modules, as the test runner prints them.
fn failed_tests(output: &str) -> Vec<String> {
    let failed = |line: &str| {
        let path = line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
        path.rsplit("::").next().map(str::to_owned)
    };
    output.lines().filter_map(failed).collect()
}

/// Plays schedules until one fails in one of the expected ways. Everything that failed, in order.
pub(crate) fn play(player: &Path, seeds: u64, expected: &[String]) -> Result<Vec<Finding>> {
    let output = Command::new(player)
        .arg(seeds.to_string())
        .args(expected)
        .output()
        .with_context(|| format!("cannot start {}", player.display()))?;
    ensure!(
        output.status.success(),
        "{} ended with {}",
        player.display(),
        output.status
    );
    read_findings(&output)
}

fn read_findings(output: &Output) -> Result<Vec<Finding>> {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines()
        .map(|line| match line.split_once(' ') {
            Some((seed, name)) => Ok(Finding {
                seed: seed.parse()?,
                name: name.to_owned(),
            }),
            None => bail!("the player said \"{line}\""),
        })
        .collect()
}

/// The workspace's manifest, with other members and another profile: the dependencies, editions and lints are the same.
fn workspace_manifest(original: &str) -> String {
    let mut manifest = String::from(
        "[workspace]\nresolver = \"3\"\nmembers = [\"crates/core\", \"sim\", \"play\"]\n",
    );
    let mut kept = false;
    for line in original.lines() {
        if line.starts_with('[') {
            kept = line.starts_with("[workspace.");
        }
        if kept {
            manifest.push_str(line);
            manifest.push('\n');
        }
    }
    manifest + PROFILE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_test_is_known_by_its_name() {
        let output = "\
running 2 tests
test election::tests::row_1 ... ok
test election::tests::row_2 ... FAILED

failures:
    election::tests::row_2
";
        assert_eq!(failed_tests(output), ["row_2"]);
    }

    #[test]
    fn the_copys_manifest_keeps_what_the_members_inherit_and_nothing_else() {
        let original = "\
[workspace]
members = [\"bench\"]

[workspace.package]
edition = \"2024\"
[workspace.lints.rust]
missing_docs = \"warn\"
[profile.release]
lto = \"fat\"
";
        let manifest = workspace_manifest(original);
        let inherited = "[workspace.package]\nedition = \"2024\"\n[workspace.lints.rust]\nmissing_docs = \"warn\"\n";
        assert!(manifest.contains(inherited), "{manifest}");
        assert!(!manifest.contains("bench") && !manifest.contains("lto"));
    }
}
