//! A lease that is two objects at once: the lock of an old client-go, on a ConfigMap or an Endpoints, and a Lease. For moving from the one to the other.
//!
//! - Whoever leads holds both, and every write goes to both, each upon exactly the version that was read: first to the old lock, which decides
//!   between all that know it, then to the Lease. It has landed when both have.
//! - What the two say together is one record: see [`merge`]. Whatever either of them promises is waited out.
//! - The version, and so the token, is the younger half's: all versions are of one store. Where they are not, nobody leads.
//! - A claim that got only the old lock is taken back.
//! - Orders are read from the Lease, if there is one.

mod merge;
mod watch;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::{Stream, future};
use soloist_core::election::{Base, Purpose};
use soloist_core::ids::Version;
use soloist_core::orders::Orders;
use soloist_core::record::{Record, Snapshot};
use tracing::debug;

use super::options::Options;
use super::resource::Resource;
use super::source::ConnectError;
use super::{Inner, KubernetesStore, object};
use crate::seen::Seen;
use crate::store::{LeaseStore, StoreError, WatchEnded};
use merge::{Half, Pair};

/// How the old lock is marked.
const FIRST: &str = "first";

/// A lease in an old lock and in a Lease at once. Clones share it.
#[derive(Clone)]
pub struct PairStore {
    both: Arc<Both>,
}

struct Both {
    legacy: KubernetesStore,
    lease: KubernetesStore,
    seen: Mutex<Seen<Pair>>,
}

impl PairStore {
    /// The object of the options' kind, and the Lease of the same name. The server itself is first asked by the first request.
    ///
    /// # Errors
    /// As [`KubernetesStore::connect`].
    pub async fn connect(options: Options) -> Result<Self, ConnectError> {
        let lease = options.clone().resource(Resource::Lease);
        let both = Both {
            legacy: KubernetesStore::connect(options).await?,
            lease: KubernetesStore::connect(lease).await?,
            seen: Mutex::default(),
        };
        Ok(Self {
            both: Arc::new(both),
        })
    }

    /// The Lease of the two.
    #[must_use]
    pub fn lease(&self) -> &KubernetesStore {
        &self.both.lease
    }
}

impl Both {
    fn legacy(&self) -> &Inner {
        &self.legacy.inner
    }

    fn lease(&self) -> &Inner {
        &self.lease.inner
    }

    fn seen(&self) -> MutexGuard<'_, Seen<Pair>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn seen_at(&self, version: Version) -> Result<Pair, StoreError> {
        self.seen().at(version).ok_or_else(|| {
            StoreError::LostRace(format!(
                "version {version} has not been seen here, so it must be read first"
            ))
        })
    }

    fn remember(&self, pair: Pair) -> Snapshot {
        let (version, record) = (pair.version(), pair.view().record);
        self.seen().remember(version, pair);
        Snapshot::new(version, record)
    }

    async fn read(&self) -> Result<Snapshot, StoreError> {
        let (legacy, lease) = future::join(self.legacy().half(), self.lease().half()).await;
        let mut pair = Pair {
            legacy: legacy?,
            lease: lease?,
        };
        // So that there was a moment at which both were true.
        if pair.lease.version > pair.legacy.as_of {
            pair.legacy = self.legacy().half().await?;
        } else if pair.legacy.version > pair.lease.as_of {
            pair.lease = self.lease().half().await?;
        }
        Ok(self.remember(pair))
    }

    async fn write(
        &self,
        base: Base,
        record: &Record,
        purpose: Purpose,
    ) -> Result<Version, StoreError> {
        let pair = match base {
            Base::Absent => Pair::missing(),
            Base::Version(version) => self.seen_at(version)?,
        };
        let legacy = self.legacy().put_half(&pair.legacy, record, purpose, FIRST);
        let legacy = legacy.await?;
        let follows = legacy.version.to_string();
        let lease = self
            .lease()
            .put_half(&pair.lease, record, purpose, &follows);
        let lease = match lease.await {
            Ok(lease) => lease,
            Err(error) => return Err(self.half_landed(&legacy, record, purpose, error).await),
        };
        if lease.version <= legacy.version {
            return Err(StoreError::refused(
                format!(
                    "the {} was written as version {} and after it the Lease as version {}: this API server keeps the two in different \
                     stores, so versions cannot tell which leader came later",
                    self.legacy().resource.kind(),
                    legacy.version,
                    lease.version,
                ),
                self.describe(),
                "Move with all replicas stopped instead",
            ));
        }
        Ok(self.remember(Pair { legacy, lease }).version)
    }

    /// The old lock was written, and the Lease was not.
    async fn half_landed(
        &self,
        legacy: &Half,
        record: &Record,
        purpose: Purpose,
        error: StoreError,
    ) -> StoreError {
        let certain = !matches!(error, StoreError::Unknown(_));
        match (purpose, &error) {
            (Purpose::Acquire, _) if certain => {
                // We do not lead, so nothing is lost if this fails but time: others wait for what we seemed to claim.
                let given_back = released(record);
                let back = self
                    .legacy()
                    .put_half(legacy, &given_back, Purpose::Release, FIRST);
                if let Err(error) = back.await {
                    debug!(%error, "a claim on the old lock alone could not be taken back");
                }
                error
            }
            (
                Purpose::Renew | Purpose::Release,
                StoreError::Unavailable(_) | StoreError::Throttled(_),
            ) => StoreError::Unknown(format!("only one of the two was written: {error}")),
            _ => error,
        }
    }

    async fn order(&self, base: Version, orders: &Orders) -> Result<Version, StoreError> {
        let pair = self.seen_at(base)?;
        let (place, half) = match pair.lease.object {
            Some(_) => (self.lease(), &pair.lease),
            None => (self.legacy(), &pair.legacy),
        };
        let Some(mut new) = half.object.clone() else {
            return Err(StoreError::LostRace("there is no lease".into()));
        };
        object::set_orders(&mut new, orders);
        let written = place.put(Base::Version(half.version), &new).await?;
        let written = place.half_of(written)?;
        let pair = match pair.lease.object {
            Some(_) => Pair {
                lease: written,
                ..pair
            },
            None => Pair {
                legacy: written,
                ..pair
            },
        };
        Ok(self.remember(pair).version)
    }

    fn describe(&self) -> String {
        format!("{} and {}", self.legacy.describe(), self.lease.describe())
    }
}

