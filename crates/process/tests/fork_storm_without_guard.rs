//! Descendants that multiply while only soloist is left.

mod common;

use rustix::process::Signal;
use soloist_process::TreeEvent;

use common::*;

#[tokio::test]
async fn hundreds_of_forks_do_not_outrun_soloist_alone() {
    let mut stage = Stage::new();
    let mut tree = stage.spawn(&["storm", "300"]);
    started(&mut tree).await;
    stage.hear("ready").await;
    let begun = std::time::Instant::now();
    Process::of(tree.guard_pid()).signal(Signal::KILL);
    assert_eq!(next(&mut tree).await, Some(TreeEvent::GuardLost));
    empty(&mut tree).await;
    println!("the storm was over after {:?}", begun.elapsed());
}
