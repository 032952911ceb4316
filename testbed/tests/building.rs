//! How binaries come into the cache, with a `go` that only pretends.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use tempfile::TempDir;

struct Machine {
    dir: TempDir,
}

impl Machine {
    /// A machine whose `go build` runs `script` with the binary's path in `$out`.
    fn with_go(script: &str) -> Self {
        let machine = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        fs::create_dir(machine.bin()).unwrap();
        let go = machine.bin().join("go");
        let text = format!(
            "#!/bin/sh\n[ \"$1\" = list ] && exec echo one\nfor a; do case $a in -o=*) out=${{a#-o=}};; esac; done\n{script}\n"
        );
        fs::write(&go, text).unwrap();
        fs::set_permissions(&go, fs::Permissions::from_mode(0o755)).unwrap();
        machine
    }

    fn bin(&self) -> PathBuf {
        self.dir.path().join("bin")
    }

    fn build(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_testbed"));
        command
            .args(["build", "peer"])
            .env("PATH", format!("{}:/usr/bin:/bin", self.bin().display()))
            .env("SOLOIST_TESTBED_CACHE", self.dir.path().join("cache"))
            .env("COUNT", self.dir.path().join("count"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn builds(&self) -> usize {
        fs::read_to_string(self.dir.path().join("count")).map_or(0, |text| text.lines().count())
    }
}

fn printed_path(output: &Output) -> PathBuf {
    assert!(output.status.success(), "{}", errors(output));
    Path::new(String::from_utf8_lossy(&output.stdout).trim()).to_owned()
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_binary_is_built_once_and_then_found() {
    let machine = Machine::with_go("echo built >> $COUNT; echo binary > $out");
    let first = printed_path(&machine.build().output().unwrap());
    let second = printed_path(&machine.build().output().unwrap());
    assert_eq!(first, second);
    assert!(first.is_file());
    assert_eq!(machine.builds(), 1);
}

#[test]
fn processes_that_need_the_same_binary_at_once_build_it_once() {
    let machine = Machine::with_go("echo built >> $COUNT; sleep 0.3; echo binary > $out");
    let builders: Vec<_> = (0..4).map(|_| machine.build().spawn().unwrap()).collect();
    for builder in builders {
        printed_path(&builder.wait_with_output().unwrap());
    }
    assert_eq!(machine.builds(), 1);
}

#[test]
fn a_failed_build_shows_its_last_lines_and_leaves_no_binary() {
    let machine = Machine::with_go("echo half > $out; echo 'main.go:1: it is broken' >&2; exit 1");
    let output = machine.build().output().unwrap();
    let errors = errors(&output);
    assert!(!output.status.success());
    assert!(errors.contains("building peer failed"), "{errors}");
    assert!(errors.contains("main.go:1: it is broken"), "{errors}");
    assert!(errors.contains("peer.build.log"), "{errors}");

    let repaired = Machine { dir: machine.dir };
    fs::write(repaired.bin().join("go"), "#!/bin/sh\nexit 1\n").unwrap();
    assert!(
        !repaired.build().output().unwrap().status.success(),
        "half a binary was taken for a whole one"
    );
}

#[test]
fn a_full_disk_is_called_so() {
    let machine = Machine::with_go("echo 'write $WORK/b001: no space left on device' >&2; exit 1");
    let errors = errors(&machine.build().output().unwrap());
    assert!(
        errors.contains("no space left") && errors.contains("SOLOIST_TESTBED_CACHE"),
        "{errors}"
    );
}

#[test]
fn a_machine_without_go_is_told_where_to_get_it() {
    let machine = Machine::with_go("");
    let empty = machine.dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let errors = errors(&machine.build().env("PATH", empty).output().unwrap());
    assert!(errors.contains("Go is not installed"), "{errors}");
}
