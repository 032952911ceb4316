//! Who has sent a datagram, as the kernel tells it.

use std::io;
use std::os::fd::AsFd;

use rustix::net::{SendFlags, SocketAddrUnix, sendto};
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

/// A datagram that was received.
#[derive(Clone, Debug)]
pub struct Received {
    /// So many bytes are in the buffer.
    pub length: usize,
    /// Only if the socket was told to ask (`SO_PASSCRED`).
    pub sender: Option<Sender>,
    /// Where an answer can be sent, if the sender has bound its socket.
    pub from: Option<ReturnAddress>,
}

/// The address of a socket that has sent something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReturnAddress(SocketAddrUnix);

/// Receives one datagram without waiting. Descriptors that came along are closed.
///
/// # Errors
/// Those of `recvmsg`.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Received> {
    let datagram = sys::receive(socket.as_fd(), buffer)?;
    let sender = datagram.credentials.map(|credentials| Sender {
        pid: Some(credentials.pid)
            .filter(|pid| *pid > 0)
            .and_then(Pid::from_raw),
        uid: credentials.uid,
    });
    Ok(Received {
        length: datagram.length,
        sender,
        from: ReturnAddress::new(&datagram.name),
    })
}

impl ReturnAddress {
    fn new(name: &[u8]) -> Option<Self> {
        let address = match name {
            [] => return None,
            [0, name @ ..] => SocketAddrUnix::new_abstract_name(name),
            // The kernel counts the byte that ends it, or does not.
            path => SocketAddrUnix::new(path.split(|byte| *byte == 0).next()?),
        };
        address.ok().map(Self)
    }

    /// Sends one datagram there, without waiting.
    ///
    /// # Errors
    /// Those of `sendto`: nobody has that address any more, or no room for it.
    pub fn send(&self, socket: impl AsFd, message: &[u8]) -> io::Result<()> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        sendto(socket, message, flags, &self.0)?;
        Ok(())
    }
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
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixDatagram};
    use std::process::{Command, Stdio};

    use rustix::net::sockopt::set_socket_passcred;

    use super::*;

    fn sent_by_us() -> Sender {
        let (ours, theirs) = UnixDatagram::pair().unwrap();
        set_socket_passcred(&ours, true).unwrap();
        theirs.send(b"READY=1").unwrap();
        let mut buffer = [0; 16];
        let received = receive(&ours, &mut buffer).unwrap();
        assert_eq!(&buffer[..received.length], b"READY=1");
        assert_eq!(received.from, None);
        received.sender.unwrap()
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
        let received = receive(&ours, &mut [0; 16]).unwrap();
        assert_eq!((received.length, received.sender), (1, None));
    }

    #[test]
    fn who_has_bound_its_socket_can_be_answered_at_a_path_and_at_a_name() {
        let folder = tempfile::tempdir().unwrap();
        let ours = UnixDatagram::bind(folder.path().join("ours")).unwrap();
        let by_path = UnixDatagram::bind(folder.path().join("theirs")).unwrap();
        let name = SocketAddr::from_abstract_name(format!("test-{}", std::process::id()));
        let by_name = UnixDatagram::bind_addr(&name.unwrap()).unwrap();
        for theirs in [by_path, by_name] {
            // Nobody else can send to it then.
            theirs.connect(folder.path().join("ours")).unwrap();
            theirs.send(b"hello").unwrap();
            let from = receive(&ours, &mut [0; 16]).unwrap().from.unwrap();
            from.send(&ours, b"answer").unwrap();
            let mut buffer = [0; 16];
            let read = theirs.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..read], b"answer");
            let stranger = UnixDatagram::unbound().unwrap();
            assert!(from.send(&stranger, b"answer").is_err());
            drop(theirs);
            assert!(from.send(&ours, b"answer").is_err());
        }
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
