//! The files of a release: what is in the archive, and that the manifests name it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use image::release::{Release, write};
use serde_json::Value;
use sha2::{Digest, Sha256};

const HOMEPAGE: &str = "https://example.com/soloist";
const URL: &str = "https://example.com/soloist/releases/download/v1.2.3";

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// An ELF file without segments, and so without an interpreter.
fn program() -> Vec<u8> {
    let mut program = vec![0; 64];
    program[..4].copy_from_slice(b"\x7fELF");
    program
}

fn release(out: &Path) {
    let release = Release {
        version: "1.2.3",
        url: URL,
        homepage: HOMEPAGE,
        time: 1_735_689_599,
    };
    write(&release, &checkout(), program(), out).unwrap();
}

fn read(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).unwrap()
}

fn sha256(path: &Path) -> String {
    let digest = Sha256::digest(fs::read(path).unwrap());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_archive_has_the_program_at_its_top_and_the_checksum_is_its() {
    let folder = tempfile::tempdir().unwrap();
    release(folder.path());
    let archive = folder.path().join("soloist-1.2.3-linux-amd64.tar.gz");
    let listed = Command::new("tar")
        .arg("-tvzf")
        .arg(&archive)
        .output()
        .unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let line = |name: &str| {
        listed
            .lines()
            .find(|line| line.ends_with(&format!(" {name}")))
            .unwrap_or_else(|| panic!("{name}: {listed}"))
    };
    assert!(line("soloist").starts_with("-rwxr-xr-x 0/0"), "{listed}");
    for name in [
        "LICENSE-MIT",
        "LICENSE-APACHE",
        "README.md",
        "man/man1/soloist-run.1",
    ] {
        assert!(line(name).starts_with("-rw-r--r-- 0/0"), "{listed}");
    }
    let checked = Command::new("sha256sum")
        .args(["--check", "SHA256SUMS"])
        .current_dir(&folder)
        .output()
        .unwrap();
    assert!(checked.status.success(), "{checked:?}");
}

#[test]
fn the_same_commit_gives_the_same_bytes() {
    let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    for folder in &folders {
        release(folder.path());
    }
    let [one, other] = folders.map(|folder| read(folder.path(), "SHA256SUMS"));
    assert_eq!(one, other);
}

/// What <https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest> asks for.
#[test]
fn krews_manifest_has_the_fields_that_krew_asks_for_and_nothing_is_left_to_fill_in() {
    let folder = tempfile::tempdir().unwrap();
    release(folder.path());
    let text = read(folder.path(), "soloist.yaml");
    assert!(!text.contains("{{"), "{text}");
    let plugin: Value = serde_saphyr::from_str(&text).unwrap();
    assert_eq!(
        plugin["apiVersion"],
        "krew.googlecontainertools.github.com/v1alpha2"
    );
    assert_eq!(plugin["kind"], "Plugin");
    // The file is called as the plugin.
    assert_eq!(plugin["metadata"]["name"], "soloist");
    let spec = &plugin["spec"];
    assert_eq!(spec["version"], "v1.2.3");
    assert_eq!(spec["homepage"], HOMEPAGE);
    let short = spec["shortDescription"].as_str().unwrap();
    assert!(short.len() <= 50 && !short.ends_with('.'), "{short}");
    assert!(spec["description"].as_str().unwrap().lines().count() > 1);
    let platforms = spec["platforms"].as_array().unwrap();
    for platform in platforms {
        let archive = "soloist-1.2.3-linux-amd64.tar.gz";
        assert_eq!(platform["uri"], format!("{URL}/{archive}"));
        assert_eq!(platform["sha256"], sha256(&folder.path().join(archive)));
        assert_eq!(platform["bin"], "soloist");
        assert_eq!(platform["selector"]["matchLabels"]["os"], "linux");
        assert_eq!(platform["selector"]["matchLabels"]["arch"], "amd64");
        for file in platform["files"].as_array().unwrap() {
            assert!(file["from"].is_string() && file["to"].is_string(), "{file}");
        }
    }
    assert_eq!(platforms.len(), 1);
}

#[test]
fn homebrews_formula_names_the_archive_and_ruby_can_read_it() {
    let folder = tempfile::tempdir().unwrap();
    release(folder.path());
    let text = read(folder.path(), "soloist.rb");
    assert!(!text.contains("{{"), "{text}");
    let archive = "soloist-1.2.3-linux-amd64.tar.gz";
    let sum = sha256(&folder.path().join(archive));
    for line in [
        format!("  url \"{URL}/{archive}\"\n"),
        format!("  sha256 \"{sum}\"\n"),
        "  version \"1.2.3\"\n".to_owned(),
    ] {
        assert_eq!(text.matches(&line).count(), 1, "{line}: {text}");
    }
    match Command::new("ruby")
        .args(["-c", "soloist.rb"])
        .current_dir(&folder)
        .output()
    {
        Ok(read) => assert!(read.status.success(), "{read:?}"),
        Err(_) => eprintln!("SKIPPED ruby -c: there is no ruby here"),
    }
}

#[test]
fn a_program_that_needs_others_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let release = Release {
        version: "1.2.3",
        url: URL,
        homepage: HOMEPAGE,
        time: 0,
    };
    let refused = write(
        &release,
        &checkout(),
        b"#!/bin/sh\n".to_vec(),
        folder.path(),
    );
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .contains("not a static program")
    );
}

#[test]
fn the_workflow_is_yaml_and_calls_what_is_there() {
    let text = read(&checkout(), ".github/workflows/release.yaml");
    let workflow: Value = serde_saphyr::from_str(&text).unwrap();
    let steps = workflow["jobs"]["release"]["steps"].as_array().unwrap();
    let commands: Vec<&str> = steps
        .iter()
        .filter_map(|step| step["run"].as_str())
        .collect();
    let release = commands
        .iter()
        .find(|command| command.contains("cargo run"))
        .unwrap();
    for flag in ["--bin release", "--homepage", "--url", "--locked"] {
        assert!(release.contains(flag), "{flag}: {release}");
    }
    for command in commands {
        let read = Command::new("bash")
            .args(["-n", "-c", command])
            .output()
            .unwrap();
        assert!(read.status.success(), "{command}: {read:?}");
    }
}
