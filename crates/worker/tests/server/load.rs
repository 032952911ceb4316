//! Clients that ask again and again, and count what became of each request.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::stage::within;

/// Nobody answers who knocks: not connected, and the next time refused.
const CONNECT_LIMIT: Duration = Duration::from_millis(200);

/// How a client uses its connections.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Manner {
    /// One for each request, which comes after this time.
    Fresh(Duration),
    /// One for each request. Comes again even if it was refused, or reset before it was heard.
    Restless,
    /// HTTP/1, one until the server closes it as announced.
    KeepAlive,
    /// HTTP/2, one until the server says GOAWAY.
    Http2,
}

#[derive(Debug, Default)]
pub(crate) struct Count {
    answered: AtomicUsize,
    lost: AtomicUsize,
    is_over: AtomicBool,
}

impl Count {
    pub(crate) fn answered(&self) -> usize {
        self.answered.load(Ordering::Relaxed)
    }

    pub(crate) fn lost(&self) -> usize {
        self.lost.load(Ordering::Relaxed)
    }

    fn add(&self, is_answered: bool) {
        let counter = if is_answered {
            &self.answered
        } else {
            &self.lost
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Each client goes on until it is refused, or the load ends.
pub(crate) struct Load {
    pub(crate) count: Arc<Count>,
    clients: JoinSet<()>,
}

impl Load {
    pub(crate) fn begin(address: SocketAddr, manners: &[(Manner, usize)]) -> Self {
        let count = Arc::new(Count::default());
        let mut clients = JoinSet::new();
        for &(manner, many) in manners {
            for _ in 0..many {
                clients.spawn(ask_until_refused(address, manner, count.clone()));
            }
        }
        Self { count, clients }
    }

    pub(crate) async fn until_answered(&self, enough: usize) {
        let answers = async {
            while self.count.answered() < enough {
                sleep(Duration::from_millis(5)).await;
            }
        };
        within("answers", answers).await;
    }

    /// Every client has its last answer when this returns.
    pub(crate) async fn end(self) -> Arc<Count> {
        self.count.is_over.store(true, Ordering::Relaxed);
        self.until_refused().await
    }

    pub(crate) async fn until_refused(self) -> Arc<Count> {
        within("all clients are refused", self.clients.join_all()).await;
        self.count
    }
}

async fn ask_until_refused(address: SocketAddr, manner: Manner, count: Arc<Count>) {
    while !count.is_over.load(Ordering::Relaxed) {
        let stream = match timeout(CONNECT_LIMIT, TcpStream::connect(address)).await {
            Err(_) => continue,
            Ok(Err(_)) if matches!(manner, Manner::Restless) => {
                sleep(Duration::from_millis(1)).await;
                continue;
            }
            Ok(Err(error)) => {
                assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
                return;
            }
            Ok(Ok(stream)) => stream,
        };
        match manner {
            Manner::Fresh(thinks) => {
                sleep(thinks).await;
                count.add(within("an answer", ask_once(stream)).await);
            }
            Manner::Restless => count.add(within("an answer", ask_once(stream)).await),
            Manner::KeepAlive => within("answers", ask_on(stream, &count)).await,
            Manner::Http2 => within("answers", ask_http2(stream, &count)).await,
        }
    }
}

async fn ask_once(mut stream: TcpStream) -> bool {
    const REQUEST: &[u8] = b"GET /hello HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";
    let mut answer = String::new();
    let asked = async {
        stream.write_all(REQUEST).await?;
        stream.read_to_string(&mut answer).await
    };
    asked.await.is_ok() && answer.ends_with("hello")
}

async fn ask_on(mut stream: TcpStream, count: &Count) {
    loop {
        let mut answer = Vec::new();
        let asked = async {
            stream
                .write_all(b"GET /hello HTTP/1.1\r\nhost: test\r\n\r\n")
                .await?;
            while !answer.ends_with(b"hello") {
                answer.push(stream.read_u8().await?);
            }
            std::io::Result::Ok(())
        };
        let is_answered = asked.await.is_ok();
        count.add(is_answered);
        let head = String::from_utf8_lossy(&answer).to_lowercase();
        let is_last = !is_answered || head.contains("connection: close");
        if is_last || count.is_over.load(Ordering::Relaxed) {
            return;
        }
    }
}

async fn ask_http2(stream: TcpStream, count: &Count) {
    let Ok((client, connection)) = h2::client::handshake(stream).await else {
        count.add(false);
        return;
    };
    let connection = tokio::spawn(connection);
    while !count.is_over.load(Ordering::Relaxed) {
        // Fails when the server has said GOAWAY: this request was never made.
        let Ok(mut ready) = client.clone().ready().await else {
            break;
        };
        let request = Request::get("http://test/hello").body(()).unwrap();
        let Ok((response, _)) = ready.send_request(request, true) else {
            break;
        };
        let answered = async {
            let response = response.await?;
            let is_ok = response.status() == StatusCode::OK;
            let mut body = response.into_body();
            let mut text = Vec::new();
            while let Some(data) = body.data().await {
                let data: Bytes = data?;
                body.flow_control().release_capacity(data.len())?;
                text.extend(data);
            }
            Ok::<_, h2::Error>(is_ok && text == b"hello")
        };
        match answered.await {
            Ok(is_answered) => count.add(is_answered),
            // Refused by GOAWAY: the client knows that it was not looked at.
            Err(error) if error.is_go_away() && error.reason() == Some(h2::Reason::NO_ERROR) => {
                break;
            }
            Err(_) => {
                count.add(false);
                break;
            }
        }
    }
    drop(client);
    let _ended = connection.await;
}
