//! kubectl and Helm, where there are any.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// A program in `PATH` or in the testbed's cache. Where there is none, says that `what` is skipped, and fails with
/// `SOLOIST_TESTBED=required`.
pub(crate) fn find(program: &str, what: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let in_path = env::split_paths(&path).map(|folder| folder.join(program));
    let found = in_path.chain(cached(program)).find(|path| path.is_file());
    if found.is_none() {
        let is_required = env::var("SOLOIST_TESTBED").is_ok_and(|wish| wish == "required");
        assert!(
            !is_required,
            "SOLOIST_TESTBED=required, but there is no {program}: cargo run -p testbed -- build {program}"
        );
        // Past the capture of the test harness.
        let _ = writeln!(
            io::stderr(),
            "SKIPPED {what}: there is no {program} in PATH or in the testbed's cache"
        );
    }
    found
}

fn cached(program: &str) -> Vec<PathBuf> {
    let entries = |folder: &Path| {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let folders = entries(&testbed::cache_dir());
    folders
        .into_iter()
        .map(|folder| folder.join(program))
        .collect()
}
