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
use soloist_core::election::Purpose;
use soloist_core::ids::{InstanceId, Version};
use soloist_core::orders::Orders;
use soloist_core::record::Record;
use tracing::warn;

use crate::causes::find;
use crate::clock;
use crate::repeats::Repeats;
use crate::store::{LeaseStore, StoreError, Stored, WatchEnded};
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

    fn selector(&self) -> String {
        format!("metadata.name={}", self.name)
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

    fn stored(&self, item: Value) -> Result<Stored<Value>, String> {
        let (version, record) = (
            object::version(&item)?,
            object::record(self.resource, &item),
        );
        self.complain_of_orders(&item);
        let holder_gone = self.deaths().prove(&record);
        Ok(Stored {
            holder_gone,
            ..Stored::present(version, record, item)
        })
    }

    fn is_proven_dead(&self, stored: &Stored<Value>) -> bool {
        let deaths = self.deaths();
        stored.record.as_ref().is_some_and(|r| deaths.prove(r))
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

    fn asked_to_write(&self, kind: Write) -> Asked<'_> {
        self.asked(match kind {
            Write::Create => "create",
            Write::Update => "update",
        })
    }

    /// What the object is to be, when it has been: itself with another record in it.
    fn with_record(&self, found: Option<&Value>, record: &Record, purpose: Purpose) -> Value {
        let new = || object::new(self.resource, &self.namespace, &self.name);
        let mut object = found.cloned().unwrap_or_else(new);
        object::set(self.resource, &mut object, record, purpose);
        object
    }

    async fn send(&self, kind: Write, new: &Value) -> Result<Stored<Value>, StoreError> {
        let written = self.put(kind, new).await?;
        let written = self.stored(written);
        written.map_err(|reason| self.asked_to_write(kind).not_understood(&reason))
    }

    /// Writes the object, and says what it is now.
    async fn put(&self, kind: Write, new: &Value) -> Result<Value, StoreError> {
        let asked = self.asked_to_write(kind);
        let body = serde_json::to_vec(new)
            .map_err(|error| StoreError::Unavailable(format!("cannot be written: {error}")))?;
        let params = PostParams {
            field_manager: Some("soloist".into()),
            ..PostParams::default()
        };
        let request = match kind {
            Write::Create => self.requests.create(&params, body),
            Write::Update => self.requests.replace(&self.name, &params, body),
        }
        .map_err(|error| asked.failed(&kube::Error::BuildRequest(error)))?;
        let client = self.connection.client().await;
        let client = client.map_err(|error| asked.failed(&error))?;
        let written = client.request(request).await;
        written.map_err(|error| self.failed(asked, &error))
    }
}

/// Of which kind a write is. An update is of exactly the version that the object bears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Write {
    Create,
    Update,
}

impl LeaseStore for KubernetesStore {
    /// The object, with what is not ours in it.
    type Carried = Value;

    async fn read(&self) -> Result<Stored<Value>, StoreError> {
        let (item, cluster) = self.inner.list_object().await?;
        let Some(item) = item else {
            return Ok(Stored::missing(cluster));
        };
        let stored = self.inner.stored(item);
        let stored = stored.map_err(|reason| self.inner.asked("list").not_understood(&reason))?;
        Ok(stored.still_at(cluster))
    }

    async fn write(
        &self,
        base: &Stored<Value>,
        record: &Record,
        purpose: Purpose,
    ) -> Result<Stored<Value>, StoreError> {
        let found = base.record.as_ref().map(|_| &base.carried);
        let kind = found.map_or(Write::Create, |_| Write::Update);
        let new = self.inner.with_record(found, record, purpose);
        self.inner.send(kind, &new).await
    }

    async fn order(
        &self,
        base: &Stored<Value>,
        orders: &Orders,
    ) -> Result<Stored<Value>, StoreError> {
        if base.record.is_none() {
            return Err(StoreError::LostRace("there is no lease".into()));
        }
        let mut new = base.carried.clone();
        object::set_orders(&mut new, orders);
        self.inner.send(Write::Update, &new).await
    }

    fn watch(
        &self,
        after: &Stored<Value>,
    ) -> impl Stream<Item = Result<Stored<Value>, WatchEnded>> + Send + 'static {
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
