//! soloist as PID 1.

mod common;

use std::process::Command;

use common::*;

#[test]
fn it_works_as_the_first_process_of_a_namespace() {
    if !rustix::process::geteuid().is_root() {
        return skipped("a PID namespace of our own needs root");
    }
    let status = Command::new("timeout")
        .args([
            "60",
            "unshare",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ])
        .args([HELPER, "first-process"])
        .status();
    assert_eq!(status.unwrap().code(), Some(0));
}
