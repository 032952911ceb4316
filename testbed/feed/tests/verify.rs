//! `feed-verify` as a process.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::Path;
use std::process::Command;

use feed::output::Output;
use feed::payload::{DEFAULT_SEED, Recipe};
use soloist_worker::{Term, Token};

fn write(path: &Path, token: u64, positions: impl IntoIterator<Item = u64>) {
    let mut output = Output::open(path, Token::new(token), Term::new(token)).unwrap();
    let recipe = Recipe::try_new(DEFAULT_SEED, 20).unwrap();
    for position in positions {
        output.append(position, &recipe.payload(position)).unwrap();
    }
}

/// The exit code, and all that it says.
fn verify(path: &Path, flags: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_feed-verify"));
    let ended = command.arg(path).args(flags).output().unwrap();
    let said = [ended.stdout, ended.stderr].concat();
    (ended.status.code(), String::from_utf8(said).unwrap())
}

#[test]
fn a_right_output_is_reported_and_the_exit_code_is_0() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("output");
    write(&path, 3, 1..=204);
    write(&path, 7, 205..=300);
    let report = "term 3 (token 3): 1 to 204\nterm 7 (token 7): 205 to 300\nright: every message from 1 to 300 once, in order\n";
    let right = (Some(0), report.to_owned());
    assert_eq!(verify(&path, &[]), right);
    assert_eq!(verify(&path, &["--messages", "300"]), right);
}

#[test]
fn a_wrong_output_has_its_findings_named_and_the_exit_code_is_1() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("output");
    write(&path, 3, 1..=10);
    let (code, said) = verify(&path, &["--messages", "11"]);
    assert_eq!(code, Some(1));
    assert!(
        said.contains("line 10: the message at 11 is missing at the end"),
        "{said}"
    );
    let (code, said) = verify(&path, &["--seed", "2"]);
    assert_eq!(code, Some(1));
    assert!(
        said.contains("line 1: the message at 1 has a wrong payload"),
        "{said}"
    );
    assert!(said.contains("10 findings"), "{said}");
}

#[test]
fn an_output_that_cannot_be_read_and_bad_usage_have_the_exit_code_2() {
    let directory = tempfile::tempdir().unwrap();
    let (code, said) = verify(&directory.path().join("nowhere"), &[]);
    assert_eq!(code, Some(2));
    assert!(said.contains("nowhere"), "{said}");
    assert_eq!(verify(directory.path(), &[]).0, Some(2));
    assert_eq!(verify(directory.path(), &["--messages", "x"]).0, Some(2));
}
