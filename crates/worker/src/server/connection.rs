//! One connection, and when it is told to end.

use std::error::Error;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Poll, ready};

use hyper::body::{Body, Incoming};
use hyper::rt::Executor;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto::{Builder, UpgradeableConnection};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tower::Service;
use tracing::debug;

use super::Shared;
use super::activity::{Activity, InFlight};
use super::handler::answer;
use super::wire::Wire;

pub(super) fn spawn<S, B>(stream: TcpStream, service: S, shared: &Arc<Shared>)
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<Box<dyn Error + Send + Sync>> + Send,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    // Small frames, as gRPC has them, must not wait for each other.
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%error, "a connection has gone at once");
    }
    let activity = Arc::new(Activity::new());
    let wire = Wire::new(stream, activity.clone(), shared.connections.token());
    let tasks = Tasks(shared.cut.clone());
    let mut builder = Builder::new(tasks.clone());
    builder.http2().enable_connect_protocol();
    let shared = shared.clone();
    tasks.execute(async move {
        let (on, all) = (activity.clone(), shared.clone());
        let answer = service_fn(move |request| {
            let in_flight = InFlight::new(on.clone(), all.requests.token());
            answer(service.clone(), request, in_flight, all.shutdown.clone())
        });
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(wire), answer);
        let mut connection = pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = shared.shutdown.begun() => {
                drain(connection, UpgradeableConnection::graceful_shutdown, &activity, &shared).await
            }
        };
        if let Err(error) = ended {
            debug!(error, "a connection ended early");
        }
    });
}

/// HTTP/2 is told at once, for it can say so to the client. HTTP/1 can only close, and a request may be on its way.
async fn drain<C: Future>(
    mut connection: Pin<&mut C>,
    tell: impl Fn(Pin<&mut C>),
    activity: &Activity,
    shared: &Shared,
) -> C::Output {
    let begun = Instant::now();
    let half = shared.shutdown.time_left().unwrap_or_default() / 2;
    let linger = shared.linger.min(half);
    let mut timer = pin!(sleep_until(begun + linger));
    let mut is_told = false;
    poll_fn(|cx| {
        loop {
            if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                return Poll::Ready(ended);
            }
            if is_told {
                return Poll::Pending;
            }
            if !activity.is_http2() {
                let Some(since) = activity.idle_since() else {
                    return Poll::Pending;
                };
                let end = (since.max(begun) + linger).min(begun + half);
                if timer.deadline() != end {
                    timer.as_mut().reset(end);
                }
                ready!(timer.as_mut().poll(cx));
            }
            tell(connection.as_mut());
            is_told = true;
        }
    })
    .await
}

/// Connections and HTTP/2 streams: all end at the cut.
#[derive(Clone, Debug)]
struct Tasks(CancellationToken);

impl<F: Future<Output: Send> + Send + 'static> Executor<F> for Tasks {
    fn execute(&self, future: F) {
        tokio::spawn(self.0.clone().run_until_cancelled_owned(future));
    }
}
