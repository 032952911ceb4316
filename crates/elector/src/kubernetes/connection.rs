//! The way to the API server.
//!
//! HTTP/2 where the server speaks it: writes go over the connection of the watch, which is open, also when a standby
//! has asked nothing for hours. A request that is given up takes its connection with it ([`Connection::renew`]).
//! Nothing is tried again here: the election decides that. Credentials are kept apart: see [`super::plugin`]; a 401 has files read again.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hyper_rustls::FixedServerNameResolver;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::ConfigExt;
use kube::{Client, Config};
use rustls::pki_types::ServerName;
use tokio::sync::Notify;
use tower::{BoxError, ServiceBuilder};
use tracing::debug;

use super::authorization::Authorization;
use super::failure::chain;
use super::plugin::{self, Credential};
use super::retry_after;
use super::source::{ConnectError, Origin};
use super::tls;
use crate::apart::apart;
use crate::clock;

/// The way to the API server.
#[derive(Clone)]
pub(super) enum Connection {
    /// A client of the caller's: its credentials and connections are the caller's business.
    Given(Client),
    Own(Arc<Own>),
}

/// Connections that are made here, with credentials that are kept here.
pub(super) struct Own {
    origin: Origin,
    state: Mutex<State>,
    /// A command gives the credentials, and is to run again.
    pub(super) refresh: Arc<Notify>,
    by_command: bool,
}

struct State {
    /// With the present credentials in it.
    config: Config,
    client: Option<Client>,
    /// Grows whenever a client that is being made is not wanted any more.
    generation: u64,
    /// The server did not accept the credentials, or we not its certificate: whatever ours come from may have others by now.
    stale: bool,
}

impl State {
    fn discard(&mut self) {
        self.client = None;
        self.generation += 1;
    }

    fn outdate(&mut self) {
        self.discard();
        self.stale = true;
    }
}

impl Connection {
    pub(super) async fn open(mut config: Config, origin: Origin) -> Result<Self, ConnectError> {
        let exec = plugin::take(&mut config.auth_info);
        let own = Arc::new(Own {
            origin,
            state: Mutex::new(State {
                config,
                client: None,
                generation: 0,
                stale: false,
            }),
            refresh: Arc::new(Notify::new()),
            by_command: exec.is_some(),
        });
        if let Some(exec) = exec {
            let first = plugin::run(exec.clone()).await;
            let first = first.map_err(ConnectError::Credentials)?;
            own.accept(&first);
            let refresh_at = first.refresh_at(clock::now());
            tokio::spawn(plugin::keep_fresh(Arc::downgrade(&own), exec, refresh_at));
        }
        own.client().await?;
        Ok(Self::Own(own))
    }

    pub(super) fn server(&self) -> String {
        match self {
            Self::Given(_) => "the cluster of the given client".into(),
            Self::Own(own) => own.server(),
        }
    }

    /// The present client, or a new one.
    pub(super) async fn client(&self) -> Result<Client, kube::Error> {
        match self {
            Self::Given(client) => Ok(client.clone()),
            Self::Own(own) => {
                let client = own.client().await;
                client.map_err(|error| kube::Error::Service(error.into()))
            }
        }
    }

    /// Whatever connections there are, the next request makes a new one.
    pub(super) fn renew(&self) {
        if let Self::Own(own) = self {
            own.state().discard();
        }
    }

    /// The server does not accept our credentials: look for others.
    pub(super) fn unauthorized(&self) {
        if let Self::Own(own) = self {
            own.state().outdate();
            own.refresh.notify_one();
        }
    }

    /// One of the two does not accept the other's certificate: read the files again.
    pub(super) fn distrusted(&self) {
        if let Self::Own(own) = self {
            own.state().outdate();
        }
    }
}

impl Own {
    fn server(&self) -> String {
        let url = self.state().config.cluster_url.to_string();
        url.trim_end_matches('/').to_owned()
    }

    async fn client(self: &Arc<Self>) -> Result<Client, ConnectError> {
        if let Some(client) = &self.state().client {
            return Ok(client.clone());
        }
        if std::mem::take(&mut self.state().stale) && !self.by_command {
            match self.origin.load().await {
                Ok(config) => self.state().config = config,
                Err(error) => debug!("the configuration cannot be read again: {error}"),
            }
        }
        // Certificates and tokens are read from files.
        let (config, generation) = {
            let state = self.state();
            (state.config.clone(), state.generation)
        };
        let build = apart(move || build(&config)).await;
        let build = build.map_err(|error| ConnectError::Credentials(error.to_string()));
        let mut state = self.state();
        let client = build.flatten().inspect_err(|_| state.stale = true)?;
        if state.generation == generation {
            state.client = Some(client.clone());
        }
        Ok(client)
    }

    /// From the next request on.
    pub(super) fn accept(&self, credential: &Credential) {
        let mut state = self.state();
        credential.put_into(&mut state.config.auth_info);
        state.discard();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.refresh.notify_one();
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connection").field(&self.server()).finish()
    }
}

fn build(config: &Config) -> Result<Client, ConnectError> {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_nodelay(true);
    http.set_connect_timeout(Some(Duration::from_secs(5)));
    // A watch that has gone deaf without a word is closed by the kernel within half a minute.
    http.set_keepalive(Some(Duration::from_secs(10)));
    http.set_keepalive_interval(Some(Duration::from_secs(5)));
    http.set_keepalive_retries(Some(3));
    http.set_tcp_user_timeout(Some(Duration::from_secs(25)));
    let tls = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(tls::client_config(config)?)
        .https_or_http();
    let tls = match &config.tls_server_name {
        Some(name) => tls.with_server_name_resolver(fixed(name)?),
        None => tls,
    };
    let https = tls.enable_all_versions().wrap_connector(http);
    let client = legacy::Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(Duration::from_secs(60))
        .retry_canceled_requests(false)
        .build(https);
    let authorization = Authorization::of(&config.auth_info)?;
    let headers = config.extra_headers_layer();
    let headers = headers.map_err(|error| ConnectError::Credentials(chain(&error)))?;
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .map_request(move |mut request| {
            authorization.put_into(&mut request);
            request
        })
        .layer(headers)
        .and_then(retry_after::into_body)
        .map_err(BoxError::from)
        .service(client);
    Ok(Client::new(service, config.default_namespace.clone()))
}

fn fixed(name: &str) -> Result<FixedServerNameResolver, ConnectError> {
    match ServerName::try_from(name.to_owned()) {
        Ok(name) => Ok(FixedServerNameResolver::new(name)),
        Err(error) => Err(ConnectError::Certificate(format!(
            "the server name {name:?}: {error}"
        ))),
    }
}
