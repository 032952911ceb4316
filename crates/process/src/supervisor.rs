//! Starting trees, and reaping what nobody else reaps.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{getpid, set_child_subreaper};
use soloist_core::keepalive::Keepalive;
use soloist_core::replica::SpawnFailure;
use soloist_core::time::Moment;
use soloist_core::timings::{Preset, Timings};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;

use crate::command::Command;
use crate::registry;
use crate::tree::{self, Tree};
use crate::{guard, inherited, privileges, procfs, sys};

/// Makes this process inherit and reap orphans, and starts trees in it.
///
/// Orphans are reaped for as long as one supervisor lives.
#[derive(Debug)]
pub struct Supervisor {
    guard: PathBuf,
    timings: Timings,
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
#[error("there is no guard: {step}")]
pub struct StartError {
    step: &'static str,
    #[source]
    source: io::Error,
}

impl StartError {
    pub(crate) fn new(step: &'static str) -> impl FnOnce(io::Error) -> Self {
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
        privileges::warn_of_missing();
        let mut children = signal(SignalKind::child()).map_err(SetupError::Signal)?;
        set_child_subreaper(Some(getpid())).map_err(|errno| SetupError::Subreaper(errno.into()))?;
        let reaper = tokio::spawn(async move {
            loop {
                let again = registry::lock().reap_orphans();
                tokio::select! {
                    more = children.recv() => if more.is_none() { break },
                    () = tokio::time::sleep(registry::LEFT_ALONE), if again => {}
                }
            }
        });
        Ok(Self {
            guard: program.as_ref().to_owned(),
            timings: Timings::preset(Preset::Standard),
            reaper,
        })
    }

    /// With the timings of this lease: they say how often a guard is asked whether it is there, and for how long it may
    /// leave that unanswered. Without them, the standard ones.
    #[must_use]
    pub fn with_timings(mut self, timings: Timings) -> Self {
        self.timings = timings;
        self
    }

    /// Starts a guard that is armed with `deadline`, and lets it start the child.
    ///
    /// # Errors
    /// When the guard cannot be started. What becomes of the child is told by [`Tree::next_event`].
    pub fn spawn(&self, command: &Command, deadline: Moment) -> Result<Tree, StartError> {
        let tree = self.prepare(command)?;
        tree.start(deadline, &[])?;
        Ok(tree)
    }

    /// Starts a guard that waits: it starts the child when it is told to ([`Tree::start`]), so that it can be made
    /// ready, and known, before there is a child.
    ///
    /// # Errors
    /// When the guard cannot be started.
    pub fn prepare(&self, command: &Command) -> Result<Tree, StartError> {
        if command.with_caller {
            // Who reads from a terminal in the background stops its whole process group by that, and we have a lease to
            // renew. The child finds these signals as we found them.
            sys::ignore_one(libc::SIGTTIN);
            sys::ignore_one(libc::SIGTTOU);
        }
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )
        .map_err(|errno| StartError::new("no socket pair")(errno.into()))?;
        guard::Setup::of(command).send(&ours).map_err(|errno| {
            StartError::new("it was not told how to start the child")(errno.into())
        })?;
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
        Ok(Tree::watch(pid, link, Keepalive::new(&self.timings)))
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.reaper.abort();
    }
}
