//! systemd's notify protocol: the child says that it is ready, alive, about to stop, or how it is.
//!
//! Only the child's tree is believed. The kernel says who has sent a message, so the socket can be open to everyone: also to a
//! child that has changed its user.

mod socket;

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

use rustix::process::geteuid;
use soloist_process::{Descent, Sender, receive};
use tokio::io::Interest;
use tracing::{debug, warn};

use socket::Bound;
pub(crate) use socket::PREFIX;

/// What a child may say. What else it says is passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    Ready,
    Alive,
    Stopping,
    Status(String),
}

/// Where one child's notices arrive.
pub(crate) struct NotifySocket {
    bound: Bound,
    /// Strangers are told of once.
    strangers: bool,
}

impl NotifySocket {
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self {
            bound: Bound::open()?,
            strangers: false,
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
        let (read, sender) = socket.async_io(Interest::READABLE, read).await?;
        if !sender.is_some_and(|sender| is_believed(sender, guard)) {
            self.tell_of_stranger(sender);
            return Ok(Vec::new());
        }
        Ok(parse(&String::from_utf8_lossy(&message[..read])))
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
        _ => None,
    };
    message.lines().filter_map(notice).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_passed_over() {
        let message = "READY=1\nSTATUS=at 12 % = fine\nMAINPID=7\nWATCHDOG=trigger\nnonsense\nSTOPPING=1\nWATCHDOG=1";
        let status = Notice::Status("at 12 % = fine".into());
        let expected = [Notice::Ready, status, Notice::Stopping, Notice::Alive];
        assert_eq!(parse(message), expected);
    }
}
