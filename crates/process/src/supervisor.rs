//! Starting trees, and reaping what nobody else reaps.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{getpid, set_child_subreaper};
use soloist_core::replica::SpawnFailure;
use soloist_core::time::Moment;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;

use crate::command::Command;
use crate::registry;
use crate::tree::{self, Tree};
use crate::{guard, inherited, procfs, sys};

/// Makes this process inherit and reap orphans, and starts trees in it.
///
/// Orphans are reaped for as long as one supervisor lives.
#[derive(Debug)]
pub struct Supervisor {
    guard: PathBuf,
    reaper: JoinHandle<()>,
}

/// Why there is no supervisor.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The program would not recognise its own guards.
    #[error("`soloist_process::guard::run_if_guard` must be called first thing in `main`")]
    NotPrepared,
    /// Descendants could not be found.
    #[error("/proc is not mounted, or is that of another PID namespace")]
    Proc,
    /// SIGCHLD cannot be listened to.
    #[error("cannot listen to SIGCHLD")]
    Signal(#[source] io::Error),
    /// The process cannot become a subreaper.
    #[error("cannot become the reaper of orphans")]
    Subreaper(#[source] io::Error),
}

/// Why there is no guard, and hence no child.
#[derive(Debug, thiserror::Error)]
#[error("the guard cannot be started: {step}")]
pub struct StartError {
    step: &'static str,
    #[source]
    source: io::Error,
}

impl StartError {
    fn new(step: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self { step, source }
    }

    /// In the words of the replica.
    #[must_use]
    pub fn failure(&self) -> SpawnFailure {
        match self.source.kind() {
            // An argument or a variable that no program can be given.
            io::ErrorKind::InvalidInput | io::ErrorKind::ArgumentListTooLong => {
                SpawnFailure::NotExecutable
            }
            _ => SpawnFailure::System,
        }
    }
}

impl Supervisor {
    /// A supervisor whose guards are this very program. Must be called in a tokio runtime with I/O and
    /// time enabled.
    ///
    /// # Errors
    /// When [`guard::run_if_guard`] was not called at the start, or the system will not.
    pub fn new() -> Result<Self, SetupError> {
        if !guard::is_prepared() {
            return Err(SetupError::NotPrepared);
        }
        // A link to the file itself: it works after an upgrade has put another in its place.
        Self::with_guard_program("/proc/self/exe")
    }

    /// A supervisor whose guards are another program, which calls [`guard::run_if_guard`] and is built from
    /// the same version of this crate.
    ///
    /// # Errors
    /// As [`Supervisor::new`].
    pub fn with_guard_program(program: impl AsRef<Path>) -> Result<Self, SetupError> {
        inherited::found();
        if !procfs::is_ours() {
            return Err(SetupError::Proc);
        }
        let mut children = signal(SignalKind::child()).map_err(SetupError::Signal)?;
        set_child_subreaper(Some(getpid())).map_err(|errno| SetupError::Subreaper(errno.into()))?;
        let reaper = tokio::spawn(async move {
            loop {
                registry::lock().reap_orphans();
                if children.recv().await.is_none() {
                    break;
                }
            }
        });
        Ok(Self {
            guard: program.as_ref().to_owned(),
            reaper,
        })
    }

    /// Starts a guard that is armed with `deadline`, and lets it start the child.
    ///
    /// # Errors
    /// When the guard cannot be started. What becomes of the child is told by [`Tree::next_event`].
    pub fn spawn(&self, command: &Command, deadline: Moment) -> Result<Tree, StartError> {
        let tree = self.prepare(command)?;
        tree.set_deadline(deadline);
        Ok(tree)
    }

    /// Starts a guard that waits: it starts the child when it gets its first deadline
    /// ([`Tree::set_deadline`]), so that its owner can make it known before there is a child.
    ///
    /// # Errors
    /// When the guard cannot be started.
    pub fn prepare(&self, command: &Command) -> Result<Tree, StartError> {
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )
        .map_err(|errno| StartError::new("no socket pair")(errno.into()))?;
        let ours = Arc::new(ours);
        let link = tree::Link::new(ours).map_err(StartError::new("no watch on its socket"))?;

        let mut guard = std::process::Command::new(&self.guard);
        guard
            .arg0(guard::NAME)
            .args(guard::arguments(theirs.as_raw_fd(), command))
            // A group of its own: who kills soloist's group shall not kill its guard.
            .process_group(0);
        for (name, value) in &command.env {
            match value {
                Some(value) => guard.env(name, value),
                None => guard.env_remove(name),
            };
        }
        sys::start_blocked_with(&mut guard, &theirs);

        let mut registry = registry::lock();
        registry.note_strangers();
        let guard = guard.spawn().map_err(StartError::new("no process"))?;
        let pid = rustix::process::Pid::from_child(&guard);
        registry.add_guard(pid);
        drop(registry);
        Ok(Tree::watch(pid, link))
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.reaper.abort();
    }
}
