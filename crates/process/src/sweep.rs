//! Signals to everybody below a process, however they detached themselves.
//!
//! One pass may miss who is born meanwhile. The caller goes on until nobody is left: whoever loses its
//! parent becomes a child of the reaper, who sees it in the next pass.

use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, kill_process, pidfd_open, pidfd_send_signal};

use crate::procfs::{self, Stat};
use crate::signal::Signal;
use crate::sys;

/// The pause before the next pass of a kill that has taken this long: who forks all the time is outrun, and who cannot die is
/// not asked to a hundred times a second.
pub(crate) fn pause(taken: Duration) -> Duration {
    (taken / 16).clamp(Duration::from_millis(1), Duration::from_millis(100))
}

/// Those whom we may not signal.
pub(crate) type Refused = Vec<Pid>;

/// SIGKILL to the given children of the calling process, which must be their only reaper and not reap
/// meanwhile: an unreaped child keeps its number, so nobody else can be hit.
pub(crate) fn kill_own(children: &[Pid]) -> Refused {
    let refuses = |pid: &Pid| kill_process(*pid, rustix::process::Signal::KILL) == Err(Errno::PERM);
    children.iter().copied().filter(refuses).collect()
}

/// SIGKILL to everybody below `roots`, the roots not included. `reaper` is who inherits orphans among them.
pub(crate) fn kill_below(roots: &[Pid], reaper: Pid) -> Refused {
    let mut refused = Vec::new();
    visit(roots, reaper, &mut |pid, _, process| {
        if process.signal(Signal::KILL) == Err(Errno::PERM) {
            refused.push(pid);
        }
    });
    refused
}

/// A signal to everybody below `root`, who inherits orphans among them, but for those in the group that is to be spared.
pub(crate) fn signal_below(root: Pid, signal: Signal, spared: Option<Pid>) -> Refused {
    let mut refused = Vec::new();
    visit(&[root], root, &mut |pid, stat, process| {
        let spare = spared.is_some() && stat.group == spared;
        if !spare && process.signal(signal) == Err(Errno::PERM) {
            refused.push(pid);
        }
    });
    refused
}

/// A signal to everybody below `root` in this process group.
pub(crate) fn signal_group_below(root: Pid, group: Pid, signal: Signal) -> Refused {
    let mut refused = Vec::new();
    visit(&[root], root, &mut |pid, stat, process| {
        if stat.group == Some(group) && process.signal(signal) == Err(Errno::PERM) {
            refused.push(pid);
        }
    });
    refused
}

struct Process(std::os::fd::OwnedFd);

impl Process {
    fn signal(&self, signal: Signal) -> Result<(), Errno> {
        pidfd_send_signal(&self.0, sys::raw(signal))
    }
}

fn visit(roots: &[Pid], reaper: Pid, act: &mut dyn FnMut(Pid, Stat, &Process)) {
    let mut parents = roots.to_vec();
    while let Some(parent) = parents.pop() {
        // Who cannot be listed now is in one of the next passes.
        let Ok(children) = procfs::children(parent) else {
            continue;
        };
        for pid in children.pids {
            // Without a list by parent every level costs a look at all processes. The next pass finds the
            // deeper ones, as they lose their parents.
            if children.listed {
                parents.push(pid);
            }
            // The descriptor first, then the look: if the number has since gone to a stranger, either the
            // look shows a strange parent or the signal finds nobody.
            let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else {
                continue;
            };
            if let Some(stat) = procfs::stat(pid)
                && (stat.parent == Some(parent) || stat.parent == Some(reaper))
            {
                act(pid, stat, &Process(process));
            }
        }
    }
}
