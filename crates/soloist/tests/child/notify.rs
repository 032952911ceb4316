//! systemd's notify protocol, the child's side.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::time::Duration;

pub(crate) fn say(message: &str) {
    connected().send(message.as_bytes()).expect("a listener");
}

fn connected() -> UnixDatagram {
    let name = std::env::var_os("NOTIFY_SOCKET").expect("NOTIFY_SOCKET");
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        path => SocketAddr::from_pathname(OsStr::from_bytes(path)),
    };
    let socket = UnixDatagram::unbound().expect("a socket");
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
