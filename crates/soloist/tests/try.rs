//! `soloist try`: what it says of small programs that are real.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

const SOLOIST: &str = env!("CARGO_BIN_EXE_soloist");

/// A shell that ends in order.
const ORDERLY: &str = "trap 'kill $!; exit 0' TERM; sleep 1000 & wait";

fn tried(flags: &[&str], program: &[&str]) -> Command {
    let mut command = Command::new(SOLOIST);
    command.arg("try").args(flags);
    if !flags.contains(&"--settle") {
        command.args(["--settle", "300ms"]);
    }
    command.arg("--").args(program);
    command
}

/// The exit code, and the findings.
fn findings(flags: &[&str], script: &str) -> (Option<i32>, Findings) {
    read(
        tried(
            &[flags, &["--output", "json"]].concat(),
            &["sh", "-c", script],
        )
        .output()
        .unwrap(),
    )
}

fn read(output: Output) -> (Option<i32>, Findings) {
    let text = String::from_utf8(output.stdout).unwrap();
    let findings = serde_json::from_str(&text);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    let findings = findings.unwrap_or_else(|error| panic!("{error}: {text} {errors}"));
    (output.status.code(), Findings(findings))
}

struct Findings(Value);

impl Findings {
    fn all(&self, group: &str, check: &str) -> Vec<&Value> {
        let checks = self.0["checks"].as_array().unwrap();
        let fits = |found: &&Value| found["group"] == group && found["check"] == check;
        checks.iter().filter(fits).collect()
    }

    /// The result, and what is said about it.
    fn of(&self, group: &str, check: &str) -> (String, String) {
        let found = self.all(group, check);
        let found = found
            .last()
            .unwrap_or_else(|| panic!("{check} in {:#}", self.0));
        let words =
            ["detail", "reason", "advice"].map(|field| found[field].as_str().unwrap_or_default());
        (
            found["result"].as_str().unwrap().to_owned(),
            words.join(" "),
        )
    }

    #[track_caller]
    fn assert(&self, group: &str, check: &str, result: &str, words: &[&str]) {
        let (found, said) = self.of(group, check);
        assert_eq!(found, result, "{said}");
        for word in words {
            assert!(said.contains(word), "{word} in {said}");
        }
    }
}

#[test]
fn a_program_that_ends_in_order_is_praised() {
    let (code, findings) = findings(&[], ORDERLY);
    findings.assert("start", "it starts and stays up", "good", &[]);
    findings.assert("stop", "it ends on SIGTERM", "good", &["exit code 0"]);
    findings.assert(
        "stop",
        "nothing is left of it half a second later",
        "good",
        &[],
    );
    findings.assert(
        "lost lease",
        "it ends before the lease does",
        "good",
        &["of 3.5s"],
    );
    findings.assert("kill", "nothing of it outlives a kill", "good", &[]);
    let starts = findings.all("kill", "it starts again and stays up");
    assert_eq!(starts.len(), 2, "before the kill and after it");
    assert_eq!(code, Some(0));
}

#[test]
fn a_program_that_ignores_sigterm_is_told_so() {
    let flags = [
        "--grace-period",
        "11s",
        "--patience",
        "1s",
        "--lease-duration",
        "4s",
        "--renew-deadline",
        "2s",
        "--retry-period",
        "1s",
    ];
    let (code, findings) = findings(&flags, "trap '' TERM; while :; do sleep 0.1; done");
    findings.assert(
        "stop",
        "it ends on SIGTERM",
        "bad",
        &["ignores SIGTERM", "--stop-signal", "exec"],
    );
    findings.assert(
        "lost lease",
        "it ends before the lease does",
        "warning",
        &["killed", "docs/safety.md"],
    );
    assert_eq!(code, Some(1));
}

#[test]
fn a_program_that_needs_longer_than_its_time_is_told_how_long_and_what_to_set() {
    // Stop timeout 2 s.
    let flags = ["--grace-period", "3s", "--patience", "30s"];
    let (code, findings) = findings(
        &flags,
        "trap 'sleep 3; exit 0' TERM; while :; do sleep 0.1; done",
    );
    let (result, said) = findings.of("stop", "it ends on SIGTERM");
    assert_eq!(result, "bad", "{said}");
    assert!(said.contains("it needs 3"), "{said}");
    assert!(said.contains("--grace-period 14s"), "{said}");
    assert_eq!(code, Some(1));
}

#[test]
fn processes_that_are_left_behind_are_named() {
    let deaf = "setsid sh -c \"trap '' TERM; sleep 977; sleep 1\" & trap 'exit 0' TERM; while :; do sleep 0.1; done";
    let (code, findings) = findings(&[], deaf);
    findings.assert("stop", "it ends on SIGTERM", "good", &[]);
    let check = "nothing is left of it half a second later";
    findings.assert(
        "stop",
        check,
        "bad",
        &["leaves processes behind", "sleep 977", "2s"],
    );
    assert_eq!(code, Some(1));
}

