//! What a guard costs.

mod common;

use common::*;

#[tokio::test]
async fn a_guard_costs_little_memory() {
    let mut stage = Stage::new();
    let mut tree = stage.spawn(&["idle"]);
    started(&mut tree).await;
    stage.hear("ready").await;
    let path = format!("/proc/{}/smaps_rollup", tree.guard_pid());
    let rollup = std::fs::read_to_string(path).unwrap();
    let of = |kind: &str| -> u64 {
        let line = rollup.lines().find(|line| line.starts_with(kind)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    let (clean, dirty) = (of("Private_Clean:"), of("Private_Dirty:"));
    println!(
        "guard: {dirty} kB private and dirty, {clean} kB private and clean, {} kB in all",
        of("Rss:")
    );
    // Clean pages are the program's own text, shared with soloist when that is the same file.
    assert!(dirty < 1024, "{dirty} kB");
    tree.kill();
    killed(&mut tree).await;
}
