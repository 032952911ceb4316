//! How the child ended: signals.

mod common;

use soloist_process::Exit;

use common::*;

#[tokio::test]
async fn the_signal_that_ended_the_child_is_told() {
    let stage = Stage::new();
    for signal in [1, 2, 6, 9, 13, 15, 34, 64] {
        let mut tree = stage.spawn(&["die", &signal.to_string()]);
        let _ = started(&mut tree).await;
        ends(&mut tree, Exit::Signal(signal)).await;
    }
}
