//! The service on a socket, with health and reflection beside it.

use std::future::Future;
use std::time::Duration;

use tokio::net::TcpListener;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Certificate, Identity, Server, ServerTlsConfig};

use super::Feed;
use super::service::feed_server::FeedServer;
use crate::proto;

/// After the stop, clients that do not read the end of their stream get as long.
const STOP: Duration = Duration::from_secs(2);

/// Certificates and keys, as PEM.
#[derive(Clone)]
pub struct Tls {
    /// The server's certificate, and those between it and the authority.
    pub certificate: Vec<u8>,
    /// The server's private key.
    pub key: Vec<u8>,
    /// The authority of the clients' certificates. Without it, clients need none.
    pub client_ca: Option<Vec<u8>>,
}

/// Why the service cannot be offered.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The certificates or the listener.
    #[error("cannot serve")]
    Transport(#[from] tonic::transport::Error),
    /// The compiled proto file is none.
    #[error("cannot offer reflection")]
    Reflection(#[from] tonic_reflection::server::Error),
}

/// What [`serve`] needs, checked before anyone is told that the server listens.
///
/// # Errors
/// When the certificates cannot be used.
pub fn transport(tls: Option<Tls>) -> Result<Server, ServeError> {
    let server = Server::builder();
    match tls {
        Some(tls) => Ok(server.tls_config(tls.into())?),
        None => Ok(server),
    }
}

/// Serves until `stop`, then ends all streams and returns.
///
/// # Errors
/// When the listener fails.
pub async fn serve(
    feed: Feed,
    listener: TcpListener,
    mut transport: Server,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(proto::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()?;
    let (health, health_service) = tonic_health::server::health_reporter();
    health.set_serving::<FeedServer<Feed>>().await;

    let (stopped, wait) = tokio::sync::oneshot::channel::<()>();
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let serving = transport
        .add_service(FeedServer::new(feed.clone()))
        .add_service(health_service)
        .add_service(reflection)
        .serve_with_incoming_shutdown(incoming, async {
            let _ = wait.await;
        });
    let mut serving = std::pin::pin!(serving);
    tokio::select! {
        ended = &mut serving => return Ok(ended?),
        () = stop => {}
    }
    health.set_not_serving::<FeedServer<Feed>>().await;
    feed.stop();
    let _ = stopped.send(());
    match tokio::time::timeout(STOP, serving).await {
        Ok(ended) => Ok(ended?),
        Err(_) => Ok(()),
    }
}

impl From<Tls> for ServerTlsConfig {
    fn from(tls: Tls) -> Self {
        let config = Self::new().identity(Identity::from_pem(tls.certificate, tls.key));
        match tls.client_ca {
            Some(authority) => config.client_ca_root(Certificate::from_pem(authority)),
            None => config,
        }
    }
}
