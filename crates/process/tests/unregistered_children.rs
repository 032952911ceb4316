//! Children that a library of this program starts without a word, such as a credential plugin.

#![allow(clippy::unwrap_used)]

mod common;

use std::process::{Command, Stdio};
use std::time::Duration;

use soloist_process::Exit;

use common::*;

#[tokio::test(flavor = "multi_thread")]
async fn the_exit_of_a_plugin_is_left_to_who_has_started_it() {
    let stage = Stage::new();
    let _supervisor = stage.supervisor();
    for round in 0..50 {
        let plugin = tokio::task::spawn_blocking(|| {
            let mut plugin = Command::new("sh");
            plugin.args(["-c", "echo token; exit 7"]).output()
        });
        let output = within("the plugin", plugin).await.unwrap();
        let output = output.unwrap_or_else(|error| panic!("in round {round}: {error}"));
        assert_eq!(output.status.code(), Some(7));
        assert_eq!(output.stdout, b"token\n");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_exit_of_a_plugin_is_not_taken_while_its_starter_is_busy() {
    let stage = Stage::new();
    let mut tree = stage.spawn(&["exit", "3"]);
    let mut plugin = Command::new("sh");
    let mut plugin = plugin
        .args(["-c", "exit 7"])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    Process::of(plugin.id()).gone().await;
    started(&mut tree).await;
    // Other children end meanwhile, and their ends are looked at.
    ends(&mut tree, Exit::Code(3)).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(plugin.wait().unwrap().code(), Some(7));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_plugin_leaves_behind_is_reaped_all_the_same() {
    let stage = Stage::new();
    let _supervisor = stage.supervisor();
    let mut plugin = Command::new("sh");
    let output = plugin
        .args(["-c", "sleep 0.2 >&- 2>&- & echo $!"])
        .output()
        .unwrap();
    let orphan: u32 = String::from_utf8(output.stdout)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    within("the orphan's end", async {
        while std::path::Path::new(&format!("/proc/{orphan}")).exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}
