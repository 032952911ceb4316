//! The lease that is meant, for reading it and for writing orders.

use std::time::Duration;

use anyhow::Context;
use serde_json::Value;
use soloist_core::ids::Version;
use soloist_core::orders::Orders;
use soloist_core::record::Record;
use soloist_core::time::Human;
use soloist_elector::etcd::EtcdStore;
use soloist_elector::file::FileStore;
use soloist_elector::kubernetes::{KubernetesStore, Options, PairStore, Resource};
use soloist_elector::{LeaseStore, StoreCarrier, StoreError, Stored, clock};
use tokio::time::timeout;

use super::{LeaseArgs, NotDone};
use crate::store::{NoLease, StoreChoice, default_path};

/// Nobody waits longer for one answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// So often an order is written anew, because the lease was renewed in that very moment.
const TRIES: usize = 10;

/// No lease was named.
#[derive(Debug, thiserror::Error)]
#[error("which lease? Give --name, or --store file:PATH")]
pub(super) struct WhichLease;

/// A lease, wherever it is.
pub(super) enum Lease {
    Kubernetes(KubernetesStore),
    Pair(PairStore),
    Etcd(EtcdStore),
    File(FileStore),
}

impl LeaseArgs {
    pub(super) async fn open(&self) -> anyhow::Result<Lease> {
        let name = self.name.as_deref();
        match self.choice() {
            StoreChoice::None => Err(NoLease.into()),
            StoreChoice::Kubernetes(resource) => {
                let _ = rustls::crypto::ring::default_provider().install_default();
                let options = self.options(name.ok_or(WhichLease)?);
                let store = KubernetesStore::connect(options.resource(resource)).await?;
                Ok(Lease::Kubernetes(store))
            }
            StoreChoice::Pair(resource) => {
                let _ = rustls::crypto::ring::default_provider().install_default();
                let options = self.options(name.ok_or(WhichLease)?);
                let store = PairStore::connect(options.resource(resource)).await?;
                Ok(Lease::Pair(store))
            }
            StoreChoice::Etcd(address) => {
                let options = self.etcd.lease(&address, name.ok_or(WhichLease)?);
                Ok(Lease::Etcd(EtcdStore::new(options)))
            }
            StoreChoice::File(path) => {
                let path = match path {
                    Some(path) => path,
                    None => default_path(name.ok_or(WhichLease)?)?,
                };
                // Opening would make it.
                if !path.exists() {
                    let place = format!("lease file {}", path.display());
                    return Err(NotDone::NoLease(place).into());
                }
                let store = FileStore::open(&path);
                let store = store.with_context(|| format!("the lease file {}", path.display()))?;
                Ok(Lease::File(store))
            }
        }
    }

    fn choice(&self) -> StoreChoice {
        let cluster_is_named = self.kubeconfig.is_some()
            || self.context.is_some()
            || std::env::var_os("KUBECONFIG").is_some()
            || is_kubectl_plugin();
        match &self.store {
            Some(store) => store.clone(),
            None if cluster_is_named => StoreChoice::Kubernetes(Resource::Lease),
            None => StoreChoice::fitting(),
        }
    }

    fn options(&self, name: &str) -> Options {
        let mut options = Options::lease(name);
        if let Some(namespace) = &self.namespace {
            options = options.namespace(namespace);
        }
        if let Some(kubeconfig) = &self.kubeconfig {
            options = options.kubeconfig(kubeconfig);
        }
        if let Some(context) = &self.context {
            options = options.context(context);
        }
        options
    }
}

