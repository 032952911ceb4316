//! How the child ended: codes.

mod common;

use soloist_process::{Exit, TreeEvent};

use common::*;

#[tokio::test]
async fn every_exit_code_is_told() {
    let stage = Stage::new();
    for first in (0..=255).step_by(16) {
        let codes: Vec<u8> = (first..first + 16).map(|code: u16| code as u8).collect();
        let mut trees: Vec<_> = codes
            .iter()
            .map(|code| stage.spawn(&["exit", &code.to_string()]))
            .collect();
        for (code, tree) in codes.iter().zip(&mut trees) {
            let event = next(tree).await;
            assert!(
                matches!(event, Some(TreeEvent::Started { .. })),
                "{event:?}"
            );
            ends(tree, Exit::Code(*code)).await;
        }
    }
}
