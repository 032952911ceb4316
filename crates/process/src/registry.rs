//! Whose child is whose, process-wide: one place that reaps orphans and nobody else's children.
//!
//! soloist inherits orphans, as a subreaper or as PID 1. Its own children (guards, and what the program
//! starts through [`own_child`]) are reaped by their owners. All others are reaped here. When a guard is
//! lost, all others are its tree, except the *strangers*: orphans that were here while every guard lived.
//!
//! A library may start a child without a word (a Kubernetes client its credential plugin) and wait for it. It is in our own
//! process group, where no tree begins: a dead one there is left to whoever may have started it for [`LEFT_ALONE`].

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, WaitId, WaitIdOptions, WaitOptions, getpid, waitid, waitpid};
use soloist_clock as clock;
use soloist_core::replica::Exit;
use soloist_core::time::Moment;
use tracing::warn;

use crate::message;
use crate::sweep::Refused;
use crate::{procfs, sweep};

/// Who has started a child has waited for its end by then.
pub(crate) const LEFT_ALONE: Duration = Duration::from_secs(5);

/// Asks whether there is such a child, and whether it has ended, and leaves it as it is.
const NO_REAPING: WaitIdOptions = WaitIdOptions::EXITED
    .union(WaitIdOptions::NOHANG)
    .union(WaitIdOptions::NOWAIT);

static REGISTRY: Mutex<Registry> = Mutex::new(Registry::new());

/// Locked, nobody else reaps or starts a child.
pub(crate) fn lock() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) struct Registry {
    guards: BTreeSet<i32>,
    /// There has been a guard: before the first there was no tree.
    has_had_guard: bool,
    owned: BTreeSet<i32>,
    strangers: BTreeSet<i32>,
    /// Children of guards, in case they come to us.
    watched: BTreeMap<i32, Option<Exit>>,
    /// Trees without a guard that are not known to be empty.
    lost: usize,
    /// Dead children in our own process group, and since when they are known to be dead.
    left_alone: BTreeMap<i32, Moment>,
    /// `/proc` cannot be read, and people know.
    is_blind: bool,
}

impl Registry {
    const fn new() -> Self {
        Self {
            guards: BTreeSet::new(),
            has_had_guard: false,
            owned: BTreeSet::new(),
            strangers: BTreeSet::new(),
            watched: BTreeMap::new(),
            lost: 0,
            left_alone: BTreeMap::new(),
            is_blind: false,
        }
    }

    pub(crate) fn add_guard(&mut self, guard: Pid) {
        self.guards.insert(raw(guard));
        self.has_had_guard = true;
    }

    /// Reaps a guard that has ended; tells whether it has. If so, whom it leaves us counts as its tree until
    /// [`Registry::end_lost`].
    pub(crate) fn reap_guard(&mut self, guard: Pid) -> bool {
        // No such child: somebody else has reaped it. Any other error says nothing about it.
        let ended = waitpid(Some(guard), WaitOptions::NOHANG);
        let gone = matches!(ended, Ok(Some(_)) | Err(Errno::CHILD));
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
        // Who is not noted counts as a lost tree's: nobody is taken for a stranger unseen.
        let Ok(children) = procfs::children(getpid()) else {
            return;
        };
        let adopted = self.adopted(children.pids);
        // Looked at after the list was made: no guard that lives now can have left us anyone by then.
        if self.lost == 0 && self.guards.iter().all(|guard| is_alive(*guard)) {
            self.strangers.extend(adopted.into_iter().map(raw));
        }
    }

    /// Reaps all orphans that have ended. Tells whether any may be somebody's, and is to be looked at again after [`LEFT_ALONE`].
    pub(crate) fn reap_orphans(&mut self) -> bool {
        self.reap(true)
    }

    fn reap(&mut self, leave_some_alone: bool) -> bool {
        // The list costs a dozen system calls, and mostly it is a guard that has ended and is reaped already.
        if !has_dead_child() {
            self.left_alone.clear();
            return false;
        }
        let me = getpid();
        let Ok(procfs::Children { pids: children, .. }) = procfs::children(me) else {
            // Later, then.
            return true;
        };
        self.left_alone
            .retain(|pid, _| children.iter().any(|child| raw(*child) == *pid));
        let own_group = procfs::stat(me).and_then(|stat| stat.group);
        for pid in children {
            if self.is_ours(pid) || leave_some_alone && self.is_left_alone(pid, own_group) {
                continue;
            }
            if let Ok(Some((_, status))) = waitpid(Some(pid), WaitOptions::NOHANG) {
                self.strangers.remove(&raw(pid));
                if let Some(slot) = self.watched.get_mut(&raw(pid)) {
                    *slot = message::exit(status);
                }
            }
        }
        !self.left_alone.is_empty()
    }

    fn is_left_alone(&mut self, pid: Pid, own_group: Option<Pid>) -> bool {
        let ours = procfs::stat(pid).is_some_and(|stat| stat.group == own_group);
        if !ours || is_alive(raw(pid)) {
            self.left_alone.remove(&raw(pid));
            return false;
        }
        let now = clock::now();
        let since = *self.left_alone.entry(raw(pid)).or_insert(now);
        let over = now.since(since) >= LEFT_ALONE;
        if over {
            self.left_alone.remove(&raw(pid));
        }
        !over
    }

