//! Exit codes that no other test has, and the page that lists all of them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use testbed::programs::{end_all, wait_for};

const SOLOIST: &str = env!("CARGO_BIN_EXE_soloist");
const LIMIT: Duration = Duration::from_secs(60);

fn soloist(words: &[&str]) -> Command {
    let mut command = Command::new(SOLOIST);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("SOLOIST_") {
            command.env_remove(name);
        }
    }
    command
        .env_remove("KUBECONFIG")
        .args(words)
        .stdin(Stdio::null());
    command
}

/// The code, and what it says on both outputs.
fn told(words: &[&str]) -> (Option<i32>, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = soloist(words).output().unwrap();
    let text = String::from_utf8([stdout, stderr].concat()).unwrap();
    (status.code(), text)
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

fn file(folder: &TempDir) -> String {
    format!("file:{}", folder.path().join("lease").display())
}

const ABOUT_A_LEASE: [&str; 4] = ["status", "handover", "pause", "resume"];

#[test]
fn a_bad_flag_is_2_for_every_command_and_is_named() {
    for command in commands() {
        let (code, text) = told(&[&command, "--nonsense"]);
        assert_eq!(code, Some(2), "{command}: {text}");
        assert!(text.contains("--nonsense"), "{command}: {text}");
    }
}

#[test]
fn a_lease_that_is_not_there_is_1_for_all_who_ask_for_it() {
    let folder = tempfile::tempdir().unwrap();
    for command in ABOUT_A_LEASE {
        let (code, text) = told(&[command, "--store", &file(&folder)]);
        assert_eq!(code, Some(1), "{command}: {text}");
        assert!(
            text.contains("has a replica ever run with this name?"),
            "{command}: {text}"
        );
    }
}

#[test]
fn no_lease_named_is_2_and_says_what_to_give() {
    for command in ABOUT_A_LEASE {
        let (code, text) = told(&[command, "--store", "file"]);
        assert_eq!(code, Some(2), "{command}: {text}");
        assert!(
            text.contains("which lease? Give --name"),
            "{command}: {text}"
        );
    }
}

#[test]
fn a_folder_that_everybody_may_write_to_is_3_for_all_who_ask() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("lease"), "{}").unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    for command in ABOUT_A_LEASE {
        let (code, text) = told(&[command, "--store", &file(&folder)]);
        assert_eq!(code, Some(3), "{command}: {text}");
        assert!(text.contains("everybody may write to"), "{command}: {text}");
    }
}

#[test]
fn the_doctor_has_0_for_what_is_well_and_1_for_what_is_broken() {
    let folder = tempfile::tempdir().unwrap();
    let store = file(&folder);
    let examine = || told(&["doctor", "--store", &store, "--name", "test"]);
    let (code, text) = examine();
    assert_eq!(code, Some(0), "{text}");
    fs::write(folder.path().join("lease"), "no lease").unwrap();
    let (code, text) = examine();
    assert_eq!(code, Some(1), "{text}");
}

#[test]
fn the_doctor_looks_at_leases_alone() {
    let (code, text) = told(&["doctor", "--store", "configmap", "--name", "test"]);
    assert_eq!(code, Some(2), "{text}");
    assert!(
        text.contains("only Leases are looked at, not locks on"),
        "{text}"
    );
}

#[test]
fn an_order_that_is_not_done_in_time_is_4_and_stands() {
    let folder = tempfile::tempdir().unwrap();
    let store = file(&folder);
    let deaf = "trap '' TERM; echo up; while :; do sleep 0.1; done";
    let mut leader = soloist(&[
        "run", "--store", &store, "--name", "test", "--", "sh", "-c", deaf, "deaf",
    ])
    .stdout(Stdio::piped())
    .stderr(Stdio::null())
    .spawn()
    .unwrap();
    let mut line = String::new();
    BufReader::new(leader.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let (code, text) = told(&["handover", "--store", &store, "--wait", "--timeout", "1s"]);
    signal(&leader, Signal::TERM);
    // At once: on a terminal alone two signals within a second are one, and there is none.
    signal(&leader, Signal::TERM);
    let ended = wait_for("the leader's end", LIMIT, || {
        signal(&leader, Signal::TERM);
        leader.try_wait().unwrap()
    });
    assert_eq!(code, Some(4), "{text}");
    assert!(text.contains("the order stands"), "{text}");
    assert_eq!(ended.code(), Some(1), "its child had to be killed");
}

#[test]
fn a_trial_that_is_ended_by_sigterm_has_143() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path().display();
    let script = format!("touch {here}/begun; while :; do sleep 0.1; done");
    let mut trial = soloist(&["try", "--", "sh", "-c", &script])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("the program", LIMIT, || {
        folder.path().join("begun").exists().then_some(())
    });
    signal(&trial, Signal::TERM);
    assert_eq!(trial.wait().unwrap().code(), Some(143));
    end_all(folder.path(), LIMIT);
}

