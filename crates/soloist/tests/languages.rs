//! The children in several languages, as the contract shows them: each goes well through `soloist try`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOLOIST: &str = env!("CARGO_BIN_EXE_soloist");

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/children")
}

/// Whether the interpreter or compiler is here; told, if not.
fn is_here(program: &str) -> bool {
    let here = Command::new("sh")
        .args(["-c", &format!("command -v {program} >/dev/null")])
        .status()
        .unwrap()
        .success();
    if !here {
        eprintln!("skipped: there is no {program} here");
    }
    here
}

#[track_caller]
fn does_everything_well(flags: &[&str], variables: &[(&str, &str)], program: &[&str]) {
    let output = Command::new(SOLOIST)
        .args(["try", "--settle", "1500ms"])
        .args(flags)
        .arg("--")
        .args(program)
        .envs(variables.iter().copied())
        .current_dir(folder())
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    let printed = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        report.contains(" 0 warnings, 0 bad, 0 unknown"),
        "{report}{printed}"
    );
    assert_eq!(output.status.code(), Some(0));
    for words in ["piece 1 under token 1", "ended in order"] {
        assert!(printed.contains(words), "{words} in {printed}");
    }
}

#[test]
fn go() {
    if !is_here("go") {
        return;
    }
    let built = tempfile::tempdir().unwrap();
    let child = built.path().join("child");
    let child = child.to_str().unwrap();
    let go = Command::new("go")
        .args(["build", "-o", child, "child.go"])
        .current_dir(folder())
        .status();
    assert!(go.unwrap().success());
    does_everything_well(&["--ready", "notify"], &[], &[child]);
}

#[test]
fn python() {
    if is_here("python3") {
        does_everything_well(&["--ready", "notify"], &[], &["python3", "child.py"]);
    }
}

#[test]
fn node() {
    if !is_here("node") {
        return;
    }
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
        .to_string();
    let probe = format!("http://127.0.0.1:{port}/ready");
    does_everything_well(
        &["--ready", &probe],
        &[("PORT", &port)],
        &["node", "child.mjs"],
    );
}

#[test]
fn shell() {
    let ready: &[&str] = if is_here("systemd-notify") {
        &["--ready", "notify"]
    } else {
        &[]
    };
    does_everything_well(ready, &[], &["./child.sh"]);
}

#[test]
fn the_contract_shows_them_as_they_are() {
    let contract = folder().join("../../docs/child-contract.md");
    let contract = std::fs::read_to_string(contract).unwrap();
    for name in ["child.go", "child.py", "child.mjs", "child.sh"] {
        let child = std::fs::read_to_string(folder().join(name)).unwrap();
        assert!(
            contract.contains(&child),
            "{name} in docs/child-contract.md"
        );
    }
}
