//! Signals to everybody below a process, however they detached themselves.
//!
//! One pass may miss who is born meanwhile. The caller goes on until nobody is left: whoever loses its
//! parent becomes a child of the reaper, who sees it in the next pass.

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, kill_process, pidfd_open, pidfd_send_signal};

use crate::procfs::{self, Stat};
use crate::signal::Signal;
use crate::sys;

/// SIGKILL to the given children of the calling process, which must be their only reaper and not reap
/// meanwhile: an unreaped child keeps its number, so nobody else can be hit.
pub(crate) fn kill_own(children: &[Pid]) {
    for pid in children {
        let _ = kill_process(*pid, rustix::process::Signal::KILL);
    }
}

/// SIGKILL to everybody below `roots`, the roots not included. `reaper` is who inherits orphans among them.
pub(crate) fn kill_below(roots: &[Pid], reaper: Pid) {
    visit(roots, reaper, &mut |_, process| {
        let _ = process.signal(Signal::KILL);
    });
}

/// A signal to everybody below `root` in this process group.
pub(crate) fn signal_group_below(root: Pid, group: Pid, signal: Signal) {
    visit(&[root], root, &mut |stat, process| {
        if stat.group == Some(group) {
            let _ = process.signal(signal);
        }
    });
}

struct Process(std::os::fd::OwnedFd);

impl Process {
    fn signal(&self, signal: Signal) -> Result<(), Errno> {
        pidfd_send_signal(&self.0, sys::raw(signal))
    }
}

fn visit(roots: &[Pid], reaper: Pid, act: &mut dyn FnMut(Stat, &Process)) {
    let mut parents = roots.to_vec();
    while let Some(parent) = parents.pop() {
        let children = procfs::children(parent);
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
                act(stat, &Process(process));
            }
        }
    }
}
