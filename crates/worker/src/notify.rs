//! What the child says of itself, in systemd's notify protocol. Never waits: a supervisor that does not listen must
//! not stop the work. And what soloist says in return: that the end is near.

use std::ffi::OsStr;
use std::future::pending;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram as StdDatagram};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::sync::Notify;
use tracing::warn;

/// Longer texts are cut: a datagram has its limits, and a status is one line.
const LONGEST_STATUS: usize = 1024;

/// What asks soloist to tell us of the end, and what it says then. Others do not know it.
const TELL_OF_ENDING: &str = "X_SOLOIST_ENDING=tell";
const ENDING: &str = "ENDING=1";

/// The way to whoever started us, if it wants to know.
#[derive(Clone, Debug)]
pub(crate) struct Notices {
    line: Option<Arc<Line>>,
}

#[derive(Debug)]
struct Line {
    socket: StdDatagram,
    /// The same socket, for waiting. What it believes of its readiness is only right while it is waited on.
    wait: UnixDatagram,
    unsaid: Mutex<Unsaid>,
    has_unsaid: Notify,
}

/// What could not be said yet. Only the latest status counts.
#[derive(Debug, Default)]
struct Unsaid {
    ready: bool,
    stopping: bool,
    alive: bool,
    tell_of_ending: bool,
    status: Option<String>,
}

impl Unsaid {
    fn message(&self) -> String {
        let mut lines = Vec::new();
        if let Some(status) = &self.status {
            lines.push(format!("STATUS={status}"));
        }
        for (said, line) in [
            (self.ready, "READY=1"),
            (self.alive, "WATCHDOG=1"),
            (self.stopping, "STOPPING=1"),
            (self.tell_of_ending, TELL_OF_ENDING),
        ] {
            if said {
                lines.push(line.to_owned());
            }
        }
        lines.join("\n")
    }
}

impl Notices {
    /// To the socket that `NOTIFY_SOCKET` names; to nobody without one. Needs tokio's runtime.
    pub(crate) fn to(socket: Option<&OsStr>) -> Self {
        let line = socket.and_then(|name| match connect(name) {
            Ok((socket, wait)) => Some(Arc::new(Line {
                socket,
                wait,
                unsaid: Mutex::default(),
                has_unsaid: Notify::new(),
            })),
            Err(error) => {
                let name = name.display();
                warn!("nobody hears our notices: NOTIFY_SOCKET is {name}, and that fails: {error}");
                None
            }
        });
        if let Some(line) = line.clone() {
            tokio::spawn(async move { line.say_later().await });
        }
        Self { line }
    }

    pub(crate) fn ready(&self) {
        self.say(|unsaid| unsaid.ready = true);
    }

    pub(crate) fn stopping(&self) {
        self.say(|unsaid| unsaid.stopping = true);
    }

    pub(crate) fn alive(&self) {
        self.say(|unsaid| unsaid.alive = true);
    }

    /// Waits until soloist says that the end is near: for ever, if nobody does.
    pub(crate) async fn ending(&self) {
        let Some(line) = &self.line else {
            return pending().await;
        };
        self.say(|unsaid| unsaid.tell_of_ending = true);
        let mut message = [0; 256];
        loop {
            match line.wait.recv(&mut message).await {
                Ok(length) if has_line(&message[..length], ENDING) => return,
                Ok(_) => {}
                // It is gone, and so is who would tell us.
                Err(_) => return pending().await,
            }
        }
    }

    pub(crate) fn status(&self, text: &str) {
        let text: String = text
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .take(LONGEST_STATUS)
            .collect();
        self.say(|unsaid| unsaid.status = Some(text));
    }

    fn say(&self, add: impl FnOnce(&mut Unsaid)) {
        let Some(line) = &self.line else { return };
        let mut unsaid = line.lock();
        add(&mut unsaid);
        if line.say_now(&mut unsaid).is_err() {
            line.has_unsaid.notify_one();
        }
    }
}

impl Line {
    fn lock(&self) -> MutexGuard<'_, Unsaid> {
        self.unsaid.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails only if the other side has no room for it.
    fn say_now(&self, unsaid: &mut Unsaid) -> io::Result<()> {
        let message = unsaid.message();
        if message.is_empty() {
            return Ok(());
        }
        match self.socket.send(message.as_bytes()) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
            Err(error) => warn!("nobody heard our notice {message:?}: {error}"),
            Ok(_) => {}
        }
        *unsaid = Unsaid::default();
        Ok(())
    }

    async fn say_later(&self) {
        loop {
            self.has_unsaid.notified().await;
            let say = || self.say_now(&mut self.lock());
            if self.wait.async_io(Interest::WRITABLE, say).await.is_err() {
                return;
            }
        }
    }
}

fn has_line(message: &[u8], wanted: &str) -> bool {
    let mut lines = message.split(|byte| *byte == b'\n');
    lines.any(|line| line == wanted.as_bytes())
}

