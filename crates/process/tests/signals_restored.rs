//! Signals and limits as soloist found them.

#![allow(clippy::unwrap_used)]

mod common;

use common::*;

const USR2: u64 = 1 << (12 - 1);
const LIBC: u64 = 0b11 << (32 - 1);
const HUP: u64 = 1;
const PIPE: u64 = 1 << (13 - 1);

fn numbers(report: &str) -> (u64, u64) {
    let mut numbers = report
        .split(' ')
        .map(|text| u64::from_str_radix(text, 16).unwrap());
    (numbers.next().unwrap(), numbers.next().unwrap())
}

#[tokio::test]
async fn the_child_finds_the_signals_as_soloist_found_them() {
    let mut stage = Stage::new();
    let soloist = std::process::Command::new("env")
        .args(["--default-signal=INT,QUIT", "--ignore-signal=HUP"])
        .args(["--block-signal=USR2", HELPER])
        .args(["soloist", "60000", "signals"])
        .env("REPORT", stage.report_path())
        .spawn();
    let mut soloist = Soloist(soloist.unwrap());
    let (blocked, ignored) = numbers(&stage.hear("signals").await);
    assert_eq!(blocked, USR2);
    // The helper is a Rust program: its runtime ignores SIGPIPE itself. Two belong to the C library.
    assert_eq!(ignored & !PIPE & !LIBC, HUP);
    assert_eq!(soloist.0.wait().unwrap().code(), Some(0));
}

#[tokio::test]
async fn a_child_that_is_no_rust_program_has_its_sigpipe_back() {
    let stage = Stage::new();
    let script = "grep SigIgn /proc/self/status > \"$OUT\"";
    let out = stage.dir.path().join("out");
    let command = soloist_process::Command::new("sh")
        .args(["-c", script])
        .env("OUT", &out);
    let tree = stage
        .supervisor()
        .spawn(&command, soloist_process::now() + LIMIT);
    let mut tree = tree.unwrap();
    let _ = started(&mut tree).await;
    ends(&mut tree, soloist_process::Exit::Code(0)).await;
    let ignored = std::fs::read_to_string(out).unwrap();
    let ignored = ignored.split_whitespace().nth(1).unwrap().to_owned();
    assert_eq!(u64::from_str_radix(&ignored, 16).unwrap() & PIPE, 0);
}

#[tokio::test]
async fn the_child_finds_the_limits_as_soloist_found_them() {
    let mut stage = Stage::new();
    let shell = std::process::Command::new("sh")
        .args([
            "-c",
            "ulimit -Sn 123; exec \"$0\" soloist 60000 limit",
            HELPER,
        ])
        .env("REPORT", stage.report_path())
        .spawn();
    let mut soloist = Soloist(shell.unwrap());
    assert_eq!(stage.hear("limit").await, "123");
    assert_eq!(soloist.0.wait().unwrap().code(), Some(0));
}

#[tokio::test]
async fn a_soloist_that_was_started_with_sigchld_ignored_still_hears_of_its_child() {
    let soloist = std::process::Command::new("env")
        .args(["--ignore-signal=CHLD", HELPER])
        .args(["soloist", "60000", "exit", "7"])
        .spawn();
    let mut soloist = Soloist(soloist.unwrap());
    assert_eq!(soloist.0.wait().unwrap().code(), Some(7));
}
