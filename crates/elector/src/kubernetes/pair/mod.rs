//! A lease that is two objects at once: the lock of an old client-go, on a ConfigMap or an Endpoints, and a Lease. For moving from the one to the other.
//!
//! - Whoever leads holds both, and every write goes to both, each upon exactly the version that was read: first to the old lock, which decides
//!   between all that know it, then to the Lease. It has landed when both have.
//! - What the two say together is one record: see [`merge`]. Whatever either of them promises is waited out.
//! - The version, and so the token, is the younger half's: all versions are of one store. Where they are not, nobody leads.
//! - A claim that got only the old lock is taken back.
//! - Orders are read from the Lease, if there is one.

mod changes;
mod merge;
#[cfg(test)]
mod model;
mod protocol;
mod watch;

use std::fmt;
use std::sync::Arc;

use futures_util::Stream;
use soloist_core::election::Purpose;
use soloist_core::orders::Orders;
use soloist_core::record::Record;

use super::KubernetesStore;
use super::options::Options;
use super::resource::Resource;
use super::source::ConnectError;
use crate::store::{LeaseStore, StoreError, Stored, WatchEnded};
use merge::Pair;
use protocol::Both;

/// A lease in an old lock and in a Lease at once. Clones share it.
#[derive(Clone)]
pub struct PairStore {
    both: Arc<Both<KubernetesStore>>,
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

impl LeaseStore for PairStore {
    /// Both objects.
    type Carried = Pair;

    async fn read(&self) -> Result<Stored<Pair>, StoreError> {
        Ok(self.both.read().await?.stored())
    }

    async fn write(
        &self,
        base: &Stored<Pair>,
        record: &Record,
        purpose: Purpose,
    ) -> Result<Stored<Pair>, StoreError> {
        let written = self.both.write(&base.carried, record, purpose).await;
        written.map(Pair::stored)
    }

    async fn order(
        &self,
        base: &Stored<Pair>,
        orders: &Orders,
    ) -> Result<Stored<Pair>, StoreError> {
        let written = self.both.order(&base.carried, orders).await;
        written.map(Pair::stored)
    }

    fn watch(
        &self,
        after: &Stored<Pair>,
    ) -> impl Stream<Item = Result<Stored<Pair>, WatchEnded>> + Send + 'static {
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
