//! One connection to one member. It is never made again behind anybody's back, and closed when it is dropped.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use http::uri::PathAndQuery;
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use prost::Message;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::greeting;
use super::options::{Endpoint, Tls};
use super::tls;
use crate::causes::find;

/// What lasts longer is a network that swallows everything: the next member is tried.
const DIALLING: Duration = Duration::from_secs(2);
/// A member that is gone without a word is noticed after both. etcd takes more than one ping in 5 s for an attack.
const PING_EVERY: Duration = Duration::from_secs(6);
const PING_LIMIT: Duration = Duration::from_secs(4);

/// Says who we are, if it must be said.
pub(super) type Token = MetadataValue<Ascii>;

/// A connection of HTTP/2.
pub(super) struct Connection {
    sender: SendRequest<Body>,
    origin: Uri,
    /// Which of the endpoints.
    pub(super) endpoint: usize,
    task: AbortHandle,
}

impl Connection {
    /// Connects to a member. Nothing has been asked of it yet.
    pub(super) async fn dial(
        number: usize,
        endpoint: &Endpoint,
        tls: Option<&Tls>,
    ) -> Result<Self, DialError> {
        let dialled = tokio::time::timeout(DIALLING, async {
            let tcp = TcpStream::connect((endpoint.host.as_str(), endpoint.port)).await;
            let tcp = tcp.map_err(DialError::Unreachable)?;
            tcp.set_nodelay(true).map_err(DialError::Unreachable)?;
            match tls {
                None => Self::greet(tcp, "http", number, endpoint).await,
                Some(files) => {
                    let stream = tls::connect(files, &endpoint.host, tcp).await?;
                    Self::greet(stream, "https", number, endpoint).await
                }
            }
        });
        dialled.await.map_err(|_| DialError::Silent)?
    }

    async fn greet<S>(
        stream: S,
        scheme: &str,
        number: usize,
        endpoint: &Endpoint,
    ) -> Result<Self, DialError>
    where
        S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    {
        let origin = format!("{scheme}://{endpoint}");
        let origin = origin
            .parse()
            .map_err(|error| DialError::Unreachable(io::Error::other(error)))?;
        let (stream, greeting) = greeting::listen(stream);
        let greeted = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_LIMIT)
            .keep_alive_while_idle(true)
            .handshake(TokioIo::new(stream))
            .await;
        let (sender, connection) = greeted.map_err(DialError::Greeting)?;
        let task = tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to etcd ended");
            }
        });
        let connection = Self {
            sender,
            origin,
            endpoint: number,
            task: task.abort_handle(),
        };
        greeting.of_an_http2_server().await?;
        Ok(connection)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// One request, one answer.
    pub(super) async fn ask<Q, A>(
        &self,
        method: &'static str,
        question: Q,
        token: Option<Token>,
    ) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let codec = ProstCodec::<Q, A>::new();
        let request = of_a_member_with_a_leader(question, token);
        let mut grpc = self.grpc();
        let answer = grpc.unary(request, PathAndQuery::from_static(method), codec);
        Ok(answer.await?.into_inner())
    }

    /// One request, many answers.
    pub(super) async fn subscribe<Q, A>(
        &self,
        method: &'static str,
        question: Q,
        token: Option<Token>,
    ) -> Result<Streaming<A>, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        use futures_util::{StreamExt, stream};
        let codec = ProstCodec::<Q, A>::new();
        // Whoever has nothing more to say ends the watch.
        let questions = stream::iter([question]).chain(stream::pending());
        let request = of_a_member_with_a_leader(questions, token);
        let mut grpc = self.grpc();
        let answers = grpc.streaming(request, PathAndQuery::from_static(method), codec);
        Ok(answers.await?.into_inner())
    }

    fn grpc(&self) -> Grpc<Sender> {
        Grpc::with_origin(Sender(self.sender.clone()), self.origin.clone())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connection").field(&self.origin).finish()
    }
}

/// A member that has lost the others answers so at once, and ends its watches, instead of keeping us waiting.
fn of_a_member_with_a_leader<T>(message: T, token: Option<Token>) -> Request<T> {
    let mut request = Request::new(message);
    let metadata = request.metadata_mut();
    metadata.insert("hasleader", MetadataValue::from_static("true"));
    if let Some(token) = token {
        metadata.insert("token", token);
    }
    request
}

struct Sender(SendRequest<Body>);

impl tower::Service<http::Request<Body>> for Sender {
    type Response = http::Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, hyper::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        Box::pin(self.0.send_request(request))
    }
}

/// Whether the request certainly never left this process.
pub(super) fn was_not_sent(status: &Status) -> bool {
    status.code() != Code::Ok && find::<hyper::Error>(status).is_some_and(hyper::Error::is_canceled)
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum DialError {
    #[error(transparent)]
    Unreachable(io::Error),
    #[error("it says nothing for {}", soloist_core::time::Human(DIALLING))]
    Silent,
    #[error("it does not speak HTTP/2")]
    Greeting(#[source] hyper::Error),
    #[error("it closes the connection without a word; if it wants TLS, give --etcd-ca")]
    Closed,
    #[error(
        "it closes the connection instead of a TLS handshake; if this etcd has no TLS, leave --etcd-ca away"
    )]
    NoTls,
    /// It is no etcd, and will not become one.
    #[error("{0}")]
    Stranger(String),
    /// Certificates that do not fit, or cannot be read: this will not go away by itself.
    #[error("{0}")]
    Tls(String),
}