fn connect(name: &OsStr) -> io::Result<(StdDatagram, UnixDatagram)> {
    let address = match name.as_bytes() {
        // As systemd writes the abstract ones.
        [b'@', name @ ..] => abstract_address(name)?,
        _ => SocketAddr::from_pathname(name)?,
    };
    let socket = answerable()?;
    socket.set_nonblocking(true)?;
    // From now on the kernel takes nothing for it from anybody else.
    socket.connect_addr(&address)?;
    let wait = UnixDatagram::from_std(socket.try_clone()?)?;
    Ok((socket, wait))
}

/// A socket with an abstract name that the kernel chooses, so that it needs no file.
#[cfg(target_os = "linux")]
fn answerable() -> io::Result<StdDatagram> {
    let socket = StdDatagram::unbound()?;
    rustix::net::bind(&socket, &rustix::net::SocketAddrUnix::new_unnamed())?;
    Ok(socket)
}

#[cfg(not(target_os = "linux"))]
fn answerable() -> io::Result<StdDatagram> {
    StdDatagram::unbound()
}

#[cfg(target_os = "linux")]
fn abstract_address(name: &[u8]) -> io::Result<SocketAddr> {
    use std::os::linux::net::SocketAddrExt;

    SocketAddr::from_abstract_name(name)
}

#[cfg(not(target_os = "linux"))]
fn abstract_address(_: &[u8]) -> io::Result<SocketAddr> {
    let why = "only Linux has sockets with abstract names";
    Err(io::Error::new(io::ErrorKind::Unsupported, why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tempfile::TempDir;
    use tokio::time::timeout;

    const LIMIT: Duration = Duration::from_secs(10);

    fn listener() -> (TempDir, UnixDatagram, Notices) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let listener = UnixDatagram::bind(&path).unwrap();
        let notices = Notices::to(Some(path.as_os_str()));
        (folder, listener, notices)
    }

    async fn hear(listener: &UnixDatagram) -> String {
        let mut message = [0; 4096];
        let heard = timeout(LIMIT, listener.recv(&mut message)).await;
        let length = heard.expect("a notice in time").unwrap();
        String::from_utf8_lossy(&message[..length]).into_owned()
    }

    #[tokio::test]
    async fn what_is_said_is_heard_in_order() {
        let (_folder, listener, notices) = listener();
        notices.ready();
        notices.status("at 12 %\nREADY=1");
        notices.alive();
        notices.stopping();
        assert_eq!(hear(&listener).await, "READY=1");
        assert_eq!(hear(&listener).await, "STATUS=at 12 % READY=1");
        assert_eq!(hear(&listener).await, "WATCHDOG=1");
        assert_eq!(hear(&listener).await, "STOPPING=1");
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn who_asks_for_it_is_told_of_the_end_and_by_nobody_else_than_its_listener() {
        use std::os::linux::net::SocketAddrExt;

        let (_folder, listener, notices) = listener();
        let mut ending = std::pin::pin!(notices.ending());
        let mut message = [0; 64];
        let (length, from) = tokio::select! {
            () = &mut ending => panic!("nobody has said so"),
            heard = listener.recv_from(&mut message) => heard.unwrap(),
        };
        assert_eq!(&message[..length], b"X_SOLOIST_ENDING=tell");
        let from = SocketAddr::from(from);
        assert!(from.as_abstract_name().is_some(), "{from:?}");
        let say =
            |socket: &StdDatagram, message: &str| socket.send_to_addr(message.as_bytes(), &from);
        let stranger = StdDatagram::unbound().unwrap();
        let refused = say(&stranger, ENDING).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        let listener = listener.into_std().unwrap();
        say(&listener, "ENDING=0\nwhatever").unwrap();
        say(&listener, "SOMETHING=1\nENDING=1").unwrap();
        timeout(LIMIT, ending).await.expect("it is told");
    }

    #[tokio::test]
    async fn a_listener_that_hangs_is_not_waited_for_and_hears_the_latest_later() {
        let (_folder, listener, notices) = listener();
        // Far more than any queue between the two holds.
        for number in 0..5000 {
            notices.status(&number.to_string());
        }
        notices.ready();
        let mut heard = Vec::new();
        while heard
            .last()
            .is_none_or(|last: &String| !last.contains("READY=1"))
        {
            heard.push(hear(&listener).await);
        }
        assert!(heard.len() < 5000, "it was waited for");
        assert_eq!(heard.last().unwrap(), "STATUS=4999\nREADY=1");
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn an_abstract_socket_is_found() {
        let name = format!("soloist-worker-test-{}", std::process::id());
        let address = abstract_address(name.as_ref()).unwrap();
        let listener = StdDatagram::bind_addr(&address).unwrap();
        listener.set_nonblocking(true).unwrap();
        let listener = UnixDatagram::from_std(listener).unwrap();
        Notices::to(Some(OsStr::new(&format!("@{name}")))).ready();
        assert_eq!(hear(&listener).await, "READY=1");
    }

    #[tokio::test]
    async fn a_listener_that_is_gone_harms_nobody() {
        let (folder, listener, notices) = listener();
        drop((folder, listener));
        notices.ready();
        Notices::to(Some(OsStr::new("/nowhere/at/all"))).ready();
        Notices::to(None).ready();
    }
}
