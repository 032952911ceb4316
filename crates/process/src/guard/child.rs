//! Starting the child.

#![allow(unsafe_code)]

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal, setpgid};
use soloist_core::replica::SpawnFailure;

use super::Job;
use crate::message::{SpawnError, SpawnStep};
use crate::sys::{self, Forked};

/// A child that exists, and may or may not have become its program.
pub(super) struct Child {
    pub(super) pid: Pid,
    /// Closes when the program has begun; says why if it cannot.
    exec: Option<OwnedFd>,
}

/// What has become of a child that was to become its program.
pub(super) enum Exec {
    Pending,
    Done,
    Failed(i32),
}

impl Child {
    /// Forks; the guard must have one thread.
    pub(super) fn fork(job: &Job) -> Result<Self, SpawnError> {
        let system = |errno: Errno| system(SpawnStep::Program, errno.raw_os_error());
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(system)?;
        let guard = getpid();
        // SAFETY: the guard has one thread.
        let forked = unsafe { sys::fork() }.map_err(system)?;
        match forked {
            Forked::Child => become_program(job, guard, &write),
            Forked::Parent(pid) => {
                // The child does the same: whoever is first, the group is there before anyone signals it.
                let _ = setpgid(Some(pid), Some(pid));
                Ok(Self {
                    pid,
                    exec: Some(read),
                })
            }
        }
    }

    /// The descriptor to wait for while the exec is pending.
    pub(super) fn exec_descriptor(&self) -> Option<&OwnedFd> {
        self.exec.as_ref()
    }

    /// Tells once what became of the exec.
    pub(super) fn exec(&mut self) -> Exec {
        let Some(pipe) = &self.exec else {
            return Exec::Pending;
        };
        let mut errno = [0; 4];
        let outcome = match rustix::io::retry_on_intr(|| rustix::io::read(pipe, &mut errno)) {
            Err(Errno::AGAIN) => return Exec::Pending,
            Ok(4) => Exec::Failed(i32::from_le_bytes(errno)),
            _ => Exec::Done,
        };
        self.exec = None;
        outcome
    }
}

fn become_program(job: &Job, guard: Pid, report: &OwnedFd) -> ! {
    let _ = setpgid(None, None);
    let bound = set_parent_process_death_signal(Some(Signal::KILL));
    // The guard may have died before that.
    if getppid() != Some(guard) {
        sys::exit_now(127);
    }
    let errno = match bound {
        Ok(()) => {
            job.inherited.restore();
            sys::exec(&job.argv)
        }
        Err(errno) => errno.raw_os_error(),
    };
    let _ = rustix::io::write(report, &errno.to_le_bytes());
    sys::exit_now(127);
}

/// What it means that the program cannot be run.
pub(super) fn classify(program: &OsStr, errno: i32) -> SpawnError {
    let (failure, step) = match errno {
        libc::ENOENT if exists(program) => (SpawnFailure::NotExecutable, SpawnStep::Interpreter),
        libc::ENOENT => (SpawnFailure::NotFound, SpawnStep::Program),
        // A directory of the PATH that may not be searched, and no such program in the others.
        libc::EACCES if is_bare(program) && !exists(program) => {
            (SpawnFailure::NotFound, SpawnStep::Program)
        }
        libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE | libc::EIO => {
            (SpawnFailure::System, SpawnStep::Program)
        }
        _ => (SpawnFailure::NotExecutable, SpawnStep::Program),
    };
    SpawnError {
        failure,
        step,
        errno,
    }
}

/// The system would not.
pub(super) fn system(step: SpawnStep, errno: i32) -> SpawnError {
    SpawnError {
        failure: SpawnFailure::System,
        step,
        errno,
    }
}

/// Looked up in the PATH.
fn is_bare(program: &OsStr) -> bool {
    !program.as_bytes().contains(&b'/')
}

fn exists(program: &OsStr) -> bool {
    if program.is_empty() {
        return false;
    }
    if !is_bare(program) {
        return Path::new(program).exists();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).exists())
}
