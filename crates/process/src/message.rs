//! What soloist and the guard tell each other: one packet per message, of a fixed size but for the variables of the
//! order to start.

use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use soloist_core::replica::{Exit, SpawnFailure};
use soloist_core::time::Moment;

use crate::signal::Signal;

/// Grows with every change of the messages or of the guard's arguments.
pub(crate) const VERSION: u8 = 4;

const LENGTH: usize = 16;
/// A path may be that long, and there is more than a path in a guard's setup.
const MOST: usize = 8192;

type Packet = [u8; LENGTH];

/// From soloist to the guard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Start the child, with these variables besides the guard's own environment; the deadline is as below.
    Start {
        deadline: Moment,
        variables: Variables,
    },
    /// The tree dies at this moment, unless another is given.
    Deadline(Moment),
    /// SIGKILL to every process of the tree.
    Kill,
    /// A signal to the child itself.
    Signal(Signal),
    /// A signal to the child's group, and SIGCONT so that it can be heard.
    Stop(Signal),
    /// Say that you are there, and have read all that came before this.
    Ping,
}

/// Variables that are known only when the child is to start, each `NAME=VALUE`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Variables(Vec<CString>);

impl Variables {
    /// All that fits into one packet.
    const MOST: usize = 4096 - LENGTH;

    /// # Errors
    /// What no program can be given as a variable, or is too long in all.
    pub(crate) fn try_new(variables: &[(&str, &str)]) -> io::Result<Self> {
        let invalid = |reason| io::Error::new(io::ErrorKind::InvalidInput, reason);
        let variable = |(name, value): &(&str, &str)| variable(name, value);
        let variables: Option<Vec<_>> = variables.iter().map(variable).collect();
        let variables = Self(variables.ok_or_else(|| invalid("no name or value of a variable"))?);
        match variables.encode().len() <= Self::MOST {
            true => Ok(variables),
            false => Err(invalid("the variables are longer than 4080 bytes")),
        }
    }

    pub(crate) fn as_slice(&self) -> &[CString] {
        &self.0
    }

    fn encode(&self) -> Vec<u8> {
        self.0
            .iter()
            .flat_map(CString::as_bytes_with_nul)
            .copied()
            .collect()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let strings = bytes.split_inclusive(|byte| *byte == 0);
        let strings = strings.map(|bytes| CString::from_vec_with_nul(bytes.to_vec()).ok());
        strings.collect::<Option<_>>().map(Self)
    }
}

fn variable(name: &str, value: &str) -> Option<CString> {
    if name.is_empty() || name.contains('=') {
        return None;
    }
    CString::new(format!("{name}={value}")).ok()
}

/// From the guard to soloist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// The guard waits for orders. Only itself can always tell when it was started, in the ticks of `/proc/PID/stat`: it may not be shown
    /// to others of its own user (`hidepid`).
    Ready {
        started: u64,
    },
    Started {
        pid: u32,
    },
    SpawnFailed(SpawnError),
    Exited(Exit),
    Empty,
    /// The answer to [`Order::Ping`], and to [`Order::Start`] before the child is forked.
    Pong,
    /// The guard may not signal this process.
    NotPermitted {
        pid: u32,
    },
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
    /// The child could not become the user that it was to run as.
    User,
}

impl std::fmt::Display for SpawnStep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Guard => "the guard could not set itself up",
            Self::WorkingDirectory => "the working directory cannot be entered",
            Self::Interpreter => "the interpreter that the program names cannot be found",
            Self::Program => "the program cannot be run",
            Self::User => "it cannot become the user that it is to run as",
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
    pub(crate) fn send(&self, socket: &OwnedFd) -> Result<(), Errno> {
        send_packet(socket, &self.encode())
    }

    pub(crate) fn receive(socket: &OwnedFd) -> Received<Self> {
        receive_packet(socket, Self::decode)
    }

    fn encode(&self) -> Vec<u8> {
        let until = |kind, at: &Moment| {
            let uptime = at.uptime();
            packet(kind, [0; 2], uptime.subsec_nanos(), uptime.as_secs())
        };
        let of = |kind, signal: &Signal| packet(kind, [signal.number() as u8, 0], 0, 0);
        let packet = match self {
            Self::Deadline(at) => until(1, at),
            Self::Kill => packet(2, [0; 2], 0, 0),
            Self::Signal(signal) => of(3, signal),
            Self::Stop(signal) => of(4, signal),
            Self::Ping => packet(6, [0; 2], 0, 0),
            Self::Start {
                deadline,
                variables,
            } => return [&until(5, deadline)[..], &variables.encode()].concat(),
        };
        packet.to_vec()
    }

    fn decode(message: &[u8]) -> Option<Self> {
        let (packet, rest) = message.split_first_chunk()?;
        let (kind, [a, _], c, d) = fields(packet)?;
        let at = || (c < 1_000_000_000).then(|| Moment::since_boot(Duration::new(d, c)));
        let signal = || Signal::from_number(a.into());
        match kind {
            1 => at().map(Self::Deadline),
            2 => Some(Self::Kill),
            3 => signal().map(Self::Signal),
            4 => signal().map(Self::Stop),
            5 => Some(Self::Start {
                deadline: at()?,
                variables: Variables::decode(rest)?,
            }),
            6 => Some(Self::Ping),
            _ => None,
        }
    }
}

