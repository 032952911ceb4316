//! `soloist completions` and `soloist --version`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::io::Write;
use std::process::{Command, Stdio};

const SOLOIST: &str = env!("CARGO_BIN_EXE_soloist");

fn says(arguments: &[&str]) -> String {
    let output = Command::new(SOLOIST).args(arguments).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn bash_completes_commands_and_flags() {
    let script = says(&["completions", "bash"]);
    let complete = |words: &[&str]| {
        let last = words.len() - 1;
        let ask = format!(
            "{script}\nCOMP_WORDS=({})\nCOMP_CWORD={last}\n_soloist soloist '{}' '{}'\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
            words.join(" "),
            words[last],
            words[last - 1],
        );
        let mut bash = Command::new("bash")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        bash.stdin
            .take()
            .unwrap()
            .write_all(ask.as_bytes())
            .unwrap();
        let output = bash.wait_with_output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(complete(&["soloist", "doc"]).trim(), "doctor");
    assert_eq!(
        complete(&["soloist", "run", "--lease"]).trim(),
        "--lease-duration"
    );
}

#[test]
fn every_shell_has_a_script_that_knows_the_commands() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = says(&["completions", shell]);
        for command in ["run", "doctor", "try", "inject"] {
            assert!(script.contains(command), "{command} for {shell}");
        }
    }
    let unknown = Command::new(SOLOIST)
        .args(["completions", "csh"])
        .output()
        .unwrap();
    assert_eq!(unknown.status.code(), Some(2));
    let words = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(words.contains("possible values: bash"), "{words}");
}

#[test]
fn the_version_names_the_commit_and_kubernetes() {
    let short = says(&["-V"]);
    assert_eq!(short.trim(), concat!("soloist ", env!("CARGO_PKG_VERSION")));
    let long = says(&["--version"]);
    for part in ["commit ", "coordination.k8s.io/v1", "Kubernetes v1."] {
        assert!(long.contains(part), "{part} in {long}");
    }
}
