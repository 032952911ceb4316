//! What soloist tells the service manager that has started it, by systemd's notify protocol: that it is ready, that its loop
//! runs, that it is stopping. Nobody listens in a container; then nothing is said.

use std::env;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use soloist_core::time::Moment;
use tracing::debug;

/// Whoever has started us, if it listens.
pub(crate) struct ServiceManager {
    socket: Option<UnixDatagram>,
    /// Half of what it waits for a sign of life.
    every: Option<Duration>,
    next: Moment,
}

impl ServiceManager {
    /// As the environment says.
    pub(crate) fn of_this_process(now: Moment) -> Self {
        let socket = env::var_os("NOTIFY_SOCKET").and_then(|name| match connect(&name) {
            Ok(socket) => Some(socket),
            Err(error) => {
                debug!(%error, "the service manager cannot be told anything");
                None
            }
        });
        let number = |name: &str| env::var(name).ok()?.parse::<u64>().ok();
        let is_for_us =
            number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let limit = number("WATCHDOG_USEC").filter(|_| is_for_us && socket.is_some());
        let every = limit.map(|micros| Duration::from_micros(micros) / 2);
        Self {
            socket,
            every,
            next: every.map_or(Moment::NEVER, |every| now + every),
        }
    }

    /// When it is to hear from us at the latest.
    pub(crate) const fn next(&self) -> Moment {
        self.next
    }

    pub(crate) fn ready(&self) {
        self.tell("READY=1");
    }

    pub(crate) fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    /// The loop has come round.
    pub(crate) fn alive(&mut self, now: Moment) {
        if let Some(every) = self.every.filter(|_| now >= self.next) {
            self.tell("WATCHDOG=1");
            self.next = now + every;
        }
    }

    fn tell(&self, what: &str) {
        let told = self
            .socket
            .as_ref()
            .map(|socket| socket.send(what.as_bytes()));
        if let Some(Err(error)) = told {
            debug!(%error, what, "the service manager was not told");
        }
    }
}

fn connect(name: &OsStr) -> io::Result<UnixDatagram> {
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    // Nothing waits for who does not read.
    socket.set_nonblocking(true)?;
    socket.connect_addr(&address)?;
    Ok(socket)
}
