//! What the tests of a machine without etcd do, tried with this very test binary.

use std::process::{Command, Output};

fn run_a_test_without_programs(wish: &str) -> (Output, String) {
    let empty = tempfile::tempdir().unwrap();
    let output = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "starting::a_control_plane_answers_and_says_its_version",
        ])
        .env("PATH", empty.path())
        .env("SOLOIST_TESTBED", wish)
        .output()
        .unwrap();
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    (output, String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn without_etcd_a_suite_is_skipped_and_says_what_to_install() {
    let (output, text) = run_a_test_without_programs("");
    assert!(output.status.success(), "{text}");
    assert!(
        text.contains(&format!("SKIPPED {}", crate::SUITE)),
        "{text}"
    );
    assert!(text.contains("apt-get install etcd-server"), "{text}");
    assert!(text.contains("cargo run -p testbed -- build"), "{text}");
}

#[test]
fn where_the_testbed_is_required_its_absence_is_a_failure() {
    let (output, text) = run_a_test_without_programs("required");
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("apt-get install etcd-server"), "{text}");
}

#[test]
fn the_testbed_can_be_turned_off() {
    let (output, text) = run_a_test_without_programs("off");
    assert!(output.status.success(), "{text}");
    assert!(text.contains("SOLOIST_TESTBED=off"), "{text}");
}
