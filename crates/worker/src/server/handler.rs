//! One request: the service is asked, its panics are caught, and its response is made to fit a shutdown.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderMap, HeaderValue};
use hyper::{Request, Response, StatusCode, Version};
use pin_project_lite::pin_project;
use tower::{Service, ServiceExt};
use tracing::warn;

use super::activity::InFlight;
use crate::Shutdown;

pub(super) async fn answer<S, B>(
    service: S,
    request: Request<Incoming>,
    in_flight: InFlight,
    shutdown: Shutdown,
) -> Result<Response<Answer<B>>, S::Error>
where
    S: Service<Request<Incoming>, Response = Response<B>>,
{
    let version = request.version();
    let is_grpc = is_grpc(request.headers());
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let mut call = pin!(service.oneshot(request));
    let called = poll_fn(
        |cx| match catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(cx))) {
            Ok(polled) => polled.map(Some),
            Err(_) => Poll::Ready(None),
        },
    );
    let (mut response, body) = match called.await {
        Some(response) => {
            let (head, body) = response?.into_parts();
            (Response::from_parts(head, ()), Some(body))
        }
        None => {
            let told = if is_grpc { "INTERNAL" } else { "500" };
            warn!(%method, path = uri.path(), "a handler panicked; the client is told {told}");
            (after_panic(is_grpc), None)
        }
    };
    let is_upgrade = response.status() == StatusCode::SWITCHING_PROTOCOLS;
    if version < Version::HTTP_2 && !is_upgrade && shutdown.is_announced() {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
    }
    Ok(response.map(|()| Answer {
        body,
        _in_flight: in_flight,
    }))
}

fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).map(HeaderValue::as_bytes);
    kind.is_some_and(|kind| kind.starts_with(b"application/grpc"))
}

/// What tower-http's `CatchPanic` says, without the box around every body, and in gRPC's words to who speaks gRPC.
fn after_panic(is_grpc: bool) -> Response<()> {
    let mut response = Response::new(());
    if !is_grpc {
        *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        return response;
    }
    for (name, value) in [
        ("content-type", "application/grpc"),
        ("grpc-status", "13"),
        ("grpc-message", "the method panicked"),
    ] {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    response
}

pin_project! {
    /// A response's body. Without one it is empty.
    pub(super) struct Answer<B> {
        #[pin]
        body: Option<B>,
        _in_flight: InFlight,
    }
}

impl<B: Body> Body for Answer<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        match self.project().body.as_pin_mut() {
            Some(body) => body.poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(B::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let empty = || SizeHint::with_exact(0);
        self.body.as_ref().map_or_else(empty, B::size_hint)
    }
}