/// All that people can call.
fn commands() -> BTreeSet<String> {
    let (_, help) = told(&["--help"]);
    let (_, list) = help.split_once("Commands:\n").unwrap();
    let lines = list.lines().take_while(|line| !line.trim().is_empty());
    let named = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = named.map(|line| line.split_whitespace().next().unwrap().to_owned());
    let names: BTreeSet<String> = names.filter(|name| name != "help").collect();
    assert!(names.len() > 10, "{names:?}");
    names
}

/// The codes that its help tells of: the numbers at the beginnings of the parts after `Exit codes:`.
fn codes_of_help(command: &str) -> BTreeSet<i32> {
    let (_, help) = told(&[command, "--help"]);
    let help: Vec<&str> = help.split_whitespace().collect();
    let help = help.join(" ");
    let Some((_, codes)) = help.split_once("Exit codes: ") else {
        return BTreeSet::new();
    };
    let codes = codes
        .split(". ")
        .next()
        .unwrap()
        .split(". Usage")
        .next()
        .unwrap();
    let parts = codes.split(';').flat_map(|part| {
        let words: Vec<&str> = part.split_whitespace().collect();
        let numbers = words
            .iter()
            .take_while(|word| word.parse::<i32>().is_ok() || **word == "or");
        numbers
            .filter_map(|word| word.parse().ok())
            .collect::<Vec<i32>>()
    });
    parts.collect()
}

struct Row {
    cells: Vec<String>,
}

fn rows(section: &str) -> Vec<Row> {
    let page = fs::read_to_string(root().join("docs/exit-codes.md")).unwrap();
    let (_, text) = page.split_once(&format!("\n## {section}\n")).unwrap();
    let text = text.split("\n## ").next().unwrap();
    let lines = text.lines().filter(|line| line.starts_with('|')).skip(2);
    let row = |line: &str| Row {
        cells: line
            .trim_matches('|')
            .split('|')
            .map(|cell| cell.trim().to_owned())
            .collect(),
    };
    lines.map(row).collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The body of the test that a row names.
fn test_of(row: &Row) -> String {
    let words: Vec<&str> = row.cells.last().unwrap().split('`').collect();
    let (file, name) = (words[1], words[3]);
    let path = root().join("crates/soloist/tests").join(file);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"));
    let begin = text.find(&format!("fn {name}()"));
    let begin = begin.unwrap_or_else(|| panic!("{file} has no test {name}"));
    assert!(
        text[..begin].trim_end().ends_with("#[test]"),
        "{name} is no test"
    );
    text[begin..].split("\n}\n").next().unwrap().to_owned()
}

#[test]
fn each_code_of_the_table_is_in_the_test_that_it_names_and_each_code_of_the_help_in_the_table() {
    let mut documented: BTreeMap<String, BTreeSet<i32>> = BTreeMap::new();
    for row in rows("Exit codes") {
        let body = test_of(&row);
        let codes: Vec<i32> = row.cells[1]
            .split(',')
            .map(|code| code.trim().parse().unwrap())
            .collect();
        // A row for several codes is one that refers to another's.
        if let [code] = codes[..] {
            let asserted = [
                format!("Some({code})"),
                format!(", {code})"),
                format!("code, {code},"),
                format!("exit_code(), {code},"),
            ];
            let is_success = code == 0 && body.contains("success()");
            assert!(
                is_success || asserted.iter().any(|text| body.contains(text)),
                "no {code} in {body}"
            );
        }
        for command in row.cells[0].split(',') {
            let command = command.trim().trim_matches('`').to_owned();
            documented.entry(command).or_default().extend(&codes);
        }
    }
    for command in commands() {
        let codes = documented.remove(&command).unwrap_or_default();
        let missing: Vec<_> = codes_of_help(&command)
            .difference(&codes)
            .copied()
            .collect();
        assert!(
            missing.is_empty(),
            "{command}: {missing:?} of its help are not in docs/exit-codes.md"
        );
    }
    assert!(documented.is_empty(), "no commands: {documented:?}");
    // The help of `run` has all of them, so this compares something.
    assert!(codes_of_help("run").len() > 7, "{:?}", codes_of_help("run"));
}
