//! The code in the documentation is that of the examples, or of tests.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use std::fs;
use std::path::Path;

const EXAMPLES: [&str; 4] = [
    "examples/consumer/src/main.rs",
    "examples/loop/src/main.rs",
    "examples/web/src/main.rs",
    "testbed/feed/src/server.rs",
];

const TESTS: [&str; 2] = [
    "crates/worker/tests/server/panics.rs",
    "crates/worker/tests/server/peers.rs",
];

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// All that stands between "```rust" and "```".
fn blocks(page: &str) -> Vec<&str> {
    let after = page.split("```rust\n").skip(1);
    after
        .map(|rest| rest.split("```").next().unwrap())
        .collect()
}

/// However far it is indented there.
fn without_indentation(code: &str) -> String {
    code.lines()
        .map(|line| format!("{}\n", line.trim_start()))
        .collect()
}

#[test]
fn every_piece_of_code_in_the_guide_stands_in_an_example_or_a_test() {
    let guide = read("docs/worker.md");
    let paths = EXAMPLES.iter().chain(&TESTS);
    let sources: Vec<String> = paths.map(|path| without_indentation(&read(path))).collect();
    for block in blocks(&guide).into_iter().map(without_indentation) {
        let is_there = sources.iter().any(|source| source.contains(&block));
        assert!(is_there, "in none of {EXAMPLES:?} or {TESTS:?}:\n{block}");
    }
}

#[test]
fn the_guide_shows_code_of_each_example() {
    let guide = read("docs/worker.md");
    for path in EXAMPLES {
        let example = read(path);
        let is_shown = blocks(&guide).iter().any(|block| example.contains(*block));
        assert!(is_shown, "{path}");
    }
}

#[test]
fn no_code_in_the_guide_escapes_the_comparison() {
    let guide = read("docs/worker.md");
    assert!(!guide.contains("```rust,"), "write it as ```rust");
}
