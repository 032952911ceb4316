//! What the child does inherit.

mod common;

use std::os::unix::fs::PermissionsExt;

use soloist_process::{Command, Exit, now};

use common::*;

#[tokio::test]
async fn environment_and_working_directory_reach_the_child() {
    let mut stage = Stage::new();
    let dir = stage.dir.path().canonicalize().unwrap();
    let command = stage
        .helper(&["where"])
        .env("GREETING", "hello")
        .env_remove("PATH")
        .current_dir(&dir);
    let mut tree = stage.supervisor().spawn(&command, now() + LIMIT).unwrap();
    let _ = started(&mut tree).await;
    let report = stage.hear("where").await;
    assert_eq!(report, format!("{} hello false", dir.display()));
    ends(&mut tree, Exit::Code(0)).await;
}

#[tokio::test]
async fn variables_that_come_with_the_start_reach_the_child_in_the_place_of_earlier_ones() {
    let mut stage = Stage::new();
    let command = stage
        .helper(&["where"])
        .env("GREETING", "hello")
        .current_dir("/");
    let mut tree = stage.supervisor().prepare(&command).unwrap();
    let variables = [("GREETING", "good=evening"), ("SOLOIST_TOKEN", "7")];
    tree.start(now() + LIMIT, &variables).unwrap();
    let _ = started(&mut tree).await;
    assert_eq!(stage.hear("where").await, "/ good=evening true");
    ends(&mut tree, Exit::Code(0)).await;
}

#[tokio::test]
async fn a_program_is_looked_up_in_the_path_that_comes_with_the_start() {
    let stage = Stage::new();
    let program = stage.dir.path().join("only-here");
    // No line that names an interpreter: then it is the shell's.
    std::fs::write(&program, "exit \"$1\"\n").unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let command = Command::new("only-here").arg("7");
    let mut tree = stage.supervisor().prepare(&command).unwrap();
    let path = format!("/no/such/dir:{}", stage.dir.path().display());
    tree.start(now() + LIMIT, &[("PATH", &path)]).unwrap();
    let _ = started(&mut tree).await;
    ends(&mut tree, Exit::Code(7)).await;
}
