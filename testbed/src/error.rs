use std::{io, path::PathBuf, process::ExitStatus, time::Duration};

/// What can go wrong between asking for a control plane and having one.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program that the testbed needs is not installed.
    #[error(transparent)]
    Missing(#[from] crate::Missing),

    /// `go build` failed.
    #[error("building {binary} failed ({status}); the whole output is in {}\n{tail}", log.display())]
    Build {
        /// What was being built.
        binary: &'static str,
        /// How `go` ended.
        status: ExitStatus,
        /// The whole output.
        log: PathBuf,
        /// The last lines of it.
        tail: String,
    },

    /// A disk is full.
    #[error("no space left on the device of {}; free some, or set SOLOIST_TESTBED_CACHE (binaries) or TMPDIR (data) to a larger one", path.display())]
    DiskFull {
        /// What was being written.
        path: PathBuf,
    },

    /// A file operation failed.
    #[error("cannot {doing} {}", path.display())]
    Io {
        /// The operation, as a verb.
        doing: &'static str,
        /// What it was done to.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },

    /// The port that was asked for is in use.
    #[error("port {port} on 127.0.0.1 is taken; choose another, or leave it out to get a free one")]
    PortTaken {
        /// The port.
        port: u16,
    },

    /// All of the testbed's ports are in use.
    #[error("no free port on 127.0.0.1 between {first} and {last}")]
    NoFreePort {
        /// The lowest port tried.
        first: u16,
        /// The highest port tried.
        last: u16,
    },

    /// A process could not be started.
    #[error("cannot start {program}")]
    Spawn {
        /// The program.
        program: String,
        /// Why.
        source: io::Error,
    },

    /// A component ended by itself.
    #[error("{component} ended ({status}); its log is {}\n{tail}", log.display())]
    Exited {
        /// Which.
        component: &'static str,
        /// How it ended.
        status: ExitStatus,
        /// Its log.
        log: PathBuf,
        /// The last lines of it.
        tail: String,
    },

    /// A component did not become ready in time.
    #[error("{component} was not ready after {waited:?}; its log is {}\n{tail}", log.display())]
    NotReady {
        /// Which.
        component: &'static str,
        /// How long it was given.
        waited: Duration,
        /// Its log.
        log: PathBuf,
        /// The last lines of it.
        tail: String,
    },

    /// A program that was run to its end has failed.
    #[error("{command} failed ({status}): {output}")]
    Command {
        /// The program, its arguments and where it ran.
        command: String,
        /// How it ended.
        status: ExitStatus,
        /// What it said on standard error.
        output: String,
    },

    /// No token was made for this user.
    #[error("no token for user {0:?}; name the user in Options::users")]
    UnknownUser(String),

    /// The API server refused a helper's request.
    #[error("cannot {doing}")]
    Kube {
        /// The operation, as a verb.
        doing: &'static str,
        /// The client's error.
        source: Box<kube::Error>,
    },

    /// etcd refused a request.
    #[error("etcd did not {doing}: {answer}")]
    Etcd {
        /// The operation, as a verb.
        doing: &'static str,
        /// What etcd answered.
        answer: String,
    },

    /// Something awaited did not happen in time.
    #[error("{awaited} did not happen within {waited:?}")]
    Timeout {
        /// What was awaited.
        awaited: String,
        /// For how long.
        waited: Duration,
    },
}

impl Error {
    pub(crate) fn io(
        doing: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| match source.kind() {
            io::ErrorKind::StorageFull => Self::DiskFull { path },
            _ => Self::Io {
                doing,
                path,
                source,
            },
        }
    }

    pub(crate) fn kube(doing: &'static str) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self::Kube {
            doing,
            source: Box::new(source),
        }
    }
}

/// The last lines of a log, for an error message.
pub(crate) fn tail(text: &str) -> String {
    const LINES: usize = 25;
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}
