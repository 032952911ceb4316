//! A connection of HTTP/1, for the listener and for the demo's page: one type for both, because hyper's server is compiled anew
//! for every other one.

mod patience;

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::time::Duration;

use futures_util::Stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;

use patience::Impatient;

/// For the head of a request, counted from the last answer: so this long a connection may be idle.
const HEAD_WITHIN: Duration = Duration::from_secs(5);
const LARGEST_HEAD: usize = 8 << 10;
const MOST_HEADERS: usize = 64;
/// For a client to take any of what is sent to it.
const TAKEN_WITHIN: Duration = Duration::from_secs(10);

pub(crate) type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

pub(crate) type Connection = http1::Connection<TokioIo<Impatient<TcpStream>>, Answers>;

type Answering = dyn Fn(&Request<Incoming>) -> Answer + Send + Sync;

/// What is answered to each request.
pub(crate) struct Answers(Box<Answering>);

impl Service<Request<Incoming>> for Answers {
    type Response = Answer;
    type Error = Infallible;
    type Future = Ready<Result<Answer, Infallible>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        ready(Ok((self.0)(&request)))
    }
}

/// Answers whoever has connected, with limits on what it sends and on how long that takes.
pub(crate) fn serve(
    stream: TcpStream,
    answer: impl Fn(&Request<Incoming>) -> Answer + Send + Sync + 'static,
) -> Connection {
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .max_header_size(LARGEST_HEAD)
        .max_headers(MOST_HEADERS)
        .max_buf_size(2 * LARGEST_HEAD)
        .serve_connection(
            TokioIo::new(Impatient::new(stream, TAKEN_WITHIN)),
            Answers(Box::new(answer)),
        )
}

pub(crate) fn answered(code: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    with_headers(code, kind, Full::new(body.into()).boxed_unsync())
}

/// An answer that goes on.
pub(crate) fn streamed(
    kind: &'static str,
    frames: impl Stream<Item = Result<Frame<Bytes>, Infallible>> + Send + 'static,
) -> Answer {
    let body = StreamBody::new(frames).boxed_unsync();
    with_headers(StatusCode::OK, kind, body)
}

fn with_headers(
    code: StatusCode,
    kind: &'static str,
    body: UnsyncBoxBody<Bytes, Infallible>,
) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = code;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}
