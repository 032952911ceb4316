//! Who has sent a datagram, as the kernel tells it.

use std::io;
use std::os::fd::AsFd;

use rustix::process::Pid;

use crate::{procfs, sys};

/// The process that has sent a message. It may be gone by now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// `None` if it is in no PID namespace that we can see.
    pid: Option<Pid>,
    uid: u32,
}

/// Where a process stands, seen from a possible ancestor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descent {
    /// It descends from it.
    Below,
    /// It does not.
    Elsewhere,
    /// It is not there any more.
    Gone,
}

/// Ancestors that come and go while they are looked at.
const TRIES: usize = 5;
/// More than any real tree is deep.
const DEEPEST: usize = 1000;

/// Receives one datagram without waiting: its length, and its sender if the socket was told to ask (`SO_PASSCRED`). Descriptors
/// that came along are closed.
///
/// # Errors
/// Those of `recvmsg`.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<(usize, Option<Sender>)> {
    let (read, credentials) = sys::receive(socket.as_fd(), buffer)?;
    let sender = credentials.map(|credentials| Sender {
        pid: Some(credentials.pid)
            .filter(|pid| *pid > 0)
            .and_then(Pid::from_raw),
        uid: credentials.uid,
    });
    Ok((read, sender))
}

impl Sender {
    /// Its number.
    #[must_use]
    pub fn pid(self) -> Option<u32> {
        let pid = self.pid?.as_raw_nonzero().get();
        Some(pid.cast_unsigned())
    }

    /// Its user, when it sent.
    #[must_use]
    pub const fn uid(self) -> u32 {
        self.uid
    }

    /// Whether it descends from this process, for example a guard.
    #[must_use]
    pub fn descent(self, ancestor: u32) -> Descent {
        let Some(pid) = self.pid else {
            return Descent::Elsewhere;
        };
        let ancestor = Pid::from_raw(ancestor.cast_signed());
        let mut tries = (0..TRIES).filter_map(|_| climb(pid, ancestor));
        tries.next().unwrap_or(Descent::Elsewhere)
    }
}

/// `None` if an ancestor has gone meanwhile, so that somebody else is the parent now.
fn climb(from: Pid, ancestor: Option<Pid>) -> Option<Descent> {
    let mut at = Some(from);
    for _ in 0..DEEPEST {
        let Some(pid) = at else {
            return Some(Descent::Elsewhere);
        };
        if at == ancestor {
            return Some(Descent::Below);
        }
        match procfs::try_stat(pid) {
            Ok(Some(stat)) => at = stat.parent,
            Ok(None) if pid == from => return Some(Descent::Gone),
            Ok(None) => return None,
            // Nobody can tell, so it is not believed.
            Err(_) => return Some(Descent::Elsewhere),
        }
    }
    Some(Descent::Elsewhere)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;
    use std::process::{Command, Stdio};

    use rustix::net::sockopt::set_socket_passcred;

    use super::*;

    fn sent_by_us() -> Sender {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        set_socket_passcred(&ours, true).unwrap();
        theirs.send(b"READY=1").unwrap();
        let mut buffer = [0; 16];
        let (read, sender) = receive(&ours, &mut buffer).unwrap();
        assert_eq!(&buffer[..read], b"READY=1");
        sender.unwrap()
    }

    #[test]
    fn the_kernel_says_who_has_sent_it() {
        let sender = sent_by_us();
        assert_eq!(sender.pid(), Some(std::process::id()));
        assert_eq!(sender.uid(), rustix::process::geteuid().as_raw());
    }

    #[test]
    fn who_did_not_ask_is_not_told() {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        theirs.send(b"x").unwrap();
        assert_eq!(receive(&ours, &mut [0; 16]).unwrap(), (1, None));
    }

    #[test]
    fn descent_is_told_from_kinship_and_from_absence() {
        let us = sent_by_us();
        let parent = rustix::process::getppid().unwrap();
        let parent = parent.as_raw_nonzero().get().cast_unsigned();
        assert_eq!(us.descent(parent), Descent::Below);
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        assert_eq!(us.descent(child.id()), Descent::Elsewhere);
        let sender = Sender {
            pid: Some(Pid::from_child(&child)),
            uid: 0,
        };
        assert_eq!(sender.descent(std::process::id()), Descent::Below);
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(sender.descent(std::process::id()), Descent::Gone);
        let outside = Sender { pid: None, uid: 0 };
        assert_eq!(outside.descent(1), Descent::Elsewhere);
    }
}
