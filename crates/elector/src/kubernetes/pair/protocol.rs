//! How both objects are read and written.

use std::future::Future;

use futures_util::future;
use serde_json::Value;
use soloist_core::election::Purpose;
use soloist_core::ids::Version;
use soloist_core::orders::Orders;
use soloist_core::record::Record;
use tracing::debug;

use super::super::resource::Resource;
use super::super::{KubernetesStore, Write, object};
use super::merge::{Half, Pair};
use crate::store::{LeaseStore, StoreError};

/// How the old lock is marked.
const FIRST: &str = "first";

/// Where one of the two objects is.
pub(super) trait Place: Send + Sync {
    fn resource(&self) -> Resource;

    /// The object, if there is one, as of a version of the whole store.
    fn list(&self) -> impl Future<Output = Result<(Option<Value>, Version), StoreError>> + Send;

    /// What it is to be; a new one if there is none.
    fn with_record(&self, found: Option<&Value>, record: &Record, purpose: Purpose) -> Value;

    /// Creates it, or updates exactly the version that it bears; and says what it is now.
    fn put(
        &self,
        kind: Write,
        new: &Value,
    ) -> impl Future<Output = Result<Value, StoreError>> + Send;

    /// The object as it was found.
    fn half_of(&self, item: Value) -> Result<Half, StoreError>;

    fn describe(&self) -> String;
}

impl Place for KubernetesStore {
    fn resource(&self) -> Resource {
        self.inner.resource
    }

    async fn list(&self) -> Result<(Option<Value>, Version), StoreError> {
        self.inner.list_object().await
    }

    fn with_record(&self, found: Option<&Value>, record: &Record, purpose: Purpose) -> Value {
        self.inner.with_record(found, record, purpose)
    }

    async fn put(&self, kind: Write, new: &Value) -> Result<Value, StoreError> {
        self.inner.put(kind, new).await
    }

    fn half_of(&self, item: Value) -> Result<Half, StoreError> {
        self.inner.complain_of_orders(&item);
        let half = Half::present(self.inner.resource, item);
        half.map_err(|reason| self.inner.asked("update").not_understood(&reason))
    }

    fn describe(&self) -> String {
        LeaseStore::describe(self)
    }
}

/// The old lock and the Lease.
pub(super) struct Both<P> {
    pub(super) legacy: P,
    pub(super) lease: P,
}

impl<P: Place> Both<P> {
    pub(super) async fn read(&self) -> Result<Pair, StoreError> {
        let (legacy, lease) = future::join(half(&self.legacy), half(&self.lease)).await;
        let mut pair = Pair {
            legacy: legacy?,
            lease: lease?,
        };
        // So that there was a moment at which both were true.
        if pair.lease.version > pair.legacy.as_of {
            pair.legacy = half(&self.legacy).await?;
        } else if pair.legacy.version > pair.lease.as_of {
            pair.lease = half(&self.lease).await?;
        }
        Ok(pair)
    }

    pub(super) async fn write(
        &self,
        base: &Pair,
        record: &Record,
        purpose: Purpose,
    ) -> Result<Pair, StoreError> {
        let legacy = put_half(&self.legacy, &base.legacy, record, purpose, FIRST).await?;
        let follows = legacy.version.to_string();
        let lease = put_half(&self.lease, &base.lease, record, purpose, &follows).await;
        let lease = match lease {
            Ok(lease) => lease,
            Err(error) => return Err(self.half_landed(&legacy, record, purpose, error).await),
        };
        if lease.version <= legacy.version {
            return Err(StoreError::refused(
                format!(
                    "the {} was written as version {} and after it the Lease as version {}: this API server keeps the two in different \
                     stores, so versions cannot tell which leader came later",
                    self.legacy.resource().kind(),
                    legacy.version,
                    lease.version,
                ),
                self.describe(),
                "Move with all replicas stopped instead",
            ));
        }
        Ok(Pair { legacy, lease })
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
                let release = Purpose::Release;
                let back = put_half(&self.legacy, legacy, &given_back, release, FIRST);
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

    pub(super) async fn order(&self, base: &Pair, orders: &Orders) -> Result<Pair, StoreError> {
        let mut pair = base.clone();
        let (place, half) = match pair.lease.object {
            Some(_) => (&self.lease, &mut pair.lease),
            None => (&self.legacy, &mut pair.legacy),
        };
        let Some(mut new) = half.object.clone() else {
            return Err(StoreError::LostRace("there is no lease".into()));
        };
        object::set_orders(&mut new, orders);
        *half = place.half_of(place.put(Write::Update, &new).await?)?;
        Ok(pair)
    }

    pub(super) fn describe(&self) -> String {
        format!("{} and {}", self.legacy.describe(), self.lease.describe())
    }
}

/// The object as it is now.
async fn half(place: &impl Place) -> Result<Half, StoreError> {
    let (item, as_of) = place.list().await?;
    match item {
        None => Ok(Half::missing(Version::new(0), as_of)),
        Some(item) => Ok(place.half_of(item)?.still_at(as_of)),
    }
}

async fn put_half(
    place: &impl Place,
    before: &Half,
    record: &Record,
    purpose: Purpose,
    mark: &str,
) -> Result<Half, StoreError> {
    let found = before.object.as_ref();
    let kind = found.map_or(Write::Create, |_| Write::Update);
    let mut new = place.with_record(found, record, purpose);
    object::mark_as_half(&mut new, mark);
    place.half_of(place.put(kind, &new).await?)
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
