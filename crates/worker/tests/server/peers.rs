//! Who asks, and over what.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, Request};
use axum::middleware::map_request;
use axum::routing::get;
use axum::{Extension, Router};
use soloist_worker::Shutdown;
use soloist_worker::server::{Peer, PeerAddress, Server};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::Semaphore;

use crate::stage::{Client, LONG, within};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: test\r\n\r\n";

async fn who(Extension(peer): Extension<Peer>) -> String {
    match peer.address() {
        PeerAddress::Tcp(address) => format!("{address}"),
        PeerAddress::Unix(user) => format!("user {}", user.uid()),
        other => format!("{other:?}"),
    }
}

fn app() -> Router {
    Router::new().route("/", get(who))
}

/// What the client is told, and what it should be.
async fn told_and_own_address(app: Router) -> [String; 2] {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = Shutdown::new(LONG);
    let begin = shutdown.clone();
    let served = tokio::spawn(async move { Server::new(listener).serve(app, &shutdown).await });
    let mut client = Client::new(address).await;
    let own = client.stream.local_addr().unwrap().to_string();
    client.get("/").await;
    client.head().await;
    let told = client.text(own.len()).await;
    drop(client);
    begin.begin();
    let drained = within("the server ends", served).await.unwrap();
    assert!(drained.is_complete(), "{drained:?}");
    [told, own]
}

#[tokio::test]
async fn a_handler_learns_the_address_of_its_client() {
    let [told, own] = told_and_own_address(app()).await;
    assert_eq!(told, own);
}

/// As `docs/worker.md` has it.
#[tokio::test]
async fn a_handler_that_wants_connect_info_can_have_it() {
    let who = async |ConnectInfo(address): ConnectInfo<SocketAddr>| address.to_string();
    let app = Router::new().route("/", get(who));
    let app = app.layer(map_request(async |mut request: Request| {
        let peer = request.extensions().get::<Peer>();
        if let Some(PeerAddress::Tcp(address)) = peer.map(Peer::address) {
            request.extensions_mut().insert(ConnectInfo(address));
        }
        request
    }));
    let [told, own] = told_and_own_address(app).await;
    assert_eq!(told, own);
}

#[tokio::test]
async fn over_a_unix_socket_all_who_have_connected_are_served_and_others_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let shutdown = Shutdown::new(LONG);
    let mut clients = Vec::new();
    for _ in 0..20 {
        clients.push(UnixStream::connect(&path).await.unwrap());
    }
    shutdown.begin();
    let served = tokio::spawn(async move { Server::new(listener).serve(app(), &shutdown).await });
    let own = format!("user {}", rustix::process::geteuid().as_raw());
    for client in &mut clients {
        client.write_all(REQUEST).await.unwrap();
        let mut answer = String::new();
        let read = within("an answer", client.read_to_string(&mut answer)).await;
        read.unwrap();
        assert!(answer.contains("connection: close"), "{answer}");
        assert!(answer.ends_with(&own), "{answer}");
    }
    let drained = within("the server ends", served).await.unwrap();
    assert!(drained.is_complete(), "{drained:?}");
    let refused = UnixStream::connect(&path).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_client_of_a_unix_socket_is_reset_that_has_connected() {
    for _ in 0..8 {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let shutdown = Shutdown::new(LONG);
        let begin = shutdown.clone();
        let served =
            tokio::spawn(async move { Server::new(listener).serve(app(), &shutdown).await });
        let answered = Arc::new(Semaphore::new(0));
        let mut clients = tokio::task::JoinSet::new();
        for _ in 0..16 {
            let (path, answered) = (path.clone(), answered.clone());
            clients.spawn(async move {
                loop {
                    let mut client = match UnixStream::connect(&path).await {
                        Ok(client) => client,
                        Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
                            return;
                        }
                    };
                    let mut byte = [0];
                    client.write_all(REQUEST).await.unwrap();
                    client.read_exact(&mut byte).await.unwrap();
                    answered.add_permits(1);
                }
            });
        }
        let enough = within("answers", answered.acquire_many(200)).await;
        enough.unwrap().forget();
        begin.begin();
        within("all clients are refused", clients.join_all()).await;
        let drained = within("the server ends", served).await.unwrap();
        assert!(drained.is_complete(), "{drained:?}");
    }
}
