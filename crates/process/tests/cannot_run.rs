//! Programs that cannot be run, and why.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use soloist_process::{Command, SpawnError, SpawnFailure, SpawnStep, TreeEvent, now};

use common::*;

async fn failure(stage: &Stage, command: Command) -> SpawnError {
    let tree = stage.supervisor().spawn(&command, now() + LIMIT);
    let mut tree = tree.unwrap();
    let event = next(&mut tree).await;
    assert_eq!(next(&mut tree).await, None);
    match event {
        Some(TreeEvent::SpawnFailed(error)) => error,
        other => panic!("it did not fail: {other:?}"),
    }
}

fn file(stage: &Stage, name: &str, text: &str, mode: u32) -> PathBuf {
    let path = stage.dir.path().join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path
}

#[tokio::test]
async fn a_missing_program_is_not_found() {
    let stage = Stage::new();
    for name in ["no-such-program", "/no/such/program", ""] {
        let error = failure(&stage, Command::new(name)).await;
        assert_eq!(error.failure, SpawnFailure::NotFound, "{name}");
        assert_eq!(error.step, SpawnStep::Program);
    }
}

#[tokio::test]
async fn a_file_that_may_not_be_run_is_not_executable() {
    let stage = Stage::new();
    let path = file(&stage, "plain", "#!/bin/sh\n", 0o644);
    let error = failure(&stage, Command::new(path)).await;
    assert_eq!(error.failure, SpawnFailure::NotExecutable);
    let error = failure(&stage, Command::new(stage.dir.path())).await;
    assert_eq!(error.failure, SpawnFailure::NotExecutable);
}

#[tokio::test]
async fn a_missing_interpreter_is_said_to_be_the_interpreter() {
    let stage = Stage::new();
    let path = file(&stage, "script", "#!/no/such/interpreter\n", 0o755);
    let error = failure(&stage, Command::new(path)).await;
    assert_eq!(error.failure, SpawnFailure::NotExecutable);
    assert_eq!(error.step, SpawnStep::Interpreter);
}

#[tokio::test]
async fn a_missing_working_directory_is_said_to_be_the_directory() {
    let stage = Stage::new();
    let error = failure(&stage, stage.helper(&["idle"]).current_dir("/no/such/dir")).await;
    assert_eq!(error.step, SpawnStep::WorkingDirectory);
}

#[tokio::test]
async fn an_argument_that_no_program_can_be_given_is_refused() {
    let stage = Stage::new();
    let command = stage.helper(&["idle"]).arg("a\0b");
    let error = stage
        .supervisor()
        .spawn(&command, now() + LIMIT)
        .unwrap_err();
    assert_eq!(error.failure(), SpawnFailure::NotExecutable);
}
