//! Whom this process may signal, and what to say of whom it may not.

use std::fs;

use rustix::process::geteuid;
use rustix::thread::{CapabilitySet, capabilities};

/// Whether this process may signal those of any user.
fn may_signal_anyone() -> bool {
    has(CapabilitySet::KILL)
}

/// Says at the start what may go wrong, as far as that can be known: a child that can become another user could not be
/// stopped.
pub(crate) fn warn_of_missing() {
    if has(CapabilitySet::SETUID) && !may_signal_anyone() {
        tracing::warn!(
            "soloist has the capability CAP_SETUID, but not CAP_KILL: a child that becomes another user (gosu, su-exec, setpriv) could \
             neither be stopped nor killed by it. Add CAP_KILL, or take CAP_SETUID away"
        );
    }
}

/// Says that a process may not be signalled.
pub(crate) fn tell_not_permitted(pid: u32) {
    let field = |of: &str| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix(of))?;
        Some(line.split_whitespace().next()?.to_owned())
    };
    let unknown = || "unknown".to_owned();
    let name = field("Name:").unwrap_or_else(unknown);
    let user = field("Uid:").unwrap_or_else(unknown);
    let own = geteuid().as_raw();
    tracing::error!(
        "process {pid} ({name}) of user {user} may not be signalled by soloist, which is user {own} and does not have the capability \
         CAP_KILL. While it lives, the lease is kept and no child is started anywhere. End it by hand; then give soloist CAP_KILL, or let \
         soloist itself start the child as that user (--user {user}), also with CAP_KILL, or let the child stay the user that it was \
         started as"
    );
}

/// Whether this process has one of the capabilities that another user for the child takes.
pub(crate) fn has_named(name: &str) -> bool {
    match name {
        "CAP_SETUID" => has(CapabilitySet::SETUID),
        "CAP_SETGID" => has(CapabilitySet::SETGID),
        "CAP_KILL" => may_signal_anyone(),
        _ => false,
    }
}

fn has(capability: CapabilitySet) -> bool {
    capabilities(None).is_ok_and(|sets| sets.effective.contains(capability))
}
