//! The lease as a Kubernetes object: `coordination.k8s.io/v1` or, deprecated, the annotation of a ConfigMap or an Endpoints.
//!
//! - Reads list the one name, so that absence has a version too, and are never served from a stale cache.
//! - Every write is a `create`, or an `update` of one exact `resourceVersion`. Fields that are not ours, known or
//!   not, are sent back as they came; soloist's signature is the annotation `soloist.dev/signature`, and people order with
//!   `soloist.dev/handover` and `soloist.dev/pause`.
//! - The watch follows the one name, resumes where it was when the server ends it, and ends when it cannot.
//! - Nothing is tried again here, and an abandoned request is followed by a new connection.
//!
//! Tokens and certificates of a Pod are read again as they change. Least privilege: `create` on leases, and `list`,
//! `watch`, `update` on the one that is named.

mod authorization;
mod connection;
mod failure;
mod holder;
mod names;
mod object;
mod options;
mod pair;
mod plugin;
mod pods;
mod resource;
mod retry_after;
mod source;
mod tls;
mod watch;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use futures_util::Stream;
use kube::api::{ListParams, PostParams};
use kube::core::Request;
use serde_json::Value;
use soloist_core::death::{Deaths, PodReport};
use soloist_core::election::{Base, Purpose};
use soloist_core::ids::{InstanceId, Version};
use soloist_core::orders::Orders;
use soloist_core::record::{Record, Snapshot};
use tracing::warn;

use crate::causes::find;
use crate::clock;
use crate::repeats::Repeats;
use crate::seen::Seen;
use crate::store::{LeaseStore, StoreError, WatchEnded};
use connection::Connection;
use failure::Asked;
use holder::Observer;

pub use names::NameError;
pub use options::Options;
pub use pair::PairStore;
pub use pods::termination_message;
pub use resource::Resource;
pub use source::ConnectError;

/// A lease in a Kubernetes cluster. Clones share it.
#[derive(Clone, Debug)]
pub struct KubernetesStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    connection: Connection,
    resource: Resource,
    namespace: String,
    name: String,
    server: String,
    requests: Request,
    watch_seconds: u32,
    /// The objects, with what is not ours in them.
    seen: Mutex<Seen<Value>>,
    complaints: Mutex<Repeats>,
    /// Whoever looks for reported deaths.
    observer: OnceLock<Observer>,
    deaths: Mutex<Deaths>,
}

impl KubernetesStore {
    /// Finds the cluster and the credentials. The server itself is first asked by the first request.
    ///
    /// # Errors
    /// When there is no usable configuration, or a name that Kubernetes does not allow.
    pub async fn connect(options: Options) -> Result<Self, ConnectError> {
        let target = options.resolve().await?;
        let connection = Connection::open(target.config, target.origin).await?;
        Ok(Self::new(
            connection,
            target.resource,
            target.namespace,
            target.name,
            target.watch_seconds,
        ))
    }

    /// The lease of this name, by a client of the caller's. Credentials and connections are then the caller's business: a request that
    /// is given up does not take its connection with it, so the client should have timeouts of its own; and it should try nothing
    /// again by itself (`Config::default_retry`), because the election decides that.
    ///
    /// # Errors
    /// When Kubernetes does not allow one of the names.
    pub fn with_client(
        client: kube::Client,
        namespace: &str,
        name: &str,
    ) -> Result<Self, NameError> {
        names::namespace(namespace)?;
        names::lease(name)?;
        let connection = Connection::Given(client);
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        let watch_seconds = Options::WATCH_SECONDS;
        let resource = Resource::Lease;
        Ok(Self::new(
            connection,
            resource,
            namespace,
            name,
            watch_seconds,
        ))
    }

