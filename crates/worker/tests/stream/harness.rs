//! A consumer on a stage: what it handles is handed to the test, which says when it is done.

use std::time::Duration;

use prost::Message;
use soloist_worker::stream::{
    Consumer, ConsumerError, Drain, Link, State, Subscriber, Summary, Target,
};
use soloist_worker::{Backoff, Shutdown};
use tokio::net::TcpSocket;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tonic::client::Grpc;
use tonic::codec::Codec;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::server::{Call, Note, Sent, Server};

/// Long enough for a loaded machine; a test that waits this long has failed.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// The drain time of the tests that do not run out of it.
pub(crate) const DRAIN: Duration = Duration::from_secs(20);

pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let done = timeout(LIMIT, future).await;
    done.unwrap_or_else(|_| panic!("waited too long for {what}"))
}

/// A port on which nobody listens, and nobody else will.
pub(crate) struct Nobody(TcpSocket);

impl Nobody {
    pub(crate) fn new() -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        Self(socket)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.0.local_addr().unwrap())
    }
}

/// A message in hand. Unanswered, it is handled for ever.
pub(crate) struct Work {
    pub(crate) position: u64,
    done: oneshot::Sender<Outcome>,
}

/// What becomes of a message in hand.
enum Outcome {
    Handled,
    Failed(String),
    Panicked(String),
}

impl Work {
    pub(crate) fn done(self) {
        let _ = self.done.send(Outcome::Handled);
    }

    pub(crate) fn fail(self, why: &str) {
        let _ = self.done.send(Outcome::Failed(why.to_owned()));
    }

    pub(crate) fn panic(self, why: &str) {
        let _ = self.done.send(Outcome::Panicked(why.to_owned()));
    }

    /// Whether the handler has been dropped.
    pub(crate) fn is_given_up(&self) -> bool {
        self.done.is_closed()
    }
}

/// Goes on after the last position that it has committed.
pub(crate) struct Notes {
    work: mpsc::UnboundedSender<Work>,
    last: watch::Sender<u64>,
    drains: bool,
}

impl Notes {
    pub(crate) fn new(drains: bool) -> (Self, mpsc::UnboundedReceiver<Work>) {
        let (work, works) = mpsc::unbounded_channel();
        let last = watch::Sender::new(0);
        (Self { work, last, drains }, works)
    }

    async fn call(&self, link: Link, method: &'static str, position: u64) -> Result<(), Status> {
        let mut grpc = Grpc::new(link);
        let ready = grpc.ready().await;
        ready.map_err(|error| Status::unknown(error.to_string()))?;
        let codec = ProstCodec::<Note, Note>::default();
        let answer: Result<Response<Note>, Status> =
            grpc.unary(request(position), path(method), codec).await;
        answer.map(drop)
    }
}

fn path(method: &'static str) -> PathAndQuery {
    PathAndQuery::from_maybe_shared(format!("/test.Feed/{method}")).unwrap()
}

fn request(position: u64) -> Request<Note> {
    let payload = Vec::new();
    Request::new(Note { position, payload })
}

pub(crate) async fn open_with(
    codec: impl Codec<Encode = Note, Decode = Note>,
    link: Link,
) -> Result<Streaming<Note>, Status> {
    open_after(0, codec, link).await
}

async fn open_after(
    after: u64,
    codec: impl Codec<Encode = Note, Decode = Note>,
    link: Link,
) -> Result<Streaming<Note>, Status> {
    let mut grpc = Grpc::new(link);
    let ready = grpc.ready().await;
    ready.map_err(|error| Status::unknown(error.to_string()))?;
    let opened = grpc
        .server_streaming(request(after), path("Open"), codec)
        .await?;
    Ok(opened.into_inner())
}

impl Subscriber for Notes {
    type Message = Note;
    type Receipt = u64;
    type Error = String;

    async fn open(&self, link: Link, after: Option<&u64>) -> Result<Streaming<Note>, Status> {
        let last = *self.last.borrow();
        let after = after.copied().unwrap_or(0);
        assert_eq!(
            after, last,
            "what is complete in order is what was committed"
        );
        open_after(after, ProstCodec::<Note, Note>::default(), link).await
    }

