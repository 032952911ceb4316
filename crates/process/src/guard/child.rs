//! Starting the child.

#![allow(unsafe_code)]

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal, setpgid};
use soloist_core::replica::SpawnFailure;

use super::job::Setup;
use super::program::Program;
use crate::message::{SpawnError, SpawnStep};
use crate::sys::{self, Forked};
use crate::user::User;

/// A child that exists, and may or may not have become its program.
pub(super) struct Child {
    pub(super) pid: Pid,
    program: Program,
    /// Closes when the program has begun; says why if it cannot.
    exec: Option<OwnedFd>,
}

/// Marks the number of an error that is about the user, and not about the program.
const OF_THE_USER: i32 = 1 << 16;

/// What has become of a child that was to become its program.
pub(super) enum Exec {
    Pending,
    Done,
    Failed(i32),
}

impl Child {
    /// Forks; the guard must have one thread.
    pub(super) fn fork(mut program: Program, setup: &Setup) -> Result<Self, SpawnError> {
        let system = |errno: Errno| system(SpawnStep::Program, errno.raw_os_error());
        let (read, write) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(system)?;
        let guard = getpid();
        // SAFETY: the guard has one thread.
        let forked = unsafe { sys::fork() }.map_err(system)?;
        match forked {
            Forked::Child => become_program(&mut program, setup, guard, &write),
            Forked::Parent(pid) => {
                // The child does the same: whoever is first, the group is there before anyone signals it.
                enter_group(Some(pid), setup.group);
                Ok(Self {
                    pid,
                    program,
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

    /// What it means that the program cannot be run.
    pub(super) fn cannot_run(&self, errno: i32) -> SpawnError {
        let of_the_user = errno & OF_THE_USER != 0;
        let errno = errno & !OF_THE_USER;
        let (failure, step) = match errno {
            errno if of_the_user => (failure(errno), SpawnStep::User),
            libc::ENOENT if self.program.exists() => {
                (SpawnFailure::NotExecutable, SpawnStep::Interpreter)
            }
            // A directory of the PATH that may not be searched, and no such program in the others.
            libc::EACCES if self.program.is_bare() && !self.program.exists() => {
                (SpawnFailure::NotFound, SpawnStep::Program)
            }
            errno => (failure(errno), SpawnStep::Program),
        };
        SpawnError {
            failure,
            step,
            errno,
        }
    }
}

/// Between fork and exec: system calls only, nothing is allocated.
fn become_program(program: &mut Program, setup: &Setup, guard: Pid, report: &OwnedFd) -> ! {
    enter_group(None, setup.group);
    // It may take a privilege, so it comes before another user.
    setup.inherited.restore_limits();
    let user = setup.user.as_ref().map_or(Ok(()), User::assume);
    // After that, because another user sheds it.
    let bound = set_parent_process_death_signal(Some(Signal::KILL));
    // The guard may have died before that.
    if getppid() != Some(guard) {
        sys::exit_now(127);
    }
    let errno = match user.map_err(|errno| errno.raw_os_error() | OF_THE_USER) {
        Ok(()) => match bound {
            Ok(()) => {
                setup.inherited.restore_signals();
                program.image().exec()
            }
            Err(errno) => errno.raw_os_error(),
        },
        Err(errno) => errno,
    };
    let _ = rustix::io::write(report, &errno.to_le_bytes());
    sys::exit_now(127);
}

/// The group that is wanted, or one of its own.
fn enter_group(child: Option<Pid>, wanted: Option<Pid>) {
    if wanted.is_none() || setpgid(child, wanted).is_err() {
        let _ = setpgid(child, child);
    }
}

/// What it means that the working directory cannot be entered.
pub(super) fn cannot_enter(errno: i32) -> SpawnError {
    SpawnError {
        failure: failure(errno),
        step: SpawnStep::WorkingDirectory,
        errno,
    }
}

fn failure(errno: i32) -> SpawnFailure {
    match errno {
        libc::ENOENT => SpawnFailure::NotFound,
        libc::EAGAIN | libc::ENOMEM | libc::EMFILE | libc::ENFILE | libc::EIO => {
            SpawnFailure::System
        }
        _ => SpawnFailure::NotExecutable,
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
