//! The files of a release: an archive, its checksum, and what names both to krew and Homebrew.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use sha2::{Digest, Sha256};

use crate::program::ensure_static;
use crate::tar::Tar;

/// What the files name.
#[derive(Clone, Copy, Debug)]
pub struct Release<'a> {
    /// Without a `v`.
    pub version: &'a str,
    /// The folder that the archive will be in.
    pub url: &'a str,
    /// The project's page.
    pub homepage: &'a str,
    /// Of the files in the archive, in seconds since 1970: the commit's.
    pub time: u64,
}

/// Writes them all; their paths.
pub fn write(
    release: &Release<'_>,
    checkout: &Path,
    program: Vec<u8>,
    out: &Path,
) -> anyhow::Result<Vec<PathBuf>> {
    ensure_static(&program)?;
    let archive = gzip(&archive(release, checkout, program)?)?;
    let name = format!("soloist-{}-linux-amd64.tar.gz", release.version);
    let sha256 = hex(&Sha256::digest(&archive));
    let filled = |template: &str| {
        template
            .replace("{{version}}", release.version)
            .replace("{{url}}", &format!("{}/{name}", release.url))
            .replace("{{homepage}}", release.homepage)
            .replace("{{sha256}}", &sha256)
    };
    let template = |path: &str| read(&checkout.join("deploy/release").join(path));
    let text = |path: &str| anyhow::Ok(filled(&String::from_utf8(template(path)?)?));
    let files = [
        (
            "SHA256SUMS".to_owned(),
            format!("{sha256}  {name}\n").into_bytes(),
        ),
        ("soloist.yaml".to_owned(), text("krew.yaml")?.into_bytes()),
        ("soloist.rb".to_owned(), text("homebrew.rb")?.into_bytes()),
        (name, archive),
    ];
    fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    let write = |(name, content): &(String, Vec<u8>)| {
        let path = out.join(name);
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    };
    files.iter().map(write).collect()
}

/// The program at the top, as krew and Homebrew take it from there.
fn archive(release: &Release<'_>, checkout: &Path, program: Vec<u8>) -> anyhow::Result<Vec<u8>> {
    let mut tar = Tar::new(release.time);
    tar.file("soloist", 0o755, &program);
    for name in ["LICENSE-APACHE", "LICENSE-MIT", "README.md"] {
        tar.file(name, 0o644, &read(&checkout.join(name))?);
    }
    let folder = checkout.join("deploy/man");
    let entries =
        fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut pages: Vec<PathBuf> = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<std::io::Result<_>>()?;
    pages.sort();
    for page in pages {
        let name = page
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        tar.file(&format!("man/man1/{name}"), 0o644, &read(&page)?);
    }
    Ok(tar.finish())
}

fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

/// Without a name and a time, so that it is the same each time.
fn gzip(content: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut gzip = Command::new("gzip")
        .args(["-9", "-n"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start gzip")?;
    let mut input = gzip.stdin.take().context("gzip has no input")?;
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(move || input.write_all(content));
        let output = gzip.wait_with_output();
        (writer.join(), output)
    });
    let (Ok(sent), output) = written else {
        anyhow::bail!("the thread that feeds gzip has failed");
    };
    sent.context("gzip does not read")?;
    let output = output.context("gzip")?;
    ensure!(
        output.status.success(),
        "gzip has failed ({})",
        output.status
    );
    Ok(output.stdout)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