    async fn handle(&self, message: Note) -> Result<u64, String> {
        let (done, handled) = oneshot::channel();
        let position = message.position;
        self.work.send(Work { position, done }).unwrap();
        match handled.await {
            Ok(Outcome::Handled) => Ok(position),
            Ok(Outcome::Failed(why)) => Err(why),
            Ok(Outcome::Panicked(why)) => panic!("{why}"),
            Err(_) => std::future::pending().await,
        }
    }

    async fn commit(&self, position: u64) -> Result<u64, String> {
        self.last.send_replace(position);
        Ok(position)
    }

    async fn acknowledge(&self, link: Link, receipts: &[u64]) -> Result<(), Status> {
        assert!(receipts.is_sorted(), "out of order: {receipts:?}");
        self.call(link, "Ack", *receipts.last().unwrap()).await
    }

    async fn drain(&self, link: Link) -> Result<Drain, Status> {
        if !self.drains {
            return Ok(Drain::StopReading);
        }
        self.call(link, "Drain", 0).await?;
        Ok(Drain::UntilEnd)
    }
}

pub(crate) type Ended = Result<Summary, ConsumerError<String>>;

/// A consumer that runs, and both ends of what it does.
pub(crate) struct Stage {
    pub(crate) server: Server,
    pub(crate) works: mpsc::UnboundedReceiver<Work>,
    pub(crate) shutdown: Shutdown,
    pub(crate) states: watch::Receiver<State>,
    /// The last position that would survive.
    pub(crate) committed: watch::Receiver<u64>,
    running: JoinHandle<Ended>,
}

pub(crate) fn quick(url: &str) -> Consumer {
    let first = Duration::from_millis(10);
    let backoff = Backoff::try_new(first, Duration::from_millis(40)).unwrap();
    Consumer::new(Target::new(url).unwrap())
        .backoff(backoff)
        .acknowledge_every(Duration::from_millis(1))
}

impl Stage {
    pub(crate) async fn new() -> Self {
        Self::with(|consumer| consumer, DRAIN).await
    }

    pub(crate) async fn with(change: impl FnOnce(Consumer) -> Consumer, drain: Duration) -> Self {
        let server = Server::start().await;
        let consumer = change(quick(&server.url()));
        Self::set(server, consumer, Shutdown::new(drain), true)
    }

    pub(crate) fn set(
        server: Server,
        consumer: Consumer,
        shutdown: Shutdown,
        drains: bool,
    ) -> Self {
        let (notes, works) = Notes::new(drains);
        let states = consumer.states();
        let committed = notes.last.subscribe();
        let running = tokio::spawn({
            let shutdown = shutdown.clone();
            async move { consumer.run(&shutdown, &notes).await }
        });
        Self {
            server,
            works,
            shutdown,
            states,
            committed,
            running,
        }
    }

    /// The next call of this method; acknowledgements that come before it are confirmed.
    pub(crate) async fn call(&mut self, method: &str) -> Call {
        loop {
            let call = within(method, self.server.calls.recv()).await.unwrap();
            if call.method == method {
                return call;
            }
            assert_eq!(call.method, "Ack", "while waiting for {method}");
            call.confirm();
        }
    }

    pub(crate) async fn opened(&mut self) -> Sent {
        self.call("Open").await.stream()
    }

    pub(crate) async fn work(&mut self) -> Work {
        within("a message in hand", self.works.recv())
            .await
            .unwrap()
    }

    /// Confirms acknowledgements until this position is among them.
    pub(crate) async fn acknowledged(&mut self, position: u64) {
        loop {
            let call = self.call("Ack").await;
            let found = call.position;
            assert!(
                found <= position,
                "{found} is acknowledged, which was not handled"
            );
            call.confirm();
            if found == position {
                return;
            }
        }
    }

    /// Waits for such a state.
    pub(crate) async fn state(&mut self, is_it: impl FnMut(&State) -> bool) -> State {
        let found = within("a state", self.states.wait_for(is_it)).await;
        found.unwrap().clone()
    }

    pub(crate) async fn ended(&mut self) -> Ended {
        within("the consumer's end", &mut self.running)
            .await
            .unwrap()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.running.abort();
    }
}

/// As it goes over the wire.
pub(crate) fn note(position: u64) -> Result<Vec<u8>, Status> {
    let payload = b"payload".to_vec();
    Ok(Note { position, payload }.encode_to_vec())
}
