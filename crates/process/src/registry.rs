//! Whose child is whose, process-wide: one place that reaps orphans and nobody else's children.
//!
//! soloist inherits orphans, as a subreaper or as PID 1. Its own children (guards, and what the program
//! starts through [`own_child`]) are reaped by their owners. All others are reaped here. When a guard is
//! lost, all others are its tree, except the *strangers*: orphans that were here while every guard lived.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, WaitOptions, getpid, waitid, waitpid};
use soloist_core::replica::Exit;

use crate::message;
use crate::{procfs, sweep};

static REGISTRY: Mutex<Registry> = Mutex::new(Registry::new());

/// Locked, nobody else reaps or starts a child.
pub(crate) fn lock() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) struct Registry {
    guards: BTreeSet<i32>,
    owned: BTreeSet<i32>,
    strangers: BTreeSet<i32>,
    /// Children of guards, in case they come to us.
    watched: BTreeMap<i32, Option<Exit>>,
    /// Trees without a guard that are not known to be empty.
    lost: usize,
}

impl Registry {
    const fn new() -> Self {
        Self {
            guards: BTreeSet::new(),
            owned: BTreeSet::new(),
            strangers: BTreeSet::new(),
            watched: BTreeMap::new(),
            lost: 0,
        }
    }

    pub(crate) fn add_guard(&mut self, guard: Pid) {
        self.guards.insert(raw(guard));
    }

    /// Reaps a guard that has ended; tells whether it has. If so, whom it leaves us counts as its tree until
    /// [`Registry::end_lost`].
    pub(crate) fn reap_guard(&mut self, guard: Pid) -> bool {
        let gone = !matches!(waitpid(Some(guard), WaitOptions::NOHANG), Ok(None));
        if gone {
            self.guards.remove(&raw(guard));
            self.lost += 1;
        }
        gone
    }

    /// Nobody waits for this guard any more: it is an orphan like others.
    pub(crate) fn forget_guard(&mut self, guard: Pid) {
        self.guards.remove(&raw(guard));
    }

    /// Whether it is one of ours and unreaped, so that its number is its own.
    pub(crate) fn has_guard(&self, guard: Pid) -> bool {
        self.guards.contains(&raw(guard))
    }

    /// Remembers how this process ended, should it be reaped here.
    pub(crate) fn watch(&mut self, pid: u32) {
        self.watched.insert(pid.cast_signed(), None);
    }

    /// How a watched process ended, if it was reaped here.
    pub(crate) fn exit_of(&self, pid: u32) -> Option<Exit> {
        self.watched.get(&pid.cast_signed()).copied().flatten()
    }

    pub(crate) fn unwatch(&mut self, pid: u32) {
        self.watched.remove(&pid.cast_signed());
    }

    pub(crate) fn end_lost(&mut self) {
        self.lost = self.lost.saturating_sub(1);
    }

    /// Remembers who is here although no tree has lost its guard.
    pub(crate) fn note_strangers(&mut self) {
        let adopted = self.adopted(procfs::children(getpid()).pids);
        // Looked at after the list was made: no guard that lives now can have left us anyone by then.
        if self.lost == 0 && self.guards.iter().all(|guard| is_alive(*guard)) {
            self.strangers.extend(adopted.into_iter().map(raw));
        }
    }

    /// Reaps all orphans that have ended.
    pub(crate) fn reap_orphans(&mut self) {
        let children = procfs::children(getpid()).pids;
        for pid in children {
            if self.is_ours(pid) {
                continue;
            }
            if let Ok(Some((_, status))) = waitpid(Some(pid), WaitOptions::NOHANG) {
                self.strangers.remove(&raw(pid));
                if let Some(slot) = self.watched.get_mut(&raw(pid)) {
                    *slot = message::exit(status);
                }
            }
        }
    }

    /// One pass of SIGKILL to all that lost trees left us. Tells whether anyone is left.
    pub(crate) fn kill_lost(&mut self) -> bool {
        let me = getpid();
        let orphans = self.adopted(procfs::children(me).pids);
        sweep::kill_own(&orphans);
        sweep::kill_below(&orphans, me);
        self.reap_orphans();
        self.lost_are_left(me)
    }

    fn lost_are_left(&self, me: Pid) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if matches!(waitid(WaitId::All, options), Err(Errno::CHILD)) {
            return false;
        }
        // There are others, so it takes the lists, which may miss somebody who comes or goes. Both ways.
        !self.adopted(procfs::children(me).pids).is_empty()
            || !self.adopted(procfs::scanned(me)).is_empty()
    }

    fn adopted(&self, children: Vec<Pid>) -> Vec<Pid> {
        let adopted = |pid: &Pid| !self.is_ours(*pid) && !self.strangers.contains(&raw(*pid));
        children.into_iter().filter(adopted).collect()
    }

    fn is_ours(&self, pid: Pid) -> bool {
        self.guards.contains(&raw(pid)) || self.owned.contains(&raw(pid))
    }
}

/// Starts a child of the program's own, which is not reaped here but by the caller: `tokio::process`,
/// `std::process`. `id` tells its number.
///
/// It stays the caller's until the [`OwnChild`] is dropped, which must not be before it has been reaped.
///
/// # Errors
/// Those of `spawn`.
pub fn own_child<T>(
    spawn: impl FnOnce() -> io::Result<T>,
    id: impl FnOnce(&T) -> Option<u32>,
) -> io::Result<(T, OwnChild)> {
    let mut registry = lock();
    let child = spawn()?;
    let pid = id(&child).map(u32::cast_signed);
    registry.owned.extend(pid);
    Ok((child, OwnChild(pid)))
}

/// Keeps a child from being reaped by anyone but its owner.
#[derive(Debug)]
pub struct OwnChild(Option<i32>);

impl Drop for OwnChild {
    fn drop(&mut self) {
        if let Some(pid) = self.0 {
            lock().owned.remove(&pid);
        }
    }
}

fn is_alive(child: i32) -> bool {
    let Some(pid) = Pid::from_raw(child) else {
        return false;
    };
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    matches!(waitid(WaitId::Pid(pid), options), Ok(None))
}

fn raw(pid: Pid) -> i32 {
    pid.as_raw_nonzero().get()
}