impl Report {
    pub(crate) fn send(self, socket: &OwnedFd) -> Result<(), Errno> {
        send_packet(socket, &self.encode())
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
                    SpawnStep::User => 4,
                };
                packet(2, [failure, step], error.errno.unsigned_abs(), 0)
            }
            Self::Exited(Exit::Code(code)) => packet(3, [0, code], 0, 0),
            Self::Exited(Exit::Signal(signal)) => packet(3, [1, signal], 0, 0),
            Self::Empty => packet(4, [0; 2], 0, 0),
            Self::Pong => packet(5, [0; 2], 0, 0),
            Self::NotPermitted { pid } => packet(6, [0; 2], pid, 0),
            Self::Ready { started } => packet(7, [0; 2], 0, started),
        }
    }

    fn decode(message: &[u8]) -> Option<Self> {
        let (kind, [a, b], c, d) = fields(message.first_chunk()?)?;
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
                    3 => SpawnStep::Program,
                    _ => SpawnStep::User,
                },
                errno: i32::try_from(c).ok()?,
            })),
            (3, 0) => Some(Self::Exited(Exit::Code(b))),
            (3, _) => Some(Self::Exited(Exit::Signal(b))),
            (4, _) => Some(Self::Empty),
            (5, _) => Some(Self::Pong),
            (6, _) => Some(Self::NotPermitted { pid: c }),
            (7, _) => Some(Self::Ready { started: d }),
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

pub(crate) fn send_packet(socket: &OwnedFd, packet: &[u8]) -> Result<(), Errno> {
    rustix::io::retry_on_intr(|| send(socket, packet, SendFlags::NOSIGNAL | SendFlags::DONTWAIT))
        .map(drop)
}

pub(crate) fn receive_packet<T>(socket: &OwnedFd, decode: fn(&[u8]) -> Option<T>) -> Received<T> {
    let mut packet = [0; MOST];
    loop {
        let got = recv(socket, &mut packet, RecvFlags::DONTWAIT).map(|got| got.1);
        return match got {
            Ok(length @ 1..=MOST) => {
                decode(&packet[..length]).map_or(Received::Closed, Received::Message)
            }
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
        let start = |variables: &[(&str, &str)]| Order::Start {
            deadline: Moment::since_boot(Duration::from_millis(1)),
            variables: Variables::try_new(variables).unwrap(),
        };
        for order in [
            start(&[]),
            start(&[("SOLOIST_TERM", "3"), ("EMPTY", ""), ("X", "a=b c")]),
            Order::Deadline(Moment::NEVER),
            Order::Deadline(Moment::since_boot(Duration::new(7, 999_999_999))),
            Order::Kill,
            Order::Signal(Signal::CONT),
            Order::Stop(Signal::TERM),
            Order::Ping,
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
            Report::Pong,
            Report::NotPermitted { pid: 1 },
            Report::Ready { started: u64::MAX },
        ] {
            assert_eq!(Report::decode(&report.encode()), Some(report));
        }
    }

    #[test]
    fn what_no_program_can_be_given_is_no_variable() {
        let long = "x".repeat(4096);
        for (name, value) in [
            ("", "x"),
            ("a=b", "x"),
            ("a\0", "x"),
            ("a", "\0"),
            ("a", &long),
        ] {
            let error = Variables::try_new(&[(name, value)]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name:?}");
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
        assert_eq!(Order::decode(&[VERSION; 3]), None);
    }
}
