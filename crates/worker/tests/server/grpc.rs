//! gRPC by tonic, with its health service.

use std::net::SocketAddr;
use std::time::Duration;

use soloist_worker::Shutdown;
use soloist_worker::server::{Drained, Server};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tonic::service::Routes;
use tonic::transport::{Channel, Endpoint};
use tonic_health::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, health_check_response};
use tonic_health::server::{HealthReporter, health_reporter};

use crate::stage::{LONG, within};

const NAME: &str = "orders";
const SERVING: i32 = health_check_response::ServingStatus::Serving as i32;
const NOT_SERVING: i32 = health_check_response::ServingStatus::NotServing as i32;

async fn serve(shutdown: &Shutdown) -> (SocketAddr, HealthReporter, JoinHandle<Drained>) {
    let (reporter, health) = health_reporter();
    reporter
        .set_service_status(NAME, ServingStatus::Serving)
        .await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = shutdown.clone();
    let served = tokio::spawn(async move {
        let server = Server::new(listener);
        server.serve(Routes::new(health), &shutdown).await
    });
    (address, reporter, served)
}

async fn client(address: SocketAddr) -> HealthClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    HealthClient::new(within("connect", endpoint.connect()).await.unwrap())
}

fn request() -> HealthCheckRequest {
    HealthCheckRequest {
        service: NAME.to_owned(),
    }
}

#[tokio::test]
async fn a_call_is_answered_and_an_idle_channel_does_not_hold_the_server_up() {
    let shutdown = Shutdown::new(LONG);
    let (address, _reporter, served) = serve(&shutdown).await;
    let mut client = client(address).await;
    let answer = within("an answer", client.check(request())).await.unwrap();
    assert_eq!(answer.into_inner().status, SERVING);
    shutdown.begin();
    let drained = within("the server ends", served).await.unwrap();
    assert!(drained.is_complete(), "{drained:?}");
    assert!(client.check(request()).await.is_err());
}

#[tokio::test]
async fn a_long_stream_is_cut_at_the_deadline_and_not_before() {
    let budget = Duration::from_secs(2);
    let shutdown = Shutdown::new(budget);
    let (address, reporter, served) = serve(&shutdown).await;
    let mut client = client(address).await;
    let stream = within("a stream", client.watch(request())).await.unwrap();
    let mut stream = stream.into_inner();
    let first = within("a message", stream.message()).await.unwrap();
    assert_eq!(first.unwrap().status, SERVING);
    let begun = Instant::now();
    shutdown.begin();
    reporter
        .set_service_status(NAME, ServingStatus::NotServing)
        .await;
    let second = within("a message", stream.message()).await.unwrap();
    assert_eq!(second.unwrap().status, NOT_SERVING);
    assert!(within("the cut", stream.message()).await.is_err());
    assert!(begun.elapsed() >= budget);
    let drained = within("the server ends", served).await.unwrap();
    assert_eq!((drained.in_flight, drained.cut), (1, 1));
}

#[tokio::test]
async fn tonic_s_router_is_served_too() {
    let shutdown = Shutdown::new(LONG);
    let (_reporter, health) = health_reporter();
    let app = Routes::new(health).into_axum_router();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let served = tokio::spawn({
        let shutdown = shutdown.clone();
        async move { Server::new(listener).serve(app, &shutdown).await }
    });
    let mut client = client(address).await;
    let everything = HealthCheckRequest::default();
    let answer = within("an answer", client.check(everything)).await;
    assert_eq!(answer.unwrap().into_inner().status, SERVING);
    shutdown.begin();
    let drained = within("the server ends", served).await.unwrap();
    assert!(drained.is_complete(), "{drained:?}");
}
