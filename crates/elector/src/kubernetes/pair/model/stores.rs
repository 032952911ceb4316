//! The stores of those who write both objects, and of those who know of one only.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::{Stream, stream};
use serde_json::Value;
use soloist_core::election::Purpose;
use soloist_core::ids::Version;
use soloist_core::orders::Orders;
use soloist_core::record::Record;
use soloist_core::time::Moment;

use super::super::super::{Write, object};
use super::super::changes::{Changes, Taken};
use super::super::merge::Pair;
use super::super::protocol::{Both, Place};
use super::world::{Defect, ModelPlace, Side, World};
use crate::store::{LeaseStore, StoreError, Stored, WatchEnded};

pub(super) struct TwoStore {
    both: Arc<Both<ModelPlace>>,
    defect: Defect,
}

impl TwoStore {
    pub(super) fn new(legacy: ModelPlace, lease: ModelPlace, defect: Defect) -> Self {
        Self {
            both: Arc::new(Both { legacy, lease }),
            defect,
        }
    }
}

/// As the pair says it, or as a broken store would.
fn stored(pair: Pair, defect: Defect) -> Stored<Pair> {
    let of_one = |half: &super::super::merge::Half, resource| {
        let object = half.object.as_ref();
        object.map(|found| object::record(resource, found))
    };
    let record = match defect {
        Defect::LegacyAlone => of_one(&pair.legacy, Side::Legacy.resource()),
        Defect::LeaseAlone => of_one(&pair.lease, Side::Lease.resource()),
        Defect::None | Defect::NoCompare | Defect::Unmarked => return pair.stored(),
    };
    Stored {
        record,
        ..pair.stored()
    }
}

impl LeaseStore for TwoStore {
    type Carried = Pair;

    async fn read(&self) -> Result<Stored<Pair>, StoreError> {
        Ok(stored(self.both.read().await?, self.defect))
    }

    async fn write(
        &self,
        base: &Stored<Pair>,
        record: &Record,
        purpose: Purpose,
    ) -> Result<Stored<Pair>, StoreError> {
        let written = self.both.write(&base.carried, record, purpose).await?;
        Ok(stored(written, self.defect))
    }

    async fn order(&self, _: &Stored<Pair>, _: &Orders) -> Result<Stored<Pair>, StoreError> {
        Err(StoreError::Unavailable("not in this model".into()))
    }

    fn watch(
        &self,
        after: &Stored<Pair>,
    ) -> impl Stream<Item = Result<Stored<Pair>, WatchEnded>> + Send + 'static {
        let pair = after.carried.clone();
        let world = self.both.legacy.world.clone();
        let lag = [world.up_to(700), world.up_to(700)].map(Duration::from_millis);
        let seen = [&pair.legacy, &pair.lease].map(|half| half.version.max(half.as_of));
        let mut watching = Watching {
            both: Arc::clone(&self.both),
            world,
            lag,
            seen,
            changes: Changes::after(pair),
            until: None,
        };
        let defect = self.defect;
        stream::poll_fn(move |_| watching.poll_next(defect))
    }

    fn describe(&self) -> String {
        self.both.describe()
    }
}

/// Both watches, each with a lag of its own.
struct Watching {
    both: Arc<Both<ModelPlace>>,
    world: World,
    lag: [Duration; 2],
    seen: [Version; 2],
    changes: Changes,
    until: Option<(Taken, Moment)>,
}

impl Watching {
    fn poll_next(&mut self, defect: Defect) -> Poll<Option<Result<Stored<Pair>, WatchEnded>>> {
        if self.world.is_cut(self.both.legacy.by) {
            return Poll::Pending;
        }
        loop {
            let taken = match self.take_next() {
                Some(Ok(taken)) => taken,
                Some(Err(ended)) => return Poll::Ready(Some(Err(WatchEnded::broken(ended)))),
                None => return Poll::Pending,
            };
            let wait = match taken {
                Taken::Whole => {
                    self.until = None;
                    return Poll::Ready(Some(Ok(stored(self.changes.pair(), defect))));
                }
                Taken::First => Duration::from_millis(250),
                Taken::Early => Duration::from_secs(2),
            };
            if self.until.is_none_or(|(waiting, _)| waiting != taken) {
                self.until = Some((taken, self.world.now() + wait));
            }
        }
    }

