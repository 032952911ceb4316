//! The way to the API server.
//!
//! HTTP/1.1, so every request under way has a connection of its own, and dropping a request drops its
//! connection. Nothing is tried again here: the election decides that.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::ConfigExt;
use kube::{Client, Config};
use tower::{BoxError, ServiceBuilder};

use super::failure::chain;
use super::source::ConnectError;

pub(super) struct Connection {
    config: Config,
    client: Mutex<Option<Client>>,
}

impl Connection {
    pub(super) async fn open(config: Config) -> Result<Arc<Self>, ConnectError> {
        // Without a choice made here, rustls panics if another crate brings a second provider.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let connection = Arc::new(Self {
            config,
            client: Mutex::new(None),
        });
        connection.client().await.map_err(|error| match &error {
            kube::Error::RustlsTls(_) => ConnectError::Certificate(chain(&error)),
            kube::Error::InferKubeconfig(_) => ConnectError::Certificate(chain(&error)),
            _ => ConnectError::Credentials(chain(&error)),
        })?;
        Ok(connection)
    }

    pub(super) fn server(&self) -> String {
        let url = self.config.cluster_url.to_string();
        url.trim_end_matches('/').to_owned()
    }

    /// The present client, or a new one.
    pub(super) async fn client(self: &Arc<Self>) -> Result<Client, kube::Error> {
        if let Some(client) = &*self.slot() {
            return Ok(client.clone());
        }
        // Credentials may come from a command, which takes its time.
        let this = Arc::clone(self);
        let build = tokio::task::spawn_blocking(move || build(&this.config)).await;
        let client = build.map_err(|error| kube::Error::Service(error.into()))??;
        *self.slot() = Some(client.clone());
        Ok(client)
    }

    /// Whatever connections there are, the next request makes a new one.
    pub(super) fn renew(&self) {
        *self.slot() = None;
    }

    fn slot(&self) -> MutexGuard<'_, Option<Client>> {
        self.client.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connection").field(&self.server()).finish()
    }
}

fn build(config: &Config) -> Result<Client, kube::Error> {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(Some(Duration::from_secs(5)));
    // A watch that has gone deaf without a word is closed by the kernel within half a minute.
    http.set_keepalive(Some(Duration::from_secs(10)));
    http.set_keepalive_interval(Some(Duration::from_secs(5)));
    http.set_keepalive_retries(Some(3));
    http.set_tcp_user_timeout(Some(Duration::from_secs(25)));
    let https = config.rustls_https_connector_with_connector(http)?;
    let client = legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(Duration::from_secs(60))
        .build(https);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(client);
    Ok(Client::new(service, config.default_namespace.clone()))
}
