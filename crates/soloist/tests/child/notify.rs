//! systemd's notify protocol, the child's side.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::journal::Journal;

pub(crate) fn say(message: &str) {
    connected().send(message.as_bytes()).expect("a listener");
}

/// Each time that it is told of the end is told.
pub(crate) fn ask_of_ending(folder: &str) -> Receiver<()> {
    let journal = Journal::of(folder);
    let (tell, told) = channel();
    let socket = connected();
    socket.send(b"X_SOLOIST_ENDING=tell").expect("a listener");
    std::thread::spawn(move || {
        let mut message = [0; 64];
        while let Ok(length) = socket.recv(&mut message) {
            let is_known = &message[..length] == b"ENDING=1";
            journal.write(if is_known { "ending" } else { "nonsense" }, "");
            let _ = tell.send(());
        }
    });
    told
}

fn connected() -> UnixDatagram {
    let name = std::env::var_os("NOTIFY_SOCKET").expect("NOTIFY_SOCKET");
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        path => SocketAddr::from_pathname(OsStr::from_bytes(path)),
    };
    // A name that the kernel chooses.
    let socket = UnixDatagram::unbound().expect("a socket");
    rustix::net::bind(&socket, &rustix::net::SocketAddrUnix::new_unnamed()).expect("a name");
    let address = address.expect("an address");
    socket.connect_addr(&address).expect("a listener");
    socket
}

/// Says that all is well until it is to be silent.
pub(crate) async fn beat(folder: String, every: Duration) {
    let silent = Path::new(&folder).join("silent");
    while !silent.exists() {
        say("WATCHDOG=1");
        tokio::time::sleep(every).await;
    }
}

/// Talks without a pause, as fast as it is listened to.
pub(crate) fn flood() {
    let socket = connected();
    // Until nobody listens any more.
    while socket.send(b"WATCHDOG=1").is_ok() {}
}
