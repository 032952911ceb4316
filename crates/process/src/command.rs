//! What to run.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::signal::Signal;
use crate::user::User;

/// A program with its arguments, and what differs from soloist's own environment.
///
/// Standard input, output and error are soloist's own.
#[derive(Clone, Debug)]
pub struct Command {
    pub(crate) program: OsString,
    pub(crate) args: Vec<OsString>,
    pub(crate) env: Vec<(OsString, Option<OsString>)>,
    pub(crate) cwd: Option<PathBuf>,
    pub(crate) stop_signal: Signal,
    pub(crate) stop_to: StopTo,
    pub(crate) with_caller: bool,
    pub(crate) user: Option<User>,
}

/// Who gets the stop signal first. Who else is left of the tree when the child has ended gets it then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StopTo {
    /// The child's process group.
    #[default]
    Group,
    /// The child itself, which ends the others.
    Child,
}

impl Command {
    /// A program, looked up in the child's `PATH` if its name has no slash.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        Self {
            program: program.as_ref().to_owned(),
            args: Vec::new(),
            env: Vec::new(),
            cwd: None,
            stop_signal: Signal::TERM,
            stop_to: StopTo::default(),
            with_caller: false,
            user: None,
        }
    }

    /// Adds an argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.args
            .extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets a variable.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        let value = Some(value.as_ref().to_owned());
        self.env.push((name.as_ref().to_owned(), value));
        self
    }

    /// Takes a variable away.
    #[must_use]
    pub fn env_remove(mut self, name: impl AsRef<OsStr>) -> Self {
        self.env.push((name.as_ref().to_owned(), None));
        self
    }

    /// Sets the working directory; a relative program is looked up from there.
    #[must_use]
    pub fn current_dir(mut self, dir: impl AsRef<Path>) -> Self {
        self.cwd = Some(dir.as_ref().to_owned());
        self
    }

    /// By which signal it is asked to end: SIGTERM, if nothing else is said.
    #[must_use]
    pub fn stop_signal(mut self, signal: Signal) -> Self {
        self.stop_signal = signal;
        self
    }

    /// Puts the child into the caller's process group instead of one of its own, so that it shares the caller's place in
    /// the foreground of a terminal, or in its background.
    #[must_use]
    pub fn in_callers_group(mut self) -> Self {
        self.with_caller = true;
        self
    }

    /// Runs it as this user, with this user's home as `HOME`.
    #[must_use]
    pub fn user(mut self, user: User) -> Self {
        if let Some(home) = user.home() {
            self.env.push(("HOME".into(), Some(home.clone().into())));
        }
        self.user = Some(user);
        self
    }

    /// Who gets the stop signal.
    #[must_use]
    pub fn stop_to(mut self, to: StopTo) -> Self {
        self.stop_to = to;
        self
    }
}
