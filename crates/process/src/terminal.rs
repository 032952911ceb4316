//! The terminal that soloist was started from, if there is one.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, open};
use rustix::termios::tcgetpgrp;

/// The controlling terminal.
#[derive(Debug)]
pub struct Terminal(OwnedFd);

impl Terminal {
    /// That of this process; `None` for who has none, as most have in containers and under systemd.
    #[must_use]
    pub fn controlling() -> Option<Self> {
        let flags = OFlags::RDONLY | OFlags::NOCTTY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        open("/dev/tty", flags, Mode::empty()).ok().map(Self)
    }

    /// Whether it has been closed since.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        tcgetpgrp(&self.0).is_err()
    }
}

/// Whether this process has a controlling terminal, whatever its standard streams are: its descendants can open it, and only
/// the foreground process group can read from it.
#[must_use]
pub fn has_terminal() -> bool {
    let opened = Terminal::controlling().is_some_and(|terminal| !terminal.is_closed());
    // Where there is no `/dev/tty`.
    opened || tcgetpgrp(std::io::stdin()).is_ok()
}
