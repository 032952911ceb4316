//! Descendants that nobody reaps.

mod common;

use std::time::Duration;

use common::*;

#[tokio::test]
async fn orphans_that_have_ended_are_reaped_while_the_child_runs() {
    let mut stage = Stage::new();
    let mut tree = stage.spawn(&["zombies", "50"]);
    let child = started(&mut tree).await;
    stage.hear("ready").await;
    let guard = tree.guard_pid();
    let children = || {
        let path = format!("/proc/{guard}/task/{guard}/children");
        std::fs::read_to_string(path).unwrap_or_default()
    };
    let mut ticks = tokio::time::interval(Duration::from_millis(5));
    within("the guard to reap the orphans", async {
        while children().trim() != child.pid.to_string() {
            ticks.tick().await;
        }
    })
    .await;
    tree.kill();
    killed(&mut tree).await;
}
