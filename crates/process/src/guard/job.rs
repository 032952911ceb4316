//! What a guard is started with: the program on its command line, for who looks at a list of processes, and all else as the
//! first packet on its socket.

use std::ffi::{CString, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use rustix::io::Errno;
use rustix::process::{Pid, getpid};

use crate::command::{Command, StopTo};
use crate::inherited::{self, Inherited};
use crate::message::{self, VERSION};
use crate::signal::Signal;
use crate::user::User;
use crate::{procfs, sys};

const SOCKET: &str = "--socket=";

/// One child to be guarded. The environment is the child's already, but for the variables that come with the order to start.
pub(super) struct Job {
    pub(super) link: OwnedFd,
    pub(super) setup: Setup,
    pub(super) argv: Vec<CString>,
}

/// What is not for people to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Setup {
    pub(crate) inherited: Inherited,
    pub(crate) cwd: Option<OsString>,
    pub(crate) stop_signal: Signal,
    pub(crate) stop_to: StopTo,
    /// soloist's process group, if the child is to be in it; else it has one of its own.
    pub(crate) group: Option<Pid>,
    /// Whom the child becomes.
    pub(crate) user: Option<User>,
}

/// The arguments for a guard, its name not included.
pub(crate) fn arguments(fd: i32, command: &Command) -> Vec<OsString> {
    let mut arguments = vec![format!("{SOCKET}{fd}").into(), "--".into()];
    arguments.push(command.program.clone());
    arguments.extend_from_slice(&command.args);
    arguments
}

impl Job {
    /// Of this process, which was started as a guard.
    pub(super) fn take(mut args: impl Iterator<Item = OsString>) -> Option<Self> {
        let socket = args.next()?.into_string().ok()?;
        let fd = socket.strip_prefix(SOCKET)?.parse().ok()?;
        if args.next()? != "--" {
            return None;
        }
        let link = sys::adopt(fd)?;
        sys::close_inherited(fd);
        let argv: Vec<CString> = args
            .map(|arg| CString::new(arg.into_vec()).ok())
            .collect::<Option<_>>()?;
        let setup = Setup::receive(&link)?;
        (!argv.is_empty()).then_some(Self { link, setup, argv })
    }
}

impl Setup {
    pub(crate) fn of(command: &Command) -> Self {
        let own = procfs::stat(getpid()).and_then(|stat| stat.group);
        Self {
            inherited: inherited::found().clone(),
            cwd: command.cwd.as_ref().map(|dir| dir.as_os_str().to_owned()),
            stop_signal: command.stop_signal,
            stop_to: command.stop_to,
            group: own.filter(|_| command.with_caller),
            user: command.user.clone(),
        }
    }

    /// Before the guard is started, so that it finds it there.
    pub(crate) fn send(&self, socket: &OwnedFd) -> Result<(), Errno> {
        message::send_packet(socket, &self.encode())
    }

    fn receive(socket: &OwnedFd) -> Option<Self> {
        match message::receive_packet(socket, Self::decode) {
            message::Received::Message(setup) => Some(setup),
            message::Received::Nothing | message::Received::Closed => None,
        }
    }

    fn encode(&self) -> Vec<u8> {
        let to = match self.stop_to {
            StopTo::Group => "group",
            StopTo::Child => "child",
        };
        let inherited = self.inherited.encode();
        let stop = self.stop_signal.number().to_string();
        let cwd = self.cwd.as_ref().map_or(&[][..], |dir| dir.as_bytes());
        let group = self.group.map(|group| group.as_raw_nonzero().to_string());
        let group = group.unwrap_or_default();
        let user = self.user.as_ref().map(User::encode).unwrap_or_default();
        let texts = [&*inherited, &*stop, to, &*group, &*user].map(str::as_bytes);
        let fields = [&texts[..], &[cwd]].concat();
        [&[VERSION], &fields.join(&0)[..]].concat()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let fields = bytes.strip_prefix(&[VERSION])?;
        let fields: Vec<&[u8]> = fields.split(|byte| *byte == 0).collect();
        let [inherited, stop, to, group, user, cwd] = fields[..] else {
            return None;
        };
        let text = |field| std::str::from_utf8(field).ok();
        Some(Self {
            inherited: Inherited::decode(text(inherited)?)?,
            stop_signal: Signal::from_number(text(stop)?.parse().ok()?)?,
            stop_to: match to {
                b"group" => StopTo::Group,
                b"child" => StopTo::Child,
                _ => return None,
            },
            group: match group {
                b"" => None,
                group => Some(Pid::from_raw(text(group)?.parse().ok()?)?),
            },
            user: match user {
                b"" => None,
                user => Some(User::decode(text(user)?)?),
            },
            cwd: (!cwd.is_empty()).then(|| OsString::from_vec(cwd.to_vec())),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setup_survives_the_way_to_the_guard() {
        let command = Command::new("x");
        for command in [
            command.clone(),
            command
                .stop_to(StopTo::Child)
                .current_dir("/a b")
                .in_callers_group(),
        ] {
            let setup = Setup::of(&command);
            assert_eq!(Setup::decode(&setup.encode()), Some(setup.clone()));
            let mut other = setup.encode();
            other[0] += 1;
            assert_eq!(Setup::decode(&other), None, "of another version");
        }
    }

    #[test]
    fn a_list_of_processes_shows_what_is_guarded() {
        let command = Command::new("sleep").arg("60");
        let shown = arguments(7, &command).join(" ".as_ref());
        assert_eq!(shown, "--socket=7 -- sleep 60");
    }
}
