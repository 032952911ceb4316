//! What the child does not inherit.

mod common;

use common::*;

#[tokio::test]
async fn the_child_inherits_no_descriptor_but_the_standard_ones() {
    let mut stage = Stage::new();
    // Descriptor 9 is not closed by an exec, and soloist has others of its own.
    let shell = std::process::Command::new("sh")
        .args([
            "-c",
            "exec 9<\"$0\"; exec \"$0\" soloist 60000 files",
            HELPER,
        ])
        .env("REPORT", stage.report_path())
        .spawn();
    let mut soloist = Soloist(shell.unwrap());
    // The fourth is the listing's own.
    assert_eq!(stage.hear("files").await, "[0, 1, 2, 3]");
    assert_eq!(soloist.0.wait().unwrap().code(), Some(0));
}
