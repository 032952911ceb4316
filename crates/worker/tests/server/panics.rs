//! A handler that panics: in words that the client understands.

use std::any::Any;
use std::convert::Infallible;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, Response};
use soloist_worker::Shutdown;
use soloist_worker::server::Server;
use tokio::net::TcpListener;
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::service::Routes;
use tonic::transport::Endpoint;
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tower::{Layer, Service};
use tower_http::catch_panic::CatchPanicLayer;

use crate::stage::{LONG, within};

/// A gRPC service whose methods panic.
#[derive(Clone)]
struct Panics;

impl NamedService for Panics {
    const NAME: &'static str = "grpc.health.v1.Health";
}

impl Service<Request<Body>> for Panics {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        panic!("on purpose")
    }
}

async fn status_of<S, B>(service: S) -> Status
where
    S: Service<Request<hyper::body::Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>> + Send,
    B: hyper::body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address: SocketAddr = listener.local_addr().unwrap();
    let shutdown = Shutdown::new(LONG);
    let served = tokio::spawn({
        let shutdown = shutdown.clone();
        async move { Server::new(listener).serve(service, &shutdown).await }
    });
    let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
    let channel = within("connect", endpoint.connect()).await.unwrap();
    let mut client = HealthClient::new(channel);
    let first = within("an answer", client.check(HealthCheckRequest::default())).await;
    let again = within("an answer", client.check(HealthCheckRequest::default())).await;
    let status = first.unwrap_err();
    assert_eq!(
        again.unwrap_err().code(),
        status.code(),
        "the connection lives"
    );
    drop(client);
    shutdown.begin();
    let drained = within("the server ends", served).await.unwrap();
    assert!(drained.is_complete(), "{drained:?}");
    status
}

#[tokio::test]
async fn a_grpc_method_that_panics_answers_internal() {
    let status = status_of(Routes::new(Panics)).await;
    assert_eq!(status.code(), Code::Internal, "{status:?}");
    assert_eq!(status.message(), "the method panicked");
}

#[tokio::test]
async fn a_layer_of_tower_http_says_it_in_other_words() {
    let say = |_: Box<dyn Any + Send>| Status::internal("in our words").into_http::<Body>();
    let layered = CatchPanicLayer::custom(say).layer(Routes::new(Panics));
    let status = status_of(layered).await;
    assert_eq!(status.code(), Code::Internal, "{status:?}");
    assert_eq!(status.message(), "in our words");
}
