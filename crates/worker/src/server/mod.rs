//! HTTP/1, HTTP/2 and gRPC servers that finish what they have accepted.
//!
//! Takes what axum makes (`axum::Router`) and what tonic makes (`tonic::service::Routes`), or any tower service of
//! requests:
//!
//! ```no_run
//! # async fn child(app: axum::Router, shutdown: soloist_worker::Shutdown) -> std::io::Result<()> {
//! use soloist_worker::server::Server;
//!
//! let listener = tokio::net::TcpListener::bind("0.0.0.0:8080").await?;
//! let drained = Server::new(listener).serve(app, &shutdown).await;
//! if drained.is_complete() {
//!     // Every request has been answered.
//! }
//! # Ok(())
//! # }
//! ```
//!
//! When the shutdown is [announced](Shutdown::announce), as soloist does it when the Pod's end is near, all goes on as before, but
//! HTTP/1 responses say `connection: close`, and HTTP/2 connections are told to go away when their streams have finished. So
//! clients connect anew, and by then elsewhere.
//!
//! When the shutdown begins:
//!
//! 1. New connections are refused. Those that a client already believes to have are accepted and served. Where the kernel
//!    does not let us refuse them, they are served for as long as they come, for at most 5 s.
//! 2. HTTP/2 connections are told to go away; streams that have begun finish. A client that does not answer is dropped.
//! 3. HTTP/1 responses say `connection: close`. A connection without a request stays for the
//!    [linger](Server::linger): a request may be on its way.
//! 4. Requests in flight finish. What is left at the deadline is cut, counted and logged.
//!
//! A handler that panics answers 500, a gRPC method `INTERNAL`; the connection lives on. Handlers find out who asks by the
//! [`Peer`] in the request's extensions.
//!
//! A WebSocket, or what else a connection has been upgraded to, is waited for like a request. Its handler should watch
//! the [`Shutdown`] and say goodbye; at the deadline it is counted as cut, but lives on until the process ends.

mod activity;
mod close;
mod connection;
mod handler;
mod listener;
mod peer;
#[cfg(feature = "server-tls")]
mod tls;
mod wire;

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::{Body, Incoming};
use hyper::{Request, Response};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service;
use tracing::{info, warn};

pub use listener::Listener;
pub use peer::{Peer, PeerAddress};
#[cfg(feature = "server-tls")]
pub use tls::{Tls, TlsError};

use crate::Shutdown;
use listener::Accepted;

/// For a peer's answer to GOAWAY, or to finish a TLS handshake, when the shutdown has begun; however short the linger is.
const MORE_THAN_A_ROUND_TRIP: Duration = Duration::from_secs(1);

/// One listener and how to leave it.
#[derive(Debug)]
#[must_use = "it does nothing until serve is called"]
pub struct Server {
    listener: Listener,
    limits: Limits,
    #[cfg(feature = "server-tls")]
    certificates: Option<tls::Certificates>,
}

/// How long what may take.
#[derive(Clone, Copy, Debug)]
struct Limits {
    linger: Duration,
    header: Duration,
    keepalive: Duration,
}

/// How a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "is_complete tells whether something had to be cut"]
pub struct Drained {
    /// Requests that were in flight when the shutdown began.
    pub in_flight: usize,
    /// Requests that were cut at the deadline: begun, and not answered in full.
    pub cut: usize,
    /// Connections that were cut at the deadline, with or without a request.
    pub cut_connections: usize,
    /// From when the shutdown began.
    pub took: Duration,
}

impl Drained {
    /// Whether nothing had to be cut.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.cut == 0 && self.cut_connections == 0
    }
}

impl Server {
    /// On a `TcpListener` or a `UnixListener`. It must not be shared with another process: nobody can connect to it any
    /// more when we leave it.
    pub fn new(listener: impl Into<Listener>) -> Self {
        Self {
            listener: listener.into(),
            limits: Limits {
                linger: Duration::from_secs(1),
                header: Duration::from_secs(30),
                keepalive: Duration::from_secs(10),
            },
            #[cfg(feature = "server-tls")]
            certificates: None,
        }
    }