    /// One pass of SIGKILL to all that lost trees left us. Tells whether anyone may be left, and whom we may not signal.
    pub(crate) fn kill_lost(&mut self) -> (bool, Refused) {
        let me = getpid();
        let mut refused = Refused::new();
        if let Ok(children) = procfs::children(me) {
            let orphans = self.adopted(children.pids);
            refused = sweep::kill_own(&orphans);
            refused.extend(sweep::kill_below(&orphans, me));
        }
        // Anybody may be one of the lost tree.
        self.reap(false);
        (self.lost_are_left(me), refused)
    }

    /// One pass of SIGKILL to all trees, with or without a guard, of which no task is left that would reap them.
    pub(crate) fn kill_abandoned(&mut self) -> AbandonedPass {
        let me = getpid();
        if !self.has_had_guard {
            return AbandonedPass::nobody();
        }
        let mut refused = Refused::new();
        for guard in self.guards.iter().copied().filter_map(Pid::from_raw) {
            refused.extend(sweep::kill_below(&[guard], guard));
            let is_alone = procfs::children(guard).is_ok_and(|children| children.pids.is_empty());
            let is_stopped = procfs::stat(guard).is_some_and(|stat| stat.stopped);
            if is_alone || is_stopped {
                refused.extend(sweep::kill_own(&[guard]));
            }
        }
        if let Ok(children) = procfs::children(me) {
            let orphans = self.adopted(children.pids);
            refused.extend(sweep::kill_own(&orphans));
            refused.extend(sweep::kill_below(&orphans, me));
        }
        let is_reaped = |guard: &i32| {
            let ended = Pid::from_raw(*guard).map(|pid| waitpid(Some(pid), WaitOptions::NOHANG));
            matches!(ended, Some(Ok(Some(_)) | Err(Errno::CHILD)))
        };
        self.guards.retain(|guard| !is_reaped(guard));
        self.reap(false);
        AbandonedPass {
            left: self.abandoned_left(me),
            refused,
        }
    }

    /// Guards, and what they left us; `None` if nobody can tell.
    fn abandoned_left(&self, me: Pid) -> Option<Vec<Pid>> {
        if matches!(waitid(WaitId::All, NO_REAPING), Err(Errno::CHILD)) {
            return Some(Vec::new());
        }
        let mut left = self.adopted(own_children(me).ok()?);
        left.sort_unstable_by_key(|pid| raw(*pid));
        left.dedup();
        left.extend(self.guards.iter().copied().filter_map(Pid::from_raw));
        Some(left)
    }

    fn lost_are_left(&mut self, me: Pid) -> bool {
        if matches!(waitid(WaitId::All, NO_REAPING), Err(Errno::CHILD)) {
            return false;
        }
        // There are others, so it takes the lists, which may miss somebody who comes or goes. Both ways.
        let left = match own_children(me) {
            Ok(children) => !self.adopted(children).is_empty(),
            Err(error) => {
                if !self.is_blind {
                    warn!(
                        "/proc cannot be read, so nobody knows what is left of the child's tree: {error}. Until it can be, the \
                         lease is not released and no child is started here"
                    );
                }
                self.is_blind = true;
                return true;
            }
        };
        self.is_blind = false;
        left
    }

    fn adopted(&self, children: Vec<Pid>) -> Vec<Pid> {
        let adopted = |pid: &Pid| !self.is_ours(*pid) && !self.strangers.contains(&raw(*pid));
        children.into_iter().filter(adopted).collect()
    }

    fn is_ours(&self, pid: Pid) -> bool {
        self.guards.contains(&raw(pid)) || self.owned.contains(&raw(pid))
    }
}

/// What one pass over abandoned trees has come to.
pub(crate) struct AbandonedPass {
    /// `None` if nobody can tell.
    pub(crate) left: Option<Vec<Pid>>,
    pub(crate) refused: Refused,
}

impl AbandonedPass {
    const fn nobody() -> Self {
        Self {
            left: Some(Vec::new()),
            refused: Refused::new(),
        }
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

/// Whether this process is a child that somebody owns.
#[must_use]
pub fn is_own_child(pid: u32) -> bool {
    lock().owned.contains(&pid.cast_signed())
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

/// Whether there is anyone to reap.
fn has_dead_child() -> bool {
    matches!(waitid(WaitId::All, NO_REAPING), Ok(Some(_)))
}

/// Our children: those that the kernel lists as ours, and those of all processes that it lets us wait for. No child of
/// another namespace's `/proc` is taken for ours, nor its absence for theirs.
fn own_children(me: Pid) -> io::Result<Vec<Pid>> {
    let mut found = procfs::children(me)?.pids;
    let is_child = |pid: &Pid| !matches!(waitid(WaitId::Pid(*pid), NO_REAPING), Err(Errno::CHILD));
    found.extend(procfs::processes()?.into_iter().filter(is_child));
    // Looked at last: it was the right one all the time.
    match procfs::is_ours() {
        true => Ok(found),
        false => Err(io::Error::other(
            "it is not there, or of another PID namespace",
        )),
    }
}

fn is_alive(child: i32) -> bool {
    let Some(pid) = Pid::from_raw(child) else {
        return false;
    };
    matches!(waitid(WaitId::Pid(pid), NO_REAPING), Ok(None))
}

fn raw(pid: Pid) -> i32 {
    pid.as_raw_nonzero().get()
}
