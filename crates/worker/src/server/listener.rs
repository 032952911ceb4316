//! Where connections come from.

use std::convert::Infallible;
use std::io::{self, ErrorKind};
use std::mem::{replace, take};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::time::sleep;
use tracing::{debug, info, warn};

use super::peer::PeerAddress;
use super::wire::Transport;

/// After an error that is not the connection's own, such as too many open files.
const PAUSE: Duration = Duration::from_millis(50);

/// A peer whose host has gone is noticed after 25 s, if nothing was being sent to it.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(10))
    .with_interval(Duration::from_secs(5))
    .with_retries(3);

/// What a [`Server`](super::Server) listens on.
#[derive(Debug)]
#[non_exhaustive]
pub enum Listener {
    /// TCP, over IPv4 or IPv6.
    Tcp(TcpListener),
    /// A Unix socket. Its file is left where it is: remove it before you bind to the same path.
    Unix(UnixListener),
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Self::Tcp(listener)
    }
}

impl From<UnixListener> for Listener {
    fn from(listener: UnixListener) -> Self {
        Self::Unix(listener)
    }
}

/// A connection, and whose it is.
pub(super) struct Accepted {
    pub(super) transport: Box<dyn Transport>,
    pub(super) address: PeerAddress,
}

impl Accepted {
    fn tcp(stream: TcpStream, address: std::net::SocketAddr) -> Self {
        // Small frames, as gRPC has them, must not wait for each other.
        let set = stream.set_nodelay(true);
        let set = set.and_then(|()| SockRef::from(&stream).set_tcp_keepalive(&KEEPALIVE));
        if let Err(error) = set {
            debug!(%error, "a connection has gone at once");
        }
        Self {
            transport: Box::new(stream),
            address: PeerAddress::Tcp(address),
        }
    }

    fn unix(stream: UnixStream) -> io::Result<Self> {
        let address = PeerAddress::Unix(stream.peer_cred()?);
        Ok(Self {
            transport: Box::new(stream),
            address,
        })
    }
}

impl Listener {
    async fn next(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                Ok(Accepted::tcp(stream, address))
            }
            Self::Unix(listener) => Accepted::unix(listener.accept().await?.0),
        }
    }

    /// Asks the kernel. tokio's `accept` may say "nothing there" of a backlog that it has not looked at.
    fn next_in_backlog(&self) -> io::Result<Accepted> {
        let (stream, address) = self.socket().accept()?;
        stream.set_nonblocking(true)?;
        match self {
            Self::Tcp(_) => {
                let address = address.as_socket().ok_or(ErrorKind::ConnectionAborted)?;
                Ok(Accepted::tcp(TcpStream::from_std(stream.into())?, address))
            }
            Self::Unix(_) => Accepted::unix(UnixStream::from_std(stream.into())?),
        }
    }

    pub(super) fn socket(&self) -> SockRef<'_> {
        match self {
            Self::Tcp(listener) => SockRef::from(listener),
            Self::Unix(listener) => SockRef::from(listener),
        }
    }
}

/// Accepts for ever. To drop it loses no connection.
pub(super) async fn accept(listener: &Listener, take: &mut impl FnMut(Accepted)) -> Infallible {
    let mut trouble = Trouble::default();
    loop {
        take(accept_one(listener, &mut trouble).await);
    }
}

pub(super) async fn accept_one(listener: &Listener, trouble: &mut Trouble) -> Accepted {
    loop {
        match listener.next().await {
            Ok(accepted) => {
                trouble.end();
                return accepted;
            }
            Err(error) => trouble.pause(&error).await,
        }
    }
}

/// Accepts what the kernel holds, and at most so many.
pub(super) async fn accept_backlog(
    listener: &Listener,
    at_most: usize,
    take: &mut impl FnMut(Accepted),
) {
    let mut trouble = Trouble::default();
    let mut accepted = 0;
    while accepted < at_most {
        match listener.next_in_backlog() {
            Ok(connection) => {
                accepted += 1;
                take(connection);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return,
            Err(error) => trouble.pause(&error).await,
        }
    }
}

/// Connections cannot be accepted. One line says so, however long it lasts.
#[derive(Debug, Default)]
pub(super) struct Trouble {
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
                | ErrorKind::NotConnected
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
