//! Namespaces of one's own, as any user may have them on most machines.

use std::process::{Command, Stdio};

use crate::skipped::skipped;

/// Whether `unshare` may do this here. If not, the test is skipped, and says so.
pub(crate) fn are_there(flags: &[&str]) -> bool {
    let mut unshare = Command::new("unshare");
    unshare.args(flags).arg("true").stderr(Stdio::null());
    let there = unshare.status().is_ok_and(|status| status.success());
    if !there {
        skipped(&format!(
            "`unshare {}` is not allowed here",
            flags.join(" ")
        ));
    }
    there
}
