//! Accepts connections, and leaves a listener without resetting any.

use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::mem::{replace, take};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;
use tracing::{debug, info, warn};

use crate::Shutdown;

/// After an error that is not the connection's own, such as too many open files.
const PAUSE: Duration = Duration::from_millis(50);

/// For handshakes under way: long enough for a far client, and for one whose segment was lost and that repeats it (after
/// 200 ms); short of 1 s, after which a client repeats a SYN and learns that it is refused.
const SETTLE: Duration = Duration::from_millis(300);

/// Accepts for ever. To drop it loses no connection.
pub(super) async fn accept(listener: &TcpListener, take: &mut impl FnMut(TcpStream)) -> Infallible {
    let mut trouble = Trouble::default();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                trouble.end();
                take(stream);
            }
            Err(error) => trouble.pause(&error).await,
        }
    }
}

/// A client is connected as soon as the kernel has answered it, long before we accept; to close the listener resets
/// all that it still holds. So: let nobody in, wait for who is at the door, take all that have come in, then close.
pub(super) async fn close(
    listener: TcpListener,
    shutdown: &Shutdown,
    take: &mut impl FnMut(TcpStream),
) {
    if let Err(error) = drop_handshakes(&listener) {
        debug!(%error, "the kernel goes on with handshakes; some that end just now may be reset");
    }
    tokio::select! {
        biased;
        () = sleep(SETTLE) => {}
        () = shutdown.over() => {}
        never = accept(&listener, take) => match never {},
    }
    tokio::select! {
        biased;
        () = empty(listener, take) => {}
        () = shutdown.over() => {}
    }
}

/// Not by tokio's `accept`, which may say "nothing there" of a backlog that it has not looked at.
async fn empty(listener: TcpListener, take: &mut impl FnMut(TcpStream)) {
    let Ok(listener) = listener.into_std() else {
        return;
    };
    let mut trouble = Trouble::default();
    loop {
        let accepted = listener.accept().and_then(|(stream, _)| {
            stream.set_nonblocking(true)?;
            TcpStream::from_std(stream)
        });
        match accepted {
            Ok(stream) => take(stream),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(error) => trouble.pause(&error).await,
        }
    }
}

/// Connections cannot be accepted. One line says so, however long it lasts.
#[derive(Debug, Default)]
struct Trouble {
    is_known: bool,
}

impl Trouble {
    async fn pause(&mut self, error: &io::Error) {
        // These are of one connection that has gone before it was accepted (accept(2)).
        let is_of_connection = matches!(
            error.kind(),
            ErrorKind::ConnectionAborted
                | ErrorKind::ConnectionReset
                | ErrorKind::ConnectionRefused
                | ErrorKind::Interrupted
        );
        if is_of_connection {
            debug!(%error, "a connection has gone before it was accepted");
            return;
        }
        if !replace(&mut self.is_known, true) {
            warn!(%error, "no connection can be accepted; trying again every {PAUSE:?}");
        }
        sleep(PAUSE).await;
    }

    fn end(&mut self) {
        if take(&mut self.is_known) {
            info!("connections are accepted again");
        }
    }
}

/// From now on the kernel ignores who wants to connect. What is connected, or about to be, is not touched.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn drop_handshakes(listener: &TcpListener) -> io::Result<()> {
    use socket2::{SockFilter, SockRef};

    // Classic BPF, on what begins with the TCP header, for IPv4 and IPv6 alike: flags & (SYN | ACK) == SYN.
    const FLAGS: u32 = 13;
    const SYN: u32 = 0x02;
    const ACK: u32 = 0x10;
    const LOAD_BYTE: u16 = 0x30;
    const AND: u16 = 0x54;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    SockRef::from(listener).attach_filter(&[
        SockFilter::new(LOAD_BYTE, 0, 0, FLAGS),
        SockFilter::new(AND, 0, 0, SYN | ACK),
        SockFilter::new(JUMP_IF_EQUAL, 0, 1, SYN),
        SockFilter::new(RETURN, 0, 0, 0),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
    ])
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn drop_handshakes(_: &TcpListener) -> io::Result<()> {
    Err(ErrorKind::Unsupported.into())
}