impl Inner {
    /// The object as it is now.
    async fn half(&self) -> Result<Half, StoreError> {
        let (item, as_of) = self.list_object().await?;
        match item {
            None => Ok(Half::missing(Version::new(0), as_of)),
            Some(item) => Ok(self.half_of(item)?.still_at(as_of)),
        }
    }

    fn half_of(&self, item: serde_json::Value) -> Result<Half, StoreError> {
        self.complain_of_orders(&item);
        Half::present(self.resource, item)
            .map_err(|reason| self.asked("update").not_understood(&reason))
    }

    async fn put_half(
        &self,
        before: &Half,
        record: &Record,
        purpose: Purpose,
        mark: &str,
    ) -> Result<Half, StoreError> {
        let (base, mut new) = match &before.object {
            None => (
                Base::Absent,
                object::new(self.resource, &self.namespace, &self.name),
            ),
            Some(object) => (Base::Version(before.version), object.clone()),
        };
        object::set(self.resource, &mut new, record, purpose);
        object::mark_as_half(&mut new, mark);
        let written = self.put(base, &new).await?;
        self.half_of(written)
    }
}

/// As if the term had ended that this would have begun.
fn released(record: &Record) -> Record {
    let mut released = record.clone();
    released.holder = None;
    released.duration_seconds = Some(Record::RELEASED_SECONDS);
    if let Some(signature) = &mut released.signature {
        signature.released = true;
    }
    released
}

impl LeaseStore for PairStore {
    async fn read(&self) -> Result<Snapshot, StoreError> {
        self.both.read().await
    }

    async fn write(
        &self,
        base: Base,
        record: &Record,
        purpose: Purpose,
    ) -> Result<Version, StoreError> {
        self.both.write(base, record, purpose).await
    }

    async fn order(&self, base: Version, orders: &Orders) -> Result<Version, StoreError> {
        self.both.order(base, orders).await
    }

    fn watch(
        &self,
        after: Version,
    ) -> impl Stream<Item = Result<Snapshot, WatchEnded>> + Send + 'static {
        watch::changes(Arc::clone(&self.both), after)
    }

    fn abandon_connections(&self) {
        self.both.legacy.abandon_connections();
        self.both.lease.abandon_connections();
    }

    fn describe(&self) -> String {
        self.both.describe()
    }
}

impl fmt::Debug for PairStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PairStore").field(&self.describe()).finish()
    }
}
