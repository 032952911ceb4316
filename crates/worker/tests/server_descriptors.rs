//! A server that has no descriptors left. Alone in its process, for the limit is the process's.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use soloist_worker::Shutdown;
use soloist_worker::server::Server;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(30);
/// Longer than the server needs to leave a listener that gives it no trouble.
const LONG_ENOUGH: Duration = Duration::from_secs(1);

#[tokio::test]
async fn who_cannot_be_accepted_for_want_of_descriptors_is_served_later() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = Shutdown::new(Duration::from_secs(600));
    let mut before = client(address).await;
    let mut during = client(address).await;
    let limit = getrlimit(Resource::Nofile);
    set_limit(0, limit);
    let served = tokio::spawn({
        let shutdown = shutdown.clone();
        let app = Router::new().route("/", get(async || "hello"));
        async move { Server::new(listener).serve(app, &shutdown).await }
    });
    is_silent(&mut before).await;
    shutdown.begin();
    is_silent(&mut during).await;
    setrlimit(Resource::Nofile, limit).unwrap();
    for mut client in [before, during] {
        let mut answer = String::new();
        let read = timeout(PATIENCE, client.read_to_string(&mut answer)).await;
        read.unwrap().unwrap();
        assert!(answer.ends_with("hello"), "{answer}");
    }
    let drained = timeout(PATIENCE, served).await.unwrap().unwrap();
    assert!(drained.is_complete(), "{drained:?}");
}

async fn client(address: SocketAddr) -> TcpStream {
    let mut client = TcpStream::connect(address).await.unwrap();
    let request = b"GET / HTTP/1.1\r\nhost: test\r\n\r\n";
    client.write_all(request).await.unwrap();
    client
}

fn set_limit(current: u64, limit: Rlimit) {
    let limit = Rlimit {
        current: Some(current),
        ..limit
    };
    setrlimit(Resource::Nofile, limit).unwrap();
}

async fn is_silent(client: &mut TcpStream) {
    let heard = timeout(LONG_ENOUGH, client.read_u8()).await;
    assert!(heard.is_err(), "{heard:?}");
}
