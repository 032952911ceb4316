//! Namespaces of one's own, as any user may have them on most machines.

use std::process::{Command, Stdio};

/// Whether `unshare` may do this here. If not, the test is skipped, and says so.
pub(crate) fn are_there(flags: &[&str]) -> bool {
    let mut unshare = Command::new("unshare");
    unshare.args(flags).arg("true").stderr(Stdio::null());
    let there = unshare.status().is_ok_and(|status| status.success());
    if !there {
        eprintln!("skipped: `unshare {}` is not allowed here", flags.join(" "));
    }
    there
}
