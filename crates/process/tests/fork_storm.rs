//! Descendants that multiply.

mod common;

use common::*;

#[tokio::test]
async fn hundreds_of_forks_do_not_outrun_the_kill() {
    let mut stage = Stage::new();
    let mut tree = stage.spawn(&["storm", "300"]);
    started(&mut tree).await;
    stage.hear("ready").await;
    let begun = std::time::Instant::now();
    tree.kill();
    // A guard that is too busy to answer is stood in for: that is an end as well.
    empty(&mut tree).await;
    println!("the storm was over after {:?}", begun.elapsed());
}
