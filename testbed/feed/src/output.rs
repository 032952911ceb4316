//! Where a consumer writes: one line for each message, in order.
//!
//! A line is `position token term payload`, the payload in hexadecimal digits. It is written whole or, when the process
//! is killed in the middle, cut off when the file is next opened.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use soloist_worker::{Term, Token};

pub use line::{Line, LineError};

mod line;
mod tail;

/// The output file, held by this process alone.
#[derive(Debug)]
pub struct Output {
    file: File,
    path: PathBuf,
    token: Token,
    term: Term,
    last: u64,
    length: u64,
    buffer: Vec<u8>,
}

/// Why the output cannot be opened or written.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// It cannot be opened, read or written.
    #[error("cannot {what} the output {}: {cause}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
    /// Another process has it open.
    #[error(
        "two at once: another process holds the output {}; find it with `fuser` and see why two workers run",
        path.display()
    )]
    Held {
        /// The file.
        path: PathBuf,
    },
    /// A later term has written to it.
    #[error(
        "the output {} has lines of token {found}, and ours is {token}: a later leader was at work, and this one must stop",
        path.display()
    )]
    Stale {
        /// The file.
        path: PathBuf,
        /// Ours.
        token: Token,
        /// That of its last line.
        found: Token,
    },
    /// Its last line is whole, and none of ours.
    #[error(
        "the last line of {} cannot be read: {cause}; is this the right file? Move it away to begin a new one",
        path.display()
    )]
    Line {
        /// The file.
        path: PathBuf,
        /// What is wrong with the line.
        cause: LineError,
    },
    /// The message is not the next one.
    #[error("the message at {position} does not follow the one at {last}, the last in the output")]
    OutOfOrder {
        /// That of the message.
        position: u64,
        /// The last in the output.
        last: u64,
    },
}

impl Output {
    /// Opens the file or creates it, takes it for this process alone, and cuts off a torn last line.
    ///
    /// # Errors
    /// When another process holds it, a later term has written to it, or it cannot be read or written.
    pub fn open(path: impl Into<PathBuf>, token: Token, term: Term) -> Result<Self, OutputError> {
        let path = path.into();
        let failed = |what| on(&path, what);
        let mut options = OpenOptions::new();
        let file = options.read(true).append(true).create(true).open(&path);
        let file = file.map_err(failed("open"))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(OutputError::Held { path }),
            Err(TryLockError::Error(cause)) => return Err(failed("lock")(cause)),
        }
        let tail = tail::read(&file).map_err(failed("read"))?;
        if tail.is_torn {
            file.set_len(tail.end).map_err(failed("truncate"))?;
        }
        let mut last = 0;
        if let Some(line) = tail.line {
            match Line::parse(&line) {
                Ok(line) if line.token > token => {
                    let found = line.token;
                    return Err(OutputError::Stale { path, token, found });
                }
                Ok(line) => last = line.position,
                Err(cause) => return Err(OutputError::Line { path, cause }),
            }
        }
        Ok(Self {
            file,
            path,
            token,
            term,
            last,
            length: tail.end,
            buffer: Vec::new(),
        })
    }

    /// The last position in the file; 0 when it is empty.
    #[must_use]
    pub const fn last(&self) -> u64 {
        self.last
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes one message. When this returns, the end of the process loses nothing; for a loss of power see
    /// [`sync`](Self::sync).
    ///
    /// # Errors
    /// When the message is not the next one, or the file cannot be written. Then the file is as it was.
    pub fn append(&mut self, position: u64, payload: &[u8]) -> Result<(), OutputError> {
        self.append_all([(position, payload)])
    }

    /// As [`append`](Self::append), for several messages with one write: all or none.
    ///
    /// # Errors
    /// When one of them does not follow on the one before, or the file cannot be written. Then the file is as it was.
    pub fn append_all<'a>(
        &mut self,
        messages: impl IntoIterator<Item = (u64, &'a [u8])>,
    ) -> Result<(), OutputError> {
        let mut last = self.last;
        self.buffer.clear();
        for (position, payload) in messages {
            if Some(position) != last.checked_add(1) {
                return Err(OutputError::OutOfOrder { position, last });
            }
            line::write(&mut self.buffer, position, self.token, self.term, payload);
            last = position;
        }
        if let Err(cause) = self.file.write_all(&self.buffer) {
            // A full disk may have taken a part of it. If this fails as well, the next `open` does it.
            let _ = self.file.set_len(self.length);
            return Err(on(&self.path, "write to")(cause));
        }
        self.length += self.buffer.len() as u64;
        self.last = last;
        Ok(())
    }

    /// To sync from another thread, while this one goes on appending.
    ///
    /// # Errors
    /// When the file cannot be opened once more.
    pub fn syncer(&self) -> Result<Syncer, OutputError> {
        let file = self.file.try_clone();
        Ok(Syncer {
            file: file.map_err(on(&self.path, "open"))?,
            path: self.path.clone(),
        })
    }

    /// Waits until all that was appended survives a loss of power.
    ///
    /// # Errors
    /// When the system cannot promise it.
    pub fn sync(&self) -> Result<(), OutputError> {
        self.file.sync_data().map_err(on(&self.path, "sync"))
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        // To close the file is not enough: a process that is just being forked has it open too, until it runs its program.
        let _ = self.file.unlock();
    }
}

/// Syncs an output.
#[derive(Debug)]
pub struct Syncer {
    file: File,
    path: PathBuf,
}

impl Syncer {
    /// As [`Output::sync`].
    ///
    /// # Errors
    /// When the system cannot promise it.
    pub fn sync(&self) -> Result<(), OutputError> {
        self.file.sync_data().map_err(on(&self.path, "sync"))
    }
}

fn on(path: &Path, what: &'static str) -> impl Fn(io::Error) -> OutputError {
    move |cause| OutputError::Io {
        what,
        path: path.to_owned(),
        cause,
    }
}

#[cfg(test)]
mod tests;
