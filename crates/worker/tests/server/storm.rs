//! Clients that connect while the server leaves.

use std::time::Duration;

use axum::Router;
use axum::routing::get;
use soloist_worker::Shutdown;
use soloist_worker::server::Server;
use tokio::net::TcpListener;

use crate::load::{Load, Manner};
use crate::stage::{Client, LONG, within};

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

/// IPv4 and, where the machine has it, IPv6.
pub(crate) fn loopbacks() -> Vec<&'static str> {
    let mut addresses = vec!["127.0.0.1:0", "[::1]:0"];
    addresses.retain(|address| match std::net::TcpListener::bind(address) {
        Ok(_) => true,
        Err(error) => {
            assert_ne!(*address, "127.0.0.1:0", "{error}");
            println!("skipped: {address}: {error}");
            false
        }
    });
    addresses
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_client_that_has_connected_is_reset() {
    for address in loopbacks() {
        for _ in 0..8 {
            storm(TcpListener::bind(address).await.unwrap(), Duration::ZERO).await;
        }
    }
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_client_is_reset_that_has_connected_and_is_not_yet_heard() {
    for address in loopbacks() {
        for _ in 0..3 {
            let listener = TcpListener::bind(address).await.unwrap();
            if let Err(error) = lose_ends_of_handshakes(&socket2::SockRef::from(&listener)) {
                println!("skipped: no socket filter: {error}");
                return;
            }
            storm(listener, Duration::from_millis(50)).await;
        }
    }
}

/// As if clients were far away: they are connected, but the server learns of it only by their request. Loses all
/// segments that are nothing but an ACK; clients that only ask and then leave can do without.
#[cfg(target_os = "linux")]
pub(crate) fn lose_ends_of_handshakes(listener: &socket2::Socket) -> std::io::Result<()> {
    use socket2::SockFilter;

    let filter = [
        SockFilter::new(0x30, 0, 0, 13),
        SockFilter::new(0x15, 0, 1, 0x10),
        SockFilter::new(0x06, 0, 0, 0),
        SockFilter::new(0x06, 0, 0, u32::MAX),
    ];
    listener.attach_filter(&filter)
}

const CLIENTS: usize = 32;
/// Answers before the shutdown begins.
const ENOUGH: usize = 200;

/// Each client connects, thinks and asks, again and again, until it is refused.
async fn storm(listener: TcpListener, thinks: Duration) {
    let address = listener.local_addr().unwrap();
    let shutdown = Shutdown::new(LONG);
    let served = tokio::spawn({
        let shutdown = shutdown.clone();
        async move { Server::new(listener).serve(app(), &shutdown).await }
    });
    let load = Load::begin(address, &[(Manner::Fresh(thinks), CLIENTS)]);
    load.until_answered(ENOUGH).await;
    shutdown.begin();
    let count = load.until_refused().await;
    let drained = within("the server ends", served).await.unwrap();
    assert!(drained.is_complete(), "{drained:?}");
    let answered = count.answered();
    assert_eq!(count.lost(), 0, "{answered} were answered on {address}");
}