impl Lease {
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Kubernetes(store) => store.describe(),
            Self::Pair(store) => store.describe(),
            Self::Etcd(store) => store.describe(),
            Self::File(store) => store.describe(),
        }
    }

    /// The object in the cluster; of two, the Lease.
    pub(super) fn cluster(&self) -> Option<&KubernetesStore> {
        match self {
            Self::Kubernetes(store) => Some(store),
            Self::Pair(store) => Some(store.lease()),
            Self::Etcd(_) | Self::File(_) => None,
        }
    }

    /// The lease's record as it is now.
    pub(super) async fn read(&self) -> anyhow::Result<Record> {
        let record = match self {
            Self::Kubernetes(store) => self.found_in(store).await?.record,
            Self::Pair(store) => self.found_in(store).await?.record,
            Self::Etcd(store) => self.found_in(store).await?.record,
            Self::File(store) => self.found_in(store).await?.record,
        };
        record.ok_or_else(|| NotDone::NoLease(self.describe()).into())
    }

    async fn found_in<S: LeaseStore>(&self, store: &S) -> Result<Stored<S::Carried>, StoreError> {
        self.in_time(store.read()).await
    }

    /// Changes the orders as `change` says of the record that is there. Whatever it refuses is not done.
    pub(super) async fn order(
        &self,
        change: impl Fn(&Record) -> anyhow::Result<Orders>,
    ) -> anyhow::Result<Version> {
        match self {
            Self::Kubernetes(store) => self.order_in(store, change).await,
            Self::Pair(store) => self.order_in(store, change).await,
            Self::Etcd(store) => self.order_in(store, change).await,
            Self::File(store) => self.order_in(store, change).await,
        }
    }

    async fn order_in(
        &self,
        store: &impl LeaseStore,
        change: impl Fn(&Record) -> anyhow::Result<Orders>,
    ) -> anyhow::Result<Version> {
        for _ in 0..TRIES {
            let found = self.found_in(store).await?;
            let Some(record) = &found.record else {
                return Err(NotDone::NoLease(self.describe()).into());
            };
            let orders = change(record)?;
            match self.in_time(store.order(&found, &orders)).await {
                Err(StoreError::LostRace(_)) => {}
                done => return Ok(done?.version),
            }
        }
        Err(NotDone::Busy.into())
    }

    async fn in_time<T>(
        &self,
        asked: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let answer = timeout(PATIENCE, asked).await;
        answer.unwrap_or_else(|_| {
            Err(StoreError::Unknown(format!(
                "no answer within {} from the {}",
                Human(PATIENCE),
                self.describe()
            )))
        })
    }

    pub(super) fn carrier(&self) -> StoreCarrier {
        match self {
            Self::Kubernetes(store) => StoreCarrier::new(store.clone(), PATIENCE),
            Self::Pair(store) => StoreCarrier::new(store.clone(), PATIENCE),
            Self::Etcd(store) => StoreCarrier::new(store.clone(), PATIENCE),
            Self::File(store) => StoreCarrier::new(store.clone(), PATIENCE),
        }
    }

    /// When the term began and when it was last renewed, as its holder's wall clock had it: for people only.
    pub(super) async fn times(&self) -> Times {
        let (object, acquired, renewed) = match self {
            Self::Kubernetes(_) | Self::Pair(_) => {
                let Some(store) = self.cluster() else {
                    return Times::default();
                };
                let resource = store.resource();
                let path = format!("{}/{}", resource.path(store.namespace()), store.name());
                let object = super::pods::get(store, &path).await.ok();
                let fields = object.map(|object| Value::Object(resource.fields(&object)));
                (fields, "/acquireTime", "/renewTime")
            }
            Self::Etcd(store) => {
                let value = self.in_time(store.value()).await.ok().flatten();
                let object = serde_json::from_slice(&value.unwrap_or_default()).ok();
                (object, "/acquired", "/renewed")
            }
            Self::File(store) => {
                let content = std::fs::read(store.path()).unwrap_or_default();
                let object = serde_json::from_slice(&content).ok();
                (object, "/acquired", "/renewed")
            }
        };
        let object = object.unwrap_or(Value::Null);
        let time = |path: &str| object.pointer(path)?.as_str()?.parse().ok();
        Times {
            acquired: time(acquired),
            renewed: time(renewed),
        }
    }
}

/// Timestamps of the record.
#[derive(Default)]
pub(super) struct Times {
    pub(super) acquired: Option<jiff::Timestamp>,
    pub(super) renewed: Option<jiff::Timestamp>,
}

/// Whether the record is paused, by our wall clock.
pub(super) fn is_paused(record: &Record) -> bool {
    let now = clock::wall_time();
    let pause = record.orders.pause;
    pause.is_some_and(|pause| pause.until.is_none_or(|until| now < until))
}

/// Whether we were called as `kubectl soloist …`, by a link of that name.
fn is_kubectl_plugin() -> bool {
    let program = std::env::args_os().next();
    let path = program.as_deref().map(std::path::Path::new);
    path.and_then(std::path::Path::file_name) == Some("kubectl-soloist".as_ref())
}
