//! What the child does inherit.

mod common;

use soloist_process::{Exit, now};

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
