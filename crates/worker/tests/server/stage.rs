//! A server with handlers that the test holds in its hand, and a client that sees every byte.

use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::response::IntoResponse;
use axum::routing::get;
use futures_util::stream::unfold;
use hyper::header::{CONNECTION, UPGRADE};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use soloist_worker::Shutdown;
use soloist_worker::server::{Drained, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Longer than anything takes on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// A time of shutdown, or a linger, that no test reaches.
pub(crate) const LONG: Duration = Duration::from_secs(600);
/// More than the kernel's buffers hold.
pub(crate) const BIG: usize = 8 << 20;

pub(crate) async fn within<F: Future>(what: &str, future: F) -> F::Output {
    let done = timeout(PATIENCE, future).await;
    done.unwrap_or_else(|_| panic!("still waiting: {what}"))
}

pub(crate) struct Stage {
    pub(crate) address: SocketAddr,
    pub(crate) shutdown: Shutdown,
    pub(crate) hands: Hands,
    served: JoinHandle<Drained>,
}

impl Stage {
    pub(crate) async fn new(budget: Duration, linger: Duration) -> Self {
        Self::with(budget, |server| server.linger(linger)).await
    }

    pub(crate) async fn with(budget: Duration, set: impl FnOnce(Server) -> Server) -> Self {
        let hands = Hands::default();
        let shutdown = Shutdown::new(budget);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let served = tokio::spawn({
            let (app, shutdown) = (hands.app(), shutdown.clone());
            let server = set(Server::new(listener));
            async move { server.serve(app, &shutdown).await }
        });
        Self {
            address,
            shutdown,
            hands,
            served,
        }
    }

    pub(crate) async fn client(&self) -> Client {
        Client::new(self.address).await
    }

    pub(crate) fn is_serving(&self) -> bool {
        !self.served.is_finished()
    }

    pub(crate) fn drop_server(&self) {
        self.served.abort();
    }

    pub(crate) async fn drained(self) -> Drained {
        within("the server ends", self.served).await.unwrap()
    }
}

/// How a test steers the handlers.
#[derive(Clone)]
pub(crate) struct Hands {
    /// One permit for every handler that was entered.
    pub(crate) entered: Arc<Semaphore>,
    /// A permit lets a handler of `/` go on.
    pub(crate) go_on: Arc<Semaphore>,
    /// One permit for every handler of `/never` that was dropped.
    pub(crate) dropped: Arc<Semaphore>,
    pub(crate) chunks: mpsc::Sender<&'static str>,
    receiver: Arc<Mutex<mpsc::Receiver<&'static str>>>,
}

impl Default for Hands {
    fn default() -> Self {
        let (chunks, receiver) = mpsc::channel(1);
        Self {
            entered: Arc::new(Semaphore::new(0)),
            go_on: Arc::new(Semaphore::new(0)),
            dropped: Arc::new(Semaphore::new(0)),
            chunks,
            receiver: Arc::new(Mutex::new(receiver)),
        }
    }
}

impl Hands {
    fn app(&self) -> Router {
        let route = |hands: &Self| hands.clone();
        let [gate, never, stream] = [route(self), route(self), route(self)];
        Router::new()
            .route("/hello", get(async || "hello"))
            .route("/", get(async move || gate.wait_at_gate().await))
            .route("/never", get(async move || never.never_end().await))
            .route("/stream", get(async move || stream.stream()))
            .route("/panic", get(panics))
            .route("/echo", get(echo))
    }

    async fn wait_at_gate(&self) -> Vec<u8> {
        self.entered.add_permits(1);
        self.go_on.acquire().await.unwrap().forget();
        vec![b'x'; BIG]
    }

    async fn never_end(&self) -> &'static str {
        struct Notice(Arc<Semaphore>);
        impl Drop for Notice {
            fn drop(&mut self) {
                self.0.add_permits(1);
            }
        }
        let _notice = Notice(self.dropped.clone());
        self.entered.add_permits(1);
        pending().await
    }

    /// Ends with the chunk "end".
    fn stream(&self) -> Body {
        self.entered.add_permits(1);
        Body::from_stream(unfold(self.receiver.clone(), async |receiver| {
            let chunk = receiver.lock().await.recv().await?;
            let chunk = (chunk != "end").then(|| Bytes::from(chunk))?;
            Some((Ok::<_, std::io::Error>(chunk), receiver))
        }))
    }

    pub(crate) async fn wait_until_entered(&self) {
        let entered = within("a handler is entered", self.entered.acquire()).await;
        entered.unwrap().forget();
    }

    pub(crate) async fn wait_until_dropped(&self) {
        let dropped = within("a handler is dropped", self.dropped.acquire()).await;
        dropped.unwrap().forget();
    }

    pub(crate) async fn send(&self, chunk: &'static str) {
        let sent = within("a chunk is sent", self.chunks.send(chunk)).await;
        sent.unwrap();
    }
}

async fn panics() -> &'static str {
    panic!("on purpose")
}

async fn echo(mut request: Request<Body>) -> impl IntoResponse {
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let mut io = TokioIo::new(upgraded.await.unwrap());
        let mut byte = [0];
        while io.read(&mut byte).await.unwrap() == 1 {
            io.write_all(&byte).await.unwrap();
        }
    });
    let head = [(CONNECTION, "upgrade"), (UPGRADE, "echo")];
    (StatusCode::SWITCHING_PROTOCOLS, head)
}

/// Speaks HTTP by hand.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
}

impl Client {
    pub(crate) async fn new(address: SocketAddr) -> Self {
        let stream = within("connect", TcpStream::connect(address)).await;
        let stream = stream.unwrap();
        Self { stream }
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let sent = within("send", self.stream.write_all(bytes.as_ref())).await;
        sent.unwrap();
    }

    pub(crate) async fn get(&mut self, path: &str) {
        self.send(format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n"))
            .await;
    }

    pub(crate) async fn read(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        let read = within("read", self.stream.read_exact(&mut bytes)).await;
        read.unwrap();
        bytes
    }

    pub(crate) async fn text(&mut self, length: usize) -> String {
        String::from_utf8(self.read(length).await).unwrap()
    }

    /// A response's head, in small letters.
    pub(crate) async fn head(&mut self) -> String {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            head += &self.text(1).await;
        }
        head.to_lowercase()
    }

    /// All until the server closes. A reset is an error.
    pub(crate) async fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let read = within("the server closes", self.stream.read_to_end(&mut bytes)).await;
        read.unwrap();
        bytes
    }

    pub(crate) async fn expect_close(&mut self) {
        assert_eq!(String::from_utf8_lossy(&self.rest().await), "");
    }
}