    fn new(
        connection: Connection,
        resource: Resource,
        namespace: String,
        name: String,
        watch_seconds: u32,
    ) -> Self {
        let path = resource.path(&namespace);
        Self {
            inner: Arc::new(Inner {
                server: connection.server(),
                connection,
                resource,
                namespace,
                name,
                requests: Request::new(path),
                watch_seconds,
                seen: Mutex::default(),
                complaints: Mutex::default(),
                observer: OnceLock::new(),
                deaths: Mutex::new(Deaths::NONE),
            }),
        }
    }

    /// The kind of object that it is.
    #[must_use]
    pub fn resource(&self) -> Resource {
        self.inner.resource
    }

    /// The lease's namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.inner.namespace
    }

    /// The lease's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// From now on a holder is dead as soon as its kubelet reports the end of its container. The holders' Pods are in this
    /// namespace, and are called as the holders; where they may not be watched, their leases are waited out. `instance` is who
    /// asks: nobody waits for its own death.
    ///
    /// A report names a container by [`termination_message`].
    pub fn believe_reported_deaths(&self, instance: InstanceId, namespace: &str) {
        let namespace = namespace.to_owned();
        let _ = self.inner.observer.set(Observer {
            instance,
            namespace,
            was_refused: AtomicBool::new(false),
        });
    }

    /// A client on the same cluster with the same credentials, for a program's other business. It
    /// tries nothing again by itself.
    ///
    /// # Errors
    /// When the credentials cannot be used any more.
    pub async fn client(&self) -> Result<kube::Client, kube::Error> {
        self.inner.connection.client().await
    }
}

impl Inner {
    fn asked(&self, verb: &'static str) -> Asked<'_> {
        Asked {
            verb,
            resource: self.resource,
            namespace: &self.namespace,
            name: &self.name,
            server: &self.server,
        }
    }

    /// What went wrong, and what has to be looked for because of it.
    fn failed(&self, asked: Asked<'_>, error: &kube::Error) -> StoreError {
        if matches!(error, kube::Error::Api(status) if status.code == 401) {
            self.connection.unauthorized();
        }
        // Whom we trust, or the certificate that we show, may have been replaced.
        if find::<rustls::Error>(error).is_some() {
            self.connection.distrusted();
        }
        asked.failed(error)
    }

    fn seen(&self) -> MutexGuard<'_, Seen<Value>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn selector(&self) -> String {
        format!("metadata.name={}", self.name)
    }

    async fn list(&self) -> Result<Snapshot, StoreError> {
        let (item, cluster) = self.list_object().await?;
        let found = match item {
            None => Ok(Snapshot::new(cluster, None)),
            Some(item) => self.remember(item),
        };
        let found = found.map_err(|reason| self.asked("list").not_understood(&reason))?;
        self.seen().was_read(found.version, cluster);
        Ok(found)
    }

    /// The object, if there is one, as of a version of the whole store.
    async fn list_object(&self) -> Result<(Option<Value>, Version), StoreError> {
        let asked = self.asked("list");
        let request = self
            .requests
            .list(&ListParams::default().fields(&self.selector()))
            .map_err(|error| asked.failed(&kube::Error::BuildRequest(error)))?;
        let client = self.connection.client().await;
        let client = client.map_err(|error| asked.failed(&error))?;
        let list = client.request(request).await;
        let list: Value = list.map_err(|error| self.failed(asked, &error))?;
        let cluster = object::version(&list).map_err(|reason| asked.not_understood(&reason))?;
        let items = list.get("items").and_then(Value::as_array);
        let item = items.and_then(|items| items.first()).map(|item| {
            let mut item = item.clone();
            // The items of a list do not say what they are.
            item["apiVersion"] = self.resource.api_version().into();
            item["kind"] = self.resource.kind().into();
            item
        });
        Ok((item, cluster))
    }

    fn remember(&self, item: Value) -> Result<Snapshot, String> {
        let mut snapshot = object::snapshot(self.resource, &item)?;
        snapshot.holder_gone = self.is_proven_dead(&snapshot);
        self.complain_of_orders(&item);
        self.seen().remember(snapshot.version, item);
        Ok(snapshot)
    }