    fn take_next(&mut self) -> Option<Result<Taken, String>> {
        let now = self.world.now();
        let first = self.world.up_to(2);
        for n in [first, 1 - first] {
            let (side, place) = match n {
                0 => (Side::Legacy, &self.both.legacy),
                _ => (Side::Lease, &self.both.lease),
            };
            if side == Side::Lease && self.changes.waits_for_the_old_lock() {
                continue;
            }
            let change = self.world.change_after(side, self.seen[n as usize]);
            let Some(change) = change.filter(|c| c.at + self.lag[n as usize] <= now) else {
                continue;
            };
            self.seen[n as usize] = change.version;
            let taken = place.half_of(change.object).map_err(|e| e.to_string());
            let taken = taken.and_then(|half| {
                let taken = match side {
                    Side::Legacy => self.changes.take_legacy(half),
                    Side::Lease => self.changes.take_lease(half),
                };
                taken.map_err(|overtaken| overtaken.to_string())
            });
            return Some(taken);
        }
        match self.until {
            Some((Taken::Early, until)) if until <= now => Some(Err("late".into())),
            Some((_, until)) if until <= now => Some(Ok(Taken::Whole)),
            _ => None,
        }
    }
}

/// One object by itself, as the Kubernetes store has it.
pub(super) struct OneStore(pub(super) ModelPlace);

impl OneStore {
    fn stored(&self, item: Value) -> Result<Stored<Value>, StoreError> {
        let version = object::version(&item).map_err(StoreError::Unknown)?;
        let record = object::record(self.0.resource(), &item);
        Ok(Stored::present(version, record, item))
    }
}

impl LeaseStore for OneStore {
    type Carried = Value;

    async fn read(&self) -> Result<Stored<Value>, StoreError> {
        let (item, store) = self.0.list().await?;
        match item {
            None => Ok(Stored::missing(store)),
            Some(item) => Ok(self.stored(item)?.still_at(store)),
        }
    }

    async fn write(
        &self,
        base: &Stored<Value>,
        record: &Record,
        purpose: Purpose,
    ) -> Result<Stored<Value>, StoreError> {
        let found = base.record.as_ref().map(|_| &base.carried);
        let kind = found.map_or(Write::Create, |_| Write::Update);
        let new = self.0.with_record(found, record, purpose);
        self.stored(self.0.put(kind, &new).await?)
    }

    async fn order(&self, _: &Stored<Value>, _: &Orders) -> Result<Stored<Value>, StoreError> {
        Err(StoreError::Unavailable("not in this model".into()))
    }

    fn watch(
        &self,
        after: &Stored<Value>,
    ) -> impl Stream<Item = Result<Stored<Value>, WatchEnded>> + Send + 'static {
        let (place, mut seen) = (self.0.clone(), after.as_of);
        let lag = Duration::from_millis(place.world.up_to(700));
        stream::poll_fn(move |_: &mut Context<'_>| {
            let now = place.world.now();
            let change = place.world.change_after(place.side, seen);
            let change = change.filter(|change| change.at + lag <= now);
            match change.filter(|_| !place.world.is_cut(place.by)) {
                None => Poll::Pending,
                Some(change) => {
                    seen = change.version;
                    let stored = OneStore(place.clone()).stored(change.object);
                    let stored = stored.map_err(|error| WatchEnded::broken(error.to_string()));
                    Poll::Ready(Some(stored))
                }
            }
        })
    }

    fn describe(&self) -> String {
        self.0.describe()
    }
}
