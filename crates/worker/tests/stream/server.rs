//! A server without a will of its own: every call is handed to the test, which answers it.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use prost::Message;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::MetadataMap;
use tonic::server::{Grpc, NamedService, ServerStreamingService, UnaryService};
use tonic::transport::{Server as Transport, ServerTlsConfig};
use tonic::{Request, Response, Status};

/// A message of the stream, or the position in a request.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Note {
    #[prost(uint64, tag = "1")]
    pub(crate) position: u64,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) payload: Vec<u8>,
}

/// What is sent on a stream, as it is on the wire.
pub(crate) type Sent = mpsc::Sender<Result<Vec<u8>, Status>>;
type Incoming = mpsc::Receiver<Result<Vec<u8>, Status>>;

/// One call of the client.
pub(crate) struct Call {
    pub(crate) method: String,
    pub(crate) position: u64,
    pub(crate) metadata: MetadataMap,
    answer: oneshot::Sender<Result<Option<Incoming>, Status>>,
}

impl Call {
    /// Opens the stream.
    pub(crate) fn stream(self) -> Sent {
        // Nothing waits between the test and the wire.
        let (sent, incoming) = mpsc::channel(1);
        assert_eq!(self.method, "Open");
        assert!(
            self.answer.send(Ok(Some(incoming))).is_ok(),
            "the client waits"
        );
        sent
    }

    pub(crate) fn confirm(self) {
        // It may have gone.
        let _ = self.answer.send(Ok(None));
    }

    pub(crate) fn refuse(self, status: Status) {
        let _ = self.answer.send(Err(status));
    }
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) calls: mpsc::UnboundedReceiver<Call>,
    task: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::on("127.0.0.1:0".parse().unwrap(), None).await
    }

    pub(crate) async fn with_tls(tls: ServerTlsConfig) -> Self {
        Self::on("127.0.0.1:0".parse().unwrap(), Some(tls)).await
    }

    pub(crate) async fn on(address: SocketAddr, tls: Option<ServerTlsConfig>) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (send, calls) = mpsc::unbounded_channel();
        let mut transport = Transport::builder();
        if let Some(tls) = tls {
            transport = transport.tls_config(tls).unwrap();
        }
        let serve = transport
            .add_service(Scripted { calls: send })
            .serve_with_incoming(TcpListenerStream::new(listener));
        let task = tokio::spawn(async move { serve.await.unwrap() });
        Self {
            address,
            calls,
            task,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[derive(Clone)]
struct Scripted {
    calls: mpsc::UnboundedSender<Call>,
}

impl NamedService for Scripted {
    const NAME: &'static str = "test.Feed";
}

type Answer<T> = Pin<Box<dyn Future<Output = T> + Send>>;

impl tower::Service<http::Request<Body>> for Scripted {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Answer<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let method = request.uri().path().rsplit('/').next().unwrap().to_owned();
        let handler = Handler {
            calls: self.calls.clone(),
            method,
        };
        Box::pin(async move {
            let mut grpc = Grpc::new(Raw);
            Ok(match handler.method.as_str() {
                "Open" => grpc.server_streaming(handler, request).await,
                _ => grpc.unary(handler, request).await,
            })
        })
    }
}

struct Handler {
    calls: mpsc::UnboundedSender<Call>,
    method: String,
}

impl Handler {
    fn hand_over(&self, request: Request<Note>) -> Answer<Result<Option<Incoming>, Status>> {
        let (answer, answered) = oneshot::channel();
        let metadata = request.metadata().clone();
        let call = Call {
            method: self.method.clone(),
            position: request.into_inner().position,
            metadata,
            answer,
        };
        let _ = self.calls.send(call);
        Box::pin(async move {
            let answer = answered.await;
            answer.unwrap_or_else(|_| Err(Status::unavailable("the test did not answer")))
        })
    }
}

impl ServerStreamingService<Note> for Handler {
    type Response = Vec<u8>;
    type ResponseStream = ReceiverStream<Result<Vec<u8>, Status>>;
    type Future = Answer<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Note>) -> Self::Future {
        let answer = self.hand_over(request);
        Box::pin(async move {
            let incoming = answer.await?.expect("a stream");
            Ok(Response::new(ReceiverStream::new(incoming)))
        })
    }
}

impl UnaryService<Note> for Handler {
    type Response = Vec<u8>;
    type Future = Answer<Result<Response<Vec<u8>>, Status>>;

    fn call(&mut self, request: Request<Note>) -> Self::Future {
        let answer = self.hand_over(request);
        Box::pin(async move { answer.await.map(|_| Response::new(Vec::new())) })
    }
}

/// Sends bytes as they are, so that a message can be malformed.
#[derive(Clone, Copy)]
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Note;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, item: Vec<u8>, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        bytes::BufMut::put_slice(buffer, &item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Note;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Note>, Status> {
        let note = Note::decode(buffer).map_err(|error| Status::internal(error.to_string()))?;
        Ok(Some(note))
    }
}
