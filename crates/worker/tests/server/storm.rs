//! Clients that connect while the server leaves.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use soloist_worker::Shutdown;
use soloist_worker::server::Server;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::stage::{Client, LONG, within};

const REQUEST: &[u8] = b"GET /hello HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";

fn app() -> Router {
    Router::new().route("/hello", get(async || "hello"))
}

#[tokio::test]
async fn who_waits_to_be_accepted_when_the_shutdown_begins_is_served() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut clients = Vec::new();
    for _ in 0..50 {
        clients.push(Client::new(address).await);
    }
    let shutdown = Shutdown::new(LONG);
    shutdown.begin();
    let served = tokio::spawn(async move { Server::new(listener).serve(app(), &shutdown).await });
    for client in &mut clients {
        client.get("/hello").await;
        let head = client.head().await;
        assert!(head.contains("connection: close"), "{head}");
        assert_eq!(client.rest().await, b"hello");
    }
    let drained = within("the server ends", served).await.unwrap();
    assert!(drained.is_complete(), "{drained:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_client_that_has_connected_is_reset() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        for round in 0..ROUNDS {
            let count = Arc::new(Count::default());
            storm(address, &count).await;
            let [answered, lost] =
                [&count.answered, &count.lost].map(|n| n.load(Ordering::Relaxed));
            assert_eq!(lost, 0, "of {answered} in round {round} on {address}");
            assert!(answered >= ENOUGH);
        }
    }
}

const ROUNDS: usize = 8;
const CLIENTS: usize = 32;
/// Answers before the shutdown begins.
const ENOUGH: usize = 200;

#[derive(Debug, Default)]
struct Count {
    answered: AtomicUsize,
    lost: AtomicUsize,
}

async fn storm(address: &str, count: &Arc<Count>) {
    let listener = TcpListener::bind(address).await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = Shutdown::new(LONG);
    let served = tokio::spawn({
        let shutdown = shutdown.clone();
        async move { Server::new(listener).serve(app(), &shutdown).await }
    });
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let (count, shutdown) = (count.clone(), shutdown.clone());
        clients.spawn(async move {
            while connect_and_ask(address, &count).await {
                if count.answered.load(Ordering::Relaxed) >= ENOUGH {
                    shutdown.begin();
                }
            }
        });
    }
    within("all clients are refused", clients.join_all()).await;
    let drained = within("the server ends", served).await.unwrap();
    assert!(drained.is_complete(), "{drained:?}");
}

/// Whether to go on.
async fn connect_and_ask(address: SocketAddr, count: &Count) -> bool {
    match timeout(Duration::from_millis(200), TcpStream::connect(address)).await {
        // Nobody answers who knocks: not connected, and the next time refused.
        Err(_) => true,
        Ok(Err(error)) => {
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
            false
        }
        Ok(Ok(mut stream)) => {
            let mut answer = String::new();
            let asked = async {
                stream.write_all(REQUEST).await?;
                stream.read_to_string(&mut answer).await
            };
            let asked = within("an answer", asked).await;
            let is_answered = asked.is_ok() && answer.ends_with("hello");
            let counter = if is_answered {
                &count.answered
            } else {
                &count.lost
            };
            counter.fetch_add(1, Ordering::Relaxed);
            true
        }
    }
}