    fn is_proven_dead(&self, snapshot: &Snapshot) -> bool {
        let deaths = self.deaths();
        snapshot.record.as_ref().is_some_and(|r| deaths.prove(r))
    }

    fn note_deaths(&self, report: &PodReport) {
        self.deaths().note(report);
    }

    fn deaths(&self) -> MutexGuard<'_, Deaths> {
        self.deaths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn complain_of_orders(&self, item: &Value) {
        for wrong in object::unreadable_orders(item) {
            let due = self.complaints().are_due(clock::now(), &wrong);
            if due {
                warn!("an order on the lease is not obeyed. {wrong}");
            }
        }
    }

    fn complaints(&self) -> MutexGuard<'_, Repeats> {
        self.complaints
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    async fn write(
        &self,
        base: Base,
        record: &Record,
        purpose: Purpose,
    ) -> Result<Version, StoreError> {
        let mut new = match base {
            Base::Absent => object::new(self.resource, &self.namespace, &self.name),
            Base::Version(version) => self.seen_at(version)?,
        };
        object::set(self.resource, &mut new, record, purpose);
        self.send(base, &new).await
    }

    async fn order(&self, base: Version, orders: &Orders) -> Result<Version, StoreError> {
        let mut new = self.seen_at(base)?;
        object::set_orders(&mut new, orders);
        self.send(Base::Version(base), &new).await
    }

    fn seen_at(&self, version: Version) -> Result<Value, StoreError> {
        self.seen().at(version).ok_or_else(|| {
            StoreError::LostRace(format!(
                "version {version} has not been seen here, so it must be read first"
            ))
        })
    }

    async fn send(&self, base: Base, new: &Value) -> Result<Version, StoreError> {
        let written = self.put(base, new).await?;
        let written = self
            .remember(written)
            .map_err(|reason| self.asked_to_write(base).not_understood(&reason))?;
        Ok(written.version)
    }

    fn asked_to_write(&self, base: Base) -> Asked<'_> {
        self.asked(match base {
            Base::Absent => "create",
            Base::Version(_) => "update",
        })
    }

    /// Writes the object, and says what it is now.
    async fn put(&self, base: Base, new: &Value) -> Result<Value, StoreError> {
        let asked = self.asked_to_write(base);
        let body = serde_json::to_vec(new)
            .map_err(|error| StoreError::Unavailable(format!("cannot be written: {error}")))?;
        let params = PostParams {
            field_manager: Some("soloist".into()),
            ..PostParams::default()
        };
        let request = match base {
            Base::Absent => self.requests.create(&params, body),
            Base::Version(_) => self.requests.replace(&self.name, &params, body),
        }
        .map_err(|error| asked.failed(&kube::Error::BuildRequest(error)))?;
        let client = self.connection.client().await;
        let client = client.map_err(|error| asked.failed(&error))?;
        let written = client.request(request).await;
        written.map_err(|error| self.failed(asked, &error))
    }
}

impl LeaseStore for KubernetesStore {
    async fn read(&self) -> Result<Snapshot, StoreError> {
        self.inner.list().await
    }

    async fn write(
        &self,
        base: Base,
        record: &Record,
        purpose: Purpose,
    ) -> Result<Version, StoreError> {
        self.inner.write(base, record, purpose).await
    }

    async fn order(&self, base: Version, orders: &Orders) -> Result<Version, StoreError> {
        self.inner.order(base, orders).await
    }

    fn watch(
        &self,
        after: Version,
    ) -> impl Stream<Item = Result<Snapshot, WatchEnded>> + Send + 'static {
        watch::changes(Arc::clone(&self.inner), after)
    }

    fn abandon_connections(&self) {
        self.inner.connection.renew();
    }

    fn describe(&self) -> String {
        let Inner {
            resource,
            namespace,
            name,
            server,
            ..
        } = &*self.inner;
        let noun = resource.noun();
        format!("{noun} {namespace}/{name} on {server}")
    }
}
