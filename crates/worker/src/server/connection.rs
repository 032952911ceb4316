//! One connection, and when it is told to end.

use std::error::Error;
use std::mem::replace;
use std::pin::{Pin, pin};
use std::sync::Arc;

use hyper::body::{Body, Incoming};
use hyper::rt::Executor;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::{Builder, UpgradeableConnection};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tower::Service;
use tracing::debug;

use super::activity::{Activity, InFlight};
use super::handler::answer;
use super::listener::Accepted;
use super::peer::Peer;
use super::wire::{Transport, Wire};
use super::{MORE_THAN_A_ROUND_TRIP, Shared};

type Failure = Box<dyn Error + Send + Sync>;

pub(super) fn spawn<S, B>(accepted: Accepted, service: S, shared: &Arc<Shared>)
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<Failure> + Send,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Failure>,
{
    let counted = shared.connections.token();
    let tasks = Tasks(shared.cut.clone());
    let shared = shared.clone();
    tasks.clone().execute(async move {
        let Some((transport, peer)) = shake_hands(accepted, &shared).await else {
            return;
        };
        let activity = Arc::new(Activity::new());
        let wire = Wire::new(transport, activity.clone(), counted);
        let (on, all) = (activity.clone(), shared.clone());
        let answer = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(peer.clone());
            let in_flight = InFlight::new(on.clone(), all.requests.token());
            answer(service.clone(), request, in_flight, all.shutdown.clone())
        });
        let mut builder = Builder::new(tasks);
        builder
            .http2()
            .enable_connect_protocol()
            .timer(TokioTimer::new())
            .keep_alive_interval(shared.limits.keepalive)
            .keep_alive_timeout(shared.limits.keepalive);
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(wire), answer);
        let mut connection = pin!(connection);
        // Who comes after that is served as ever: it may have no other place to go to yet.
        let mut is_announced = shared.shutdown.is_announced();
        let ended = loop {
            tokio::select! {
                ended = connection.as_mut() => break ended,
                () = shared.shutdown.begun() => {
                    let tell = UpgradeableConnection::graceful_shutdown;
                    break drain(connection, tell, &activity, &shared).await;
                }
                () = shared.shutdown.announced(), if !is_announced => {
                    is_announced = true;
                    if activity.is_http2() {
                        connection.as_mut().graceful_shutdown();
                    }
                }
                () = activity.head_is_late(shared.limits.header) => {
                    break Err("the head of a request took too long".into());
                }
            }
        };
        if let Err(error) = ended {
            debug!(error, "a connection ended early");
        }
    });
}

/// `None` if it came to nothing.
async fn shake_hands(
    accepted: Accepted,
    #[cfg_attr(not(feature = "server-tls"), expect(unused_variables))] shared: &Shared,
) -> Option<(Box<dyn Transport>, Peer)> {
    let Accepted { transport, address } = accepted;
    #[cfg(feature = "server-tls")]
    if let Some(certificates) = &shared.certificates {
        let acceptor = tokio_rustls::TlsAcceptor::from(certificates.current());
        let late = async {
            tokio::select! {
                () = tokio::time::sleep(shared.limits.header) => {}
                () = shared.handshake_is_over() => {}
            }
        };
        let stream = tokio::select! {
            biased;
            shaken = acceptor.accept(transport) => match shaken {
                Ok(stream) => stream,
                Err(error) => {
                    debug!(%error, ?address, "no TLS");
                    return None;
                }
            },
            () = late => {
                debug!(?address, "a TLS handshake took too long");
                return None;
            }
        };
        let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
        let peer = Peer::with_certificates(address, certificates);
        return Some((Box::new(stream), peer));
    }
    Some((transport, Peer::new(address)))
}

/// HTTP/2 is told at once, for it can say so to the client. HTTP/1 can only close, and a request may be on its way.
///
/// What has nothing in flight after the linger, and does not end by itself, is dropped: a peer that does not send the rest of
/// its head, or one that has vanished and does not answer the farewell.
async fn drain<C: Future<Output = Result<(), Failure>>>(
    mut connection: Pin<&mut C>,
    tell: impl Fn(Pin<&mut C>),
    activity: &Activity,
    shared: &Shared,
) -> C::Output {
    let begun = Instant::now();
    let half = shared.shutdown.time_left().unwrap_or_default() / 2;
    let end_of_linger = || {
        let linger = match activity.is_http2() {
            true => shared.limits.linger.max(MORE_THAN_A_ROUND_TRIP),
            false => shared.limits.linger,
        };
        let since = activity.idle_since()?.max(begun);
        Some((since + linger).min(begun + half))
    };
    let mut is_told = false;
    let mut has_answered = false;
    loop {
        if activity.is_http2() && !replace(&mut is_told, true) {
            tell(connection.as_mut());
            activity.was_heard();
        }
        let end = end_of_linger().filter(|_| !has_answered);
        tokio::select! {
            biased;
            ended = connection.as_mut() => return ended,
            () = activity.changed() => {}
            () = sleep_until(end.unwrap_or(begun)), if end.is_some() => {
                let is_over = end_of_linger().is_some_and(|end| end <= Instant::now());
                if !is_over {
                    continue;
                }
                if !replace(&mut is_told, true) {
                    tell(connection.as_mut());
                } else if activity.is_http2() && activity.was_heard() {
                    // It lives, and hyper ends the connection when all has been sent.
                    has_answered = true;
                } else {
                    return Err("the shutdown's linger is over and nothing is in flight".into());
                }
            }
        }
    }
}

/// Connections and HTTP/2 streams: all end at the cut.
#[derive(Clone, Debug)]
struct Tasks(CancellationToken);

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for Tasks {
    fn execute(&self, future: F) {
        tokio::spawn(self.0.clone().run_until_cancelled_owned(future));
    }
}