    /// Speak TLS, and nothing else. HTTP/2 and HTTP/1.1 are both offered (ALPN).
    ///
    /// # Errors
    /// When the files cannot be used as they are now. Later that is a warning, and the former ones stay in use.
    #[cfg(feature = "server-tls")]
    pub fn tls(mut self, tls: Tls) -> Result<Self, TlsError> {
        self.certificates = Some(tls::Certificates::read(tls)?);
        Ok(self)
    }

    /// How long a connection without a request stays open when the shutdown has begun (1 s), counted from its last
    /// response. At most half of the time that the shutdown has: what comes must also be answered. HTTP/2 clients, which
    /// are told at once, have at least a second to say that they have heard it; TLS handshakes have that, too.
    pub const fn linger(mut self, linger: Duration) -> Self {
        self.limits.linger = linger;
        self
    }

    /// How long the head of an HTTP/1 request may take from its first byte, and a TLS handshake as a whole (30 s).
    pub const fn header_timeout(mut self, limit: Duration) -> Self {
        self.limits.header = limit;
        self
    }

    /// After how long without a sign of life an HTTP/2 client is asked for one, and how long it then has (10 s).
    pub const fn keepalive(mut self, time: Duration) -> Self {
        self.limits.keepalive = time;
        self
    }

    /// Serves until the shutdown has begun, and then until all is answered or the shutdown's time is over.
    ///
    /// Whoever drops this future cuts all connections.
    pub async fn serve<S, B>(self, service: S, shutdown: &Shutdown) -> Drained
    where
        S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
        S::Future: Send,
        S::Error: Into<Box<dyn Error + Send + Sync>> + Send,
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let listener = self.listener;
        let shared = Arc::new(Shared {
            shutdown: shutdown.clone(),
            limits: self.limits,
            #[cfg(feature = "server-tls")]
            certificates: self.certificates,
            connections: TaskTracker::new(),
            requests: TaskTracker::new(),
            cut: CancellationToken::new(),
        });
        let _cut = shared.cut.clone().drop_guard();
        let all = shared.clone();
        // Owns the service: a reference to it would ask it to be `Sync`.
        let mut take = move |accepted: Accepted| connection::spawn(accepted, service.clone(), &all);
        tokio::select! {
            biased;
            () = shutdown.begun() => {}
            never = listener::accept(&listener, &mut take) => match never {},
        }
        let begun = Instant::now();
        let in_flight = shared.begin();
        close::close(listener, shutdown, &mut take).await;
        shared.drain(begun, in_flight).await
    }
}

/// What all connections share.
#[derive(Debug)]
struct Shared {
    shutdown: Shutdown,
    limits: Limits,
    #[cfg(feature = "server-tls")]
    certificates: Option<tls::Certificates>,
    connections: TaskTracker,
    requests: TaskTracker,
    cut: CancellationToken,
}

impl Shared {
    fn begin(&self) -> usize {
        let in_flight = self.requests.len();
        info!(
            requests = in_flight,
            connections = self.connections.len(),
            time = ?self.shutdown.time_left().unwrap_or_default(),
            "the server ends; requests in flight finish"
        );
        in_flight
    }

    /// Waits until the shutdown has begun, and then for as long as a TLS handshake has.
    #[cfg(feature = "server-tls")]
    async fn handshake_is_over(&self) {
        self.shutdown.begun().await;
        let half = self.shutdown.time_left().unwrap_or_default() / 2;
        let linger = self.limits.linger.max(MORE_THAN_A_ROUND_TRIP);
        tokio::time::sleep(linger.min(half)).await;
    }

    /// The listener is closed.
    async fn drain(&self, begun: Instant, in_flight: usize) -> Drained {
        self.connections.close();
        tokio::select! {
            biased;
            () = self.connections.wait() => {}
            () = self.shutdown.over() => {}
        }
        let drained = Drained {
            in_flight,
            cut: self.requests.len(),
            cut_connections: self.connections.len(),
            took: begun.elapsed(),
        };
        let took = drained.took;
        if drained.is_complete() {
            info!(?took, "the server is done; nothing had to be cut");
        } else {
            warn!(
                requests = drained.cut,
                connections = drained.cut_connections,
                ?took,
                "the server's time is over; requests without a full answer and connections that had not ended are cut"
            );
        }
        drained
    }
}
