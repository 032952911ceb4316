//! Tests that this machine or user cannot run.

use std::io::Write;

/// Says so, past the test harness's capture. To be followed by the test's end.
///
/// # Panics
/// With `SOLOIST_TESTBED=required`: nothing may be skipped there.
pub(crate) fn skipped(reason: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let wish = std::env::var("SOLOIST_TESTBED").unwrap_or_default();
    assert!(
        wish != "required",
        "SOLOIST_TESTBED=required, but {test} cannot run: {reason}"
    );
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {reason}");
}
