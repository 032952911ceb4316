//! What soloist and the guard tell each other: one fixed-size packet per message.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use soloist_core::replica::{Exit, SpawnFailure};
use soloist_core::time::Moment;

use crate::signal::Signal;

/// Grows with every change of the messages or of the guard's arguments.
pub(crate) const VERSION: u8 = 1;

const LENGTH: usize = 16;

type Packet = [u8; LENGTH];

/// From soloist to the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The tree dies at this moment, unless another is given. The first order of all.
    Deadline(Moment),
    /// SIGKILL to every process of the tree.
    Kill,
    /// A signal to the child itself.
    Signal(Signal),
    /// A signal to the child's group, and SIGCONT so that it can be heard.
    Stop(Signal),
}

/// From the guard to soloist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    Started { pid: u32 },
    SpawnFailed(SpawnError),
    Exited(Exit),
    Empty,
}

/// Why the child could not be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{step}: {}", std::io::Error::from_raw_os_error(*errno))]
pub struct SpawnError {
    /// For exit codes and for whether to try again.
    pub failure: SpawnFailure,
    /// What it was about.
    pub step: SpawnStep,
    /// The system's own word.
    pub errno: i32,
}

/// What could not be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpawnStep {
    /// The guard could not set itself up.
    Guard,
    /// The working directory could not be entered.
    WorkingDirectory,
    /// The program is there, but not the interpreter that it names.
    Interpreter,
    /// The program could not be run.
    Program,
}

impl std::fmt::Display for SpawnStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Guard => "the guard could not set itself up",
            Self::WorkingDirectory => "the working directory cannot be entered",
            Self::Interpreter => "the interpreter that the program names cannot be found",
            Self::Program => "the program cannot be run",
        })
    }
}

/// What came out of the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received<T> {
    Message(T),
    /// Nothing yet.
    Nothing,
    /// Nothing any more: the other end is closed, or does not speak our language.
    Closed,
}

impl Order {
    pub(crate) fn send(self, socket: &OwnedFd) -> Result<(), Errno> {
        send_packet(socket, self.encode())
    }

    pub(crate) fn receive(socket: &OwnedFd) -> Received<Self> {
        receive_packet(socket, Self::decode)
    }

    fn encode(self) -> Packet {
        match self {
            Self::Deadline(at) => {
                let uptime = at.uptime();
                packet(1, [0; 2], uptime.subsec_nanos(), uptime.as_secs())
            }
            Self::Kill => packet(2, [0; 2], 0, 0),
            Self::Signal(signal) => packet(3, [signal.number() as u8, 0], 0, 0),
            Self::Stop(signal) => packet(4, [signal.number() as u8, 0], 0, 0),
        }
    }

    fn decode(packet: &Packet) -> Option<Self> {
        let (kind, [a, _], c, d) = fields(packet)?;
        match kind {
            1 if c < 1_000_000_000 => Some(Self::Deadline(Moment::since_boot(Duration::new(d, c)))),
            2 => Some(Self::Kill),
            3 => Signal::from_number(a.into()).map(Self::Signal),
            4 => Signal::from_number(a.into()).map(Self::Stop),
            _ => None,
        }
    }
}

impl Report {
    pub(crate) fn send(self, socket: &OwnedFd) -> Result<(), Errno> {
        send_packet(socket, self.encode())
    }

    pub(crate) fn receive(socket: &OwnedFd) -> Received<Self> {
        receive_packet(socket, Self::decode)
    }

    fn encode(self) -> Packet {
        match self {
            Self::Started { pid } => packet(1, [0; 2], pid, 0),
            Self::SpawnFailed(error) => {
                let failure = match error.failure {
                    SpawnFailure::NotFound => 0,
                    SpawnFailure::NotExecutable => 1,
                    SpawnFailure::System => 2,
                };
                let step = match error.step {
                    SpawnStep::Guard => 0,
                    SpawnStep::WorkingDirectory => 1,
                    SpawnStep::Interpreter => 2,
                    SpawnStep::Program => 3,
                };
                packet(2, [failure, step], error.errno.unsigned_abs(), 0)
            }
            Self::Exited(Exit::Code(code)) => packet(3, [0, code], 0, 0),
            Self::Exited(Exit::Signal(signal)) => packet(3, [1, signal], 0, 0),
            Self::Empty => packet(4, [0; 2], 0, 0),
        }
    }

