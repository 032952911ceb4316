//! What a server's shutdown says. Alone in its process, which has one log.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::future::pending;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use soloist_worker::Shutdown;
use soloist_worker::server::Server;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test]
async fn the_log_names_what_was_in_flight_and_what_was_cut() {
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .init();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let entered = Arc::new(Semaphore::new(0));
    let enter = entered.clone();
    let never = async move || {
        enter.add_permits(1);
        pending::<()>().await;
    };
    let app = Router::new().route("/", get(never));
    let shutdown = Shutdown::new(Duration::from_secs(1));
    let served = tokio::spawn({
        let shutdown = shutdown.clone();
        async move { Server::new(listener).serve(app, &shutdown).await }
    });
    let mut clients = Vec::new();
    for _ in 0..2 {
        let mut client = TcpStream::connect(address).await.unwrap();
        let request = b"GET / HTTP/1.1\r\nhost: test\r\n\r\n";
        client.write_all(request).await.unwrap();
        clients.push(client);
    }
    let both = timeout(PATIENCE, entered.acquire_many(2)).await;
    both.unwrap().unwrap().forget();
    shutdown.begin();
    let drained = timeout(PATIENCE, served).await.unwrap().unwrap();
    assert_eq!(drained.cut, 2);
    let log = log.text();
    let [begun, door, cut] = log.lines().collect::<Vec<_>>()[..] else {
        panic!("{log}");
    };
    assert!(begun.contains(" INFO ") && begun.contains("requests=2 connections=2"));
    assert!(door.contains(" INFO ") && door.contains("new connections "));
    assert!(cut.contains(" WARN ") && cut.contains("requests=2 connections=2"));
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
