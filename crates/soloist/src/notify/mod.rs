//! systemd's notify protocol: the child says that it is ready, alive, about to stop, or how it is. And one word back: whoever asks
//! for it is told when the Pod's end is near, before any signal.
//!
//! Only the child's tree is believed. The kernel says who has sent a message, so the socket can be open to everyone: also to a
//! child that has changed its user.

mod socket;

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

use rustix::process::geteuid;
use soloist_process::{Descent, Received, ReturnAddress, Sender, receive};
use tokio::io::Interest;
use tracing::{debug, info, warn};

use socket::Bound;
pub(crate) use socket::PREFIX;

/// What a child may say. What else it says is passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    Ready,
    Alive,
    Stopping,
    Status(String),
    /// It wants to be told when the Pod's end is near.
    TellOfEnding,
}

/// What it is told then.
const ENDING: &[u8] = b"ENDING=1";
/// So many sockets of one child are told: those that have asked last.
const MOST_TOLD: usize = 16;

/// Where one child's notices arrive.
pub(crate) struct NotifySocket {
    bound: Bound,
    /// Strangers are told of once.
    strangers: bool,
    /// Who has asked to be told of the end.
    to_tell: VecDeque<ReturnAddress>,
    /// The end is near.
    ending: bool,
}

impl NotifySocket {
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self {
            bound: Bound::open()?,
            strangers: false,
            to_tell: VecDeque::new(),
            ending: false,
        })
    }

    /// For the child's `NOTIFY_SOCKET`.
    pub(crate) fn address(&self) -> &OsStr {
        &self.bound.address
    }

    /// The next message's notices, none if they do not come from a descendant of this guard. May be cancelled.
    pub(crate) async fn next(&mut self, guard: u32) -> io::Result<Vec<Notice>> {
        let mut message = [0; 4096];
        let socket = &self.bound.socket;
        let read = || receive(socket, &mut message);
        let Received {
            length,
            sender,
            from,
        } = socket.async_io(Interest::READABLE, read).await?;
        if !sender.is_some_and(|sender| is_believed(sender, guard)) {
            self.tell_of_stranger(sender);
            return Ok(Vec::new());
        }
        let notices = parse(&String::from_utf8_lossy(&message[..length]));
        if notices.contains(&Notice::TellOfEnding) {
            self.will_tell(from);
        }
        Ok(notices)
    }

    /// The end is near, or it was a false alarm. Whoever has asked is told once, and at once whoever asks later.
    pub(crate) fn set_ending(&mut self, ending: bool) {
        if !std::mem::replace(&mut self.ending, ending) && ending {
            for address in &self.to_tell {
                self.tell(address);
            }
        }
    }

    fn will_tell(&mut self, from: Option<ReturnAddress>) {
        let Some(from) = from else {
            return debug!("the child asks to be told of the end on a socket without a name");
        };
        if self.ending {
            self.tell(&from);
        }
        self.to_tell.retain(|told| *told != from);
        if self.to_tell.len() == MOST_TOLD {
            self.to_tell.pop_front();
        }
        self.to_tell.push_back(from);
    }

    fn tell(&self, address: &ReturnAddress) {
        match address.send(&self.bound.socket, ENDING) {
            Ok(()) => info!("the child is told that the Pod's end is near"),
            // It has ended, or does not listen.
            Err(error) => debug!(%error, "the child is not told that the Pod's end is near"),
        }
    }

    fn tell_of_stranger(&mut self, sender: Option<Sender>) {
        let (pid, uid) = (sender.and_then(Sender::pid), sender.map(Sender::uid));
        let what = "a notice that does not come from the child or its descendants is not believed";
        match std::mem::replace(&mut self.strangers, true) {
            false => warn!(pid, uid, "{what}"),
            true => debug!(pid, uid, "{what}"),
        }
    }
}

/// Whoever has said something and is gone, as a shell's `systemd-notify` may be, is believed if it was the child's user.
fn is_believed(sender: Sender, guard: u32) -> bool {
    match sender.descent(guard) {
        Descent::Below => true,
        Descent::Elsewhere => false,
        Descent::Gone => {
            sender.uid() == geteuid().as_raw() || users_below(guard).contains(&sender.uid())
        }
    }
}

/// The users of the guard's own children.
fn users_below(guard: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{guard}/task/{guard}/children"));
    let children = children.unwrap_or_default();
    let user = |pid: &str| Some(fs::metadata(format!("/proc/{pid}")).ok()?.uid());
    children.split_ascii_whitespace().filter_map(user).collect()
}

fn parse(message: &str) -> Vec<Notice> {
    let notice = |line: &str| match line.split_once('=')? {
        ("READY", "1") => Some(Notice::Ready),
        ("WATCHDOG", "1") => Some(Notice::Alive),
        ("STOPPING", "1") => Some(Notice::Stopping),
        ("STATUS", status) => Some(Notice::Status(status.to_owned())),
        ("X_SOLOIST_ENDING", "tell") => Some(Notice::TellOfEnding),
        _ => None,
    };
    message.lines().filter_map(notice).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_passed_over() {
        let message = "READY=1\nSTATUS=at 12 % = fine\nMAINPID=7\nWATCHDOG=trigger\nnonsense\nSTOPPING=1\nX_SOLOIST_ENDING=tell\nWATCHDOG=1";
        let status = Notice::Status("at 12 % = fine".into());
        let (stopping, tell) = (Notice::Stopping, Notice::TellOfEnding);
        let expected = [Notice::Ready, status, stopping, tell, Notice::Alive];
        assert_eq!(parse(message), expected);
    }
}