    fn decode(packet: &Packet) -> Option<Self> {
        let (kind, [a, b], c, _) = fields(packet)?;
        match (kind, a) {
            (1, _) => Some(Self::Started { pid: c }),
            (2, _) => Some(Self::SpawnFailed(SpawnError {
                failure: match a {
                    0 => SpawnFailure::NotFound,
                    1 => SpawnFailure::NotExecutable,
                    _ => SpawnFailure::System,
                },
                step: match b {
                    0 => SpawnStep::Guard,
                    1 => SpawnStep::WorkingDirectory,
                    2 => SpawnStep::Interpreter,
                    _ => SpawnStep::Program,
                },
                errno: i32::try_from(c).ok()?,
            })),
            (3, 0) => Some(Self::Exited(Exit::Code(b))),
            (3, _) => Some(Self::Exited(Exit::Signal(b))),
            (4, _) => Some(Self::Empty),
            _ => None,
        }
    }
}

/// How a process ended.
pub(crate) fn exit(status: rustix::process::WaitStatus) -> Option<Exit> {
    let code = status.exit_status().map(|code| Exit::Code(code as u8));
    let signal = || {
        let signal = status.terminating_signal();
        signal.map(|signal| Exit::Signal(signal as u8))
    };
    code.or_else(signal)
}

fn packet(kind: u8, [a, b]: [u8; 2], c: u32, d: u64) -> Packet {
    let mut packet = [0; LENGTH];
    packet[..4].copy_from_slice(&[VERSION, kind, a, b]);
    packet[4..8].copy_from_slice(&c.to_le_bytes());
    packet[8..].copy_from_slice(&d.to_le_bytes());
    packet
}

fn fields(packet: &Packet) -> Option<(u8, [u8; 2], u32, u64)> {
    let [VERSION, kind, a, b, rest @ ..] = packet else {
        return None;
    };
    let (c, d) = rest.split_first_chunk()?;
    let c = u32::from_le_bytes(*c);
    let d = u64::from_le_bytes(*d.first_chunk()?);
    Some((*kind, [*a, *b], c, d))
}

fn send_packet(socket: &OwnedFd, packet: Packet) -> Result<(), Errno> {
    rustix::io::retry_on_intr(|| send(socket, &packet, SendFlags::NOSIGNAL | SendFlags::DONTWAIT))
        .map(drop)
}

fn receive_packet<T>(socket: &OwnedFd, decode: fn(&Packet) -> Option<T>) -> Received<T> {
    let mut packet = [0; LENGTH];
    loop {
        let got = recv(socket, &mut packet, RecvFlags::DONTWAIT).map(|got| got.1);
        return match got {
            Ok(LENGTH) => decode(&packet).map_or(Received::Closed, Received::Message),
            Err(Errno::AGAIN) => Received::Nothing,
            // A reset is told once: the other end has gone without reading all that we sent. What it
            // said before that is still there.
            Err(Errno::INTR | Errno::CONNRESET) => continue,
            Ok(_) | Err(_) => Received::Closed,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_what_arrives() {
        for order in [
            Order::Deadline(Moment::NEVER),
            Order::Deadline(Moment::since_boot(Duration::new(7, 999_999_999))),
            Order::Kill,
            Order::Signal(Signal::CONT),
            Order::Stop(Signal::TERM),
        ] {
            assert_eq!(Order::decode(&order.encode()), Some(order));
        }
        let error = |failure, step| SpawnError {
            failure,
            step,
            errno: libc::ENOENT,
        };
        for report in [
            Report::Started { pid: 4_194_304 },
            Report::SpawnFailed(error(SpawnFailure::NotFound, SpawnStep::Program)),
            Report::SpawnFailed(error(SpawnFailure::NotExecutable, SpawnStep::Interpreter)),
            Report::SpawnFailed(error(SpawnFailure::System, SpawnStep::WorkingDirectory)),
            Report::Exited(Exit::Code(255)),
            Report::Exited(Exit::Signal(9)),
            Report::Empty,
        ] {
            assert_eq!(Report::decode(&report.encode()), Some(report));
        }
    }

    #[test]
    fn last_words_are_heard_from_who_did_not_listen() {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        Order::Kill.send(&ours).unwrap();
        Report::Empty.send(&theirs).unwrap();
        drop(theirs);
        assert_eq!(Report::receive(&ours), Received::Message(Report::Empty));
        assert_eq!(Report::receive(&ours), Received::Closed);
    }

    #[test]
    fn another_version_is_not_understood() {
        let mut packet = Order::Kill.encode();
        packet[0] = VERSION + 1;
        assert_eq!(Order::decode(&packet), None);
        assert_eq!(Order::decode(&[0; LENGTH]), None);
    }
}
