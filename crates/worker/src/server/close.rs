//! Leaves a listener without resetting a connection.
//!
//! A client is connected as soon as the kernel has answered it, long before we accept; to close the listener resets all
//! that it still holds. So: let nobody in, wait for who is at the door, take all that have come in, then close.

use std::io;
use std::time::Duration;

use tokio::time::{sleep, timeout};
use tracing::info;

use super::listener::{Accepted, Listener, Trouble, accept, accept_backlog, accept_one};
use crate::Shutdown;

/// For handshakes under way: long enough for a far client, and for one whose segment was lost and that repeats it (after
/// 200 ms); short of 1 s, after which a client repeats a SYN and learns that it is refused.
const SETTLE: Duration = Duration::from_millis(300);

/// Without a connection for so long, nobody seems to come any more.
const QUIET: Duration = Duration::from_millis(300);

/// At most, and at most half of the shutdown's time, is waited for that.
const QUIET_LIMIT: Duration = Duration::from_secs(5);

/// As much as a backlog holds (`net.core.somaxconn`): who is not kept from connecting may come for ever.
const BACKLOG: usize = 4096;

pub(super) async fn close(
    listener: Listener,
    shutdown: &Shutdown,
    take: &mut impl FnMut(Accepted),
) {
    let door = Door::close(&listener);
    door.tell();
    let last = async {
        match door {
            Door::Filtered | Door::Unreachable => {
                let _settled = timeout(SETTLE, accept(&listener, take)).await;
            }
            Door::Refusing => {}
            Door::Open { .. } => {
                let half = shutdown.time_left().unwrap_or_default() / 2;
                let quiet = until_quiet(&listener, take);
                let _quiet = timeout(half.min(QUIET_LIMIT), quiet).await;
            }
        }
        accept_backlog(&listener, BACKLOG, take).await;
    };
    tokio::select! {
        biased;
        () = last => {}
        () = shutdown.over() => {}
    }
}

async fn until_quiet(listener: &Listener, take: &mut impl FnMut(Accepted)) {
    let mut trouble = Trouble::default();
    loop {
        tokio::select! {
            biased;
            accepted = accept_one(listener, &mut trouble) => take(accepted),
            () = sleep(QUIET) => return,
        }
    }
}

/// What becomes of who wants to connect from now on. What is connected, or about to be, is not touched.
#[derive(Debug)]
enum Door {
    /// The kernel ignores it. The client asks again after a second: perhaps the next one is there by then.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "Linux only"))]
    Filtered,
    /// The kernel refuses it. Handshakes under way end as they would have.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "Linux only"))]
    Unreachable,
    /// The kernel refuses it, and there are no handshakes.
    #[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "Linux only"))]
    Refusing,
    /// It gets in.
    Open { why: io::Error },
}

impl Door {
    #[cfg(target_os = "linux")]
    fn close(listener: &Listener) -> Self {
        use std::net::Shutdown;

        let closed = match listener {
            // unix(7) does not say so, but Linux refuses who connects to a listener that is shut down for reading.
            Listener::Unix(_) => {
                let shut = listener.socket().shutdown(Shutdown::Read);
                shut.map(|()| Self::Refusing)
            }
            Listener::Tcp(_) => drop_handshakes(&listener.socket())
                .map(|()| Self::Filtered)
                .or_else(|_| leave_interfaces(&listener.socket()).map(|()| Self::Unreachable)),
        };
        closed.unwrap_or_else(|why| Self::Open { why })
    }

    #[cfg(not(target_os = "linux"))]
    fn close(_: &Listener) -> Self {
        let why = io::ErrorKind::Unsupported.into();
        Self::Open { why }
    }

    fn tell(&self) {
        match self {
            Self::Filtered => {
                info!(
                    "new connections are ignored, by a socket filter; handshakes under way have {SETTLE:?}"
                );
            }
            Self::Unreachable => {
                info!(
                    "new connections are refused, for the listener has left its interfaces (a socket filter needs CAP_NET_ADMIN); handshakes under way have {SETTLE:?}"
                );
            }
            Self::Refusing => info!("new connections are refused"),
            Self::Open { why } => {
                info!(
                    %why,
                    "new connections cannot be kept out, so they are served until none has come for {QUIET:?}, for at most {QUIET_LIMIT:?}; one that comes just then may be reset"
                );
            }
        }
    }
}

/// New kernels want CAP_NET_ADMIN for it.
#[cfg(target_os = "linux")]
fn drop_handshakes(listener: &socket2::Socket) -> io::Result<()> {
    use socket2::SockFilter;

    // Classic BPF, on what begins with the TCP header, for IPv4 and IPv6 alike: flags & (SYN | ACK) == SYN.
    const FLAGS: u32 = 13;
    const SYN: u32 = 0x02;
    const ACK: u32 = 0x10;
    const LOAD_BYTE: u16 = 0x30;
    const AND: u16 = 0x54;
    const JUMP_IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    listener.attach_filter(&[
        SockFilter::new(LOAD_BYTE, 0, 0, FLAGS),
        SockFilter::new(AND, 0, 0, SYN | ACK),
        SockFilter::new(JUMP_IF_EQUAL, 0, 1, SYN),
        SockFilter::new(RETURN, 0, 0, 0),
        SockFilter::new(RETURN, 0, 0, u32::MAX),
    ])
}

/// Binds the listener to an interface that does not exist: SYNs find no listener any more, while a handshake that has begun
/// knows its own. Anyone may do so once (since Linux 5.7), unless the listener was bound to an interface before.
#[cfg(target_os = "linux")]
fn leave_interfaces(listener: &socket2::Socket) -> io::Result<()> {
    const NONE: std::num::NonZeroU32 = std::num::NonZeroU32::new(i32::MAX as u32).unwrap();
    // The option is the socket's, not the protocol's: IPv6 has the same.
    listener.bind_device_by_index_v4(Some(NONE))
}