#[test]
fn a_program_without_a_handler_and_one_with_another_code_are_warned() {
    let (code, first) = findings(&[], "exec sleep 1000");
    first.assert(
        "stop",
        "it ends on SIGTERM",
        "warning",
        &["does not handle SIGTERM", "kernel"],
    );
    assert_eq!(code, Some(0), "a warning is no failure");
    let (_, second) = findings(&[], "trap 'exit 3' TERM; while :; do sleep 0.1; done");
    second.assert(
        "stop",
        "it ends on SIGTERM",
        "warning",
        &["exit code 3", "Exit with 0"],
    );
}

#[test]
fn a_program_that_never_says_that_it_is_ready_is_told_how_to() {
    let flags = ["--ready", "notify", "--start-limit", "700ms"];
    let (code, findings) = findings(&flags, ORDERLY);
    findings.assert(
        "start",
        "it gets ready",
        "bad",
        &["never said READY=1", "systemd-notify", "--start-limit"],
    );
    findings.assert("stop", "it is tried", "unknown", &[]);
    assert_eq!(code, Some(1));
}

#[test]
fn a_port_that_nobody_opens_is_named() {
    let flags = ["--ready", "tcp:127.0.0.1:1", "--start-limit", "700ms"];
    let (code, findings) = findings(&flags, ORDERLY);
    findings.assert("start", "it gets ready", "bad", &["tcp:127.0.0.1:1"]);
    assert_eq!(code, Some(1));
}

#[test]
fn a_program_that_says_ready_is_heard_and_told_of_the_flag() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path().to_str().unwrap();
    let child = [env!("CARGO_BIN_EXE_soloist-test-child"), folder, "ready"];
    let (code, unheard) = read(tried(&["--output", "json"], &child).output().unwrap());
    unheard.assert(
        "start",
        "it gets ready",
        "warning",
        &["READY=1", "--ready notify"],
    );
    assert_eq!(code, Some(0));
    let (code, heard) = read(
        tried(&["--output", "json", "--ready", "notify"], &child)
            .output()
            .unwrap(),
    );
    heard.assert("start", "it gets ready", "good", &["after"]);
    assert_eq!(code, Some(0));
}

#[test]
fn a_program_that_ends_at_once_is_told_of_once_and_of_the_foreground() {
    let (code, findings) = findings(&[], "exit 0");
    findings.assert(
        "start",
        "it starts and stays up",
        "bad",
        &["exit code 0", "--once", "foreground"],
    );
    assert_eq!(code, Some(1));
}

#[test]
fn a_program_that_does_not_start_after_a_kill_is_told_of_what_it_leaves() {
    let folder = tempfile::tempdir().unwrap();
    let pid_file = folder.path().join("pid");
    let script = format!(
        "f={}; [ -e $f ] && exit 1; echo $$ > $f; trap 'rm $f; exit 0' TERM; while :; do sleep 0.1; done",
        pid_file.display()
    );
    let (code, findings) = findings(&[], &script);
    findings.assert(
        "kill",
        "it starts again and stays up",
        "bad",
        &["exit code 1", "lock file"],
    );
    assert_eq!(code, Some(1));
}

#[test]
fn what_cannot_be_found_or_run_has_the_codes_of_run() {
    for (program, code) in [("/no/such/program", 127), ("/etc/passwd", 126)] {
        let output = tried(&[], &[program]).output().unwrap();
        assert_eq!(output.status.code(), Some(code));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains(program), "{text}");
    }
    let output = tried(&["--stop-timeout", "28s"], &["true"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "bad flags");
}

#[test]
fn the_report_is_alone_on_standard_output() {
    let (_, findings) = findings(&[], "echo noise; exec sleep 1000");
    findings.assert("start", "it starts and stays up", "good", &[]);
}

#[test]
fn an_interruption_kills_the_program() {
    testbed::dispositions::undo_ignored();
    let mut soloist = tried(
        &["--settle", "60s"],
        &["sh", "-c", "echo pid $$ >&2; exec sleep 1000"],
    )
    .stderr(Stdio::piped())
    .stdout(Stdio::null())
    .spawn()
    .unwrap();
    let lines = BufReader::new(soloist.stderr.take().unwrap()).lines();
    let mut pids = lines
        .map_while(Result::ok)
        .filter_map(|line| line.strip_prefix("pid ")?.parse().ok());
    let pid = Pid::from_raw(pids.next().unwrap()).unwrap();
    let own = Pid::from_raw(soloist.id().cast_signed()).unwrap();
    kill_process(own, Signal::INT).unwrap();
    assert_eq!(soloist.wait().unwrap().code(), Some(130));
    let begun = Instant::now();
    while test_kill_process(pid).is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(10), "it lives on");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn an_ordinary_user_can_try_a_program_too() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: these tests are an ordinary user's already");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("soloist");
    std::fs::copy(SOLOIST, &program).unwrap();
    std::fs::set_permissions(
        folder.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let mut command = Command::new(program);
    command.args([
        "try", "--settle", "300ms", "--output", "json", "--", "sh", "-c", ORDERLY,
    ]);
    command
        .env_remove("XDG_RUNTIME_DIR")
        .uid(65534)
        .gid(65534)
        .current_dir("/");
    let (code, findings) = read(command.output().unwrap());
    findings.assert("stop", "it ends on SIGTERM", "good", &[]);
    assert_eq!(code, Some(0));
}
