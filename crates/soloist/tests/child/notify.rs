//! systemd's notify protocol, the child's side.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::Duration;

pub(crate) fn say(message: &str) {
    let path = std::env::var_os("NOTIFY_SOCKET").expect("NOTIFY_SOCKET");
    let socket = UnixDatagram::unbound().expect("a socket");
    socket
        .send_to(message.as_bytes(), path)
        .expect("a listener");
}

/// Says that all is well until it is to be silent.
pub(crate) async fn beat(folder: String, every: Duration) {
    let silent = Path::new(&folder).join("silent");
    while !silent.exists() {
        say("WATCHDOG=1");
        tokio::time::sleep(every).await;
    }
}
