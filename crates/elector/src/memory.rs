//! The lease in memory, for tests: real versions and compare-and-swap, and faults on demand.

use std::fmt;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::{Stream, stream};
use soloist_core::election::Purpose;
use soloist_core::ids::Version;
use soloist_core::orders::Orders;
use soloist_core::record::{Record, Snapshot};
use tokio::sync::watch;

use crate::store::{LeaseStore, StoreError, Stored, WatchEnded};

/// A lease in memory. Clones share it.
#[derive(Clone)]
pub struct MemoryStore {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

struct State {
    /// Every state there has been, oldest first.
    history: Vec<Snapshot>,
    /// Watches of an earlier generation are broken.
    generation: u64,
    faults: Faults,
    writes: u64,
    reads: u64,
}

/// What goes wrong. [`MemoryStore::set_faults`] replaces all of it.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// The next write fails with this, without effect.
    pub fail_next_write: Option<StoreError>,
    /// The next read fails with this.
    pub fail_next_read: Option<StoreError>,
    /// The next write lands, but its answer is lost.
    pub lose_next_answer: bool,
    /// Every request waits for this long before it has its effect.
    pub delay: Duration,
    /// The next request is never answered, and has no effect.
    pub swallow_next_request: bool,
    /// No request is ever answered, and none has an effect.
    pub swallow_everything: bool,
    /// Watches stay silent.
    pub mute_watches: bool,
    /// The next request panics.
    pub panic_on_next_request: bool,
}

impl MemoryStore {
    /// An empty store: no record, at version 1.
    #[must_use]
    pub fn new() -> Self {
        let state = State {
            history: vec![Snapshot::new(Version::new(1), None)],
            generation: 0,
            faults: Faults::default(),
            writes: 0,
            reads: 0,
        };
        Self {
            shared: Arc::new(Shared {
                state: Mutex::new(state),
                changed: watch::Sender::new(()),
            }),
        }
    }

    /// Has other things go wrong from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.state().faults = faults;
        self.shared.changed.send_replace(());
    }

    /// Ends every watch.
    pub fn break_watches(&self) {
        self.state().generation += 1;
        self.shared.changed.send_replace(());
    }

    /// What is there now, past all faults.
    #[must_use]
    pub fn current(&self) -> Snapshot {
        self.state().current().clone()
    }

    /// Deletes the record, as an operator would.
    pub fn delete(&self) {
        self.state().push(None);
        self.shared.changed.send_replace(());
    }

    /// Changes the record, as an operator would. Does nothing if there is none.
    pub fn edit(&self, change: impl FnOnce(&mut Record)) {
        let mut state = self.state();
        if let Some(mut record) = state.current().record.clone() {
            change(&mut record);
            state.push(Some(record));
        }
        drop(state);
        self.shared.changed.send_replace(());
    }

    /// Sets the store back to what it was at this version, as from a backup: what came after it has never been, its versions are
    /// given out again, and watches end.
    pub fn set_back(&self, version: Version) {
        let mut state = self.state();
        let kept = state.history.partition_point(|s| s.version <= version);
        state.history.truncate(kept.max(1));
        state.generation += 1;
        drop(state);
        self.shared.changed.send_replace(());
    }

    /// Forgets all but the present state: a watch from an earlier one ends.
    pub fn compact(&self) {
        let mut state = self.state();
        let present = state.history.len() - 1;
        state.history.drain(..present);
    }

    /// How many reads and writes have been asked for.
    #[must_use]
    pub fn requests(&self) -> (u64, u64) {
        let state = self.state();
        (state.reads, state.writes)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    async fn weather(&self) {
        let (delay, swallow) = {
            let mut state = self.state();
            let panic = std::mem::take(&mut state.faults.panic_on_next_request);
            let swallow = std::mem::take(&mut state.faults.swallow_next_request)
                || state.faults.swallow_everything;
            let weather = (state.faults.delay, swallow);
            drop(state);
            assert!(!panic, "asked to panic");
            weather
        };
        if swallow {
            pending::<()>().await;
        }
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MemoryStore").field(&self.current()).finish()
    }
}

impl State {
    fn current(&self) -> &Snapshot {
        self.history
            .last()
            .expect("it begins with one state and only grows")
    }

    fn push(&mut self, record: Option<Record>) -> Version {
        let version = Version::new(self.current().version.get() + 1);
        self.history.push(Snapshot::new(version, record));
        version
    }

    fn compare_and_swap(
        &mut self,
        base: &Stored<()>,
        record: Record,
    ) -> Result<Stored<()>, StoreError> {
        let current = self.current();
        let fits = match base.record {
            None => current.record.is_none(),
            Some(_) => current.record.is_some() && current.version == base.version,
        };
        if !fits {
            let found = current.version;
            return Err(StoreError::LostRace(format!("it is at version {found}")));
        }
        let version = self.push(Some(record.clone()));
        Ok(Stored::present(version, record, ()))
    }
}

impl LeaseStore for MemoryStore {
    type Carried = ();

    async fn read(&self) -> Result<Stored<()>, StoreError> {
        self.state().reads += 1;
        self.weather().await;
        let mut state = self.state();
        match state.faults.fail_next_read.take() {
            Some(error) => Err(error),
            None => Ok(state.current().clone().into()),
        }
    }

    async fn write(
        &self,
        base: &Stored<()>,
        record: &Record,
        _purpose: Purpose,
    ) -> Result<Stored<()>, StoreError> {
        self.state().writes += 1;
        self.weather().await;
        let outcome = {
            let mut state = self.state();
            if let Some(error) = state.faults.fail_next_write.take() {
                return Err(error);
            }
            let written = state.compare_and_swap(base, record.clone())?;
            match std::mem::take(&mut state.faults.lose_next_answer) {
                true => Err(StoreError::Unknown("the answer was lost".into())),
                false => Ok(written),
            }
        };
        self.shared.changed.send_replace(());
        outcome
    }

    async fn order(&self, base: &Stored<()>, orders: &Orders) -> Result<Stored<()>, StoreError> {
        let written = {
            let mut state = self.state();
            let Some(mut record) = state.current().record.clone() else {
                return Err(StoreError::LostRace("there is no lease".into()));
            };
            record.orders = orders.clone();
            state.compare_and_swap(base, record)?
        };
        self.shared.changed.send_replace(());
        Ok(written)
    }

    fn watch(
        &self,
        after: &Stored<()>,
    ) -> impl Stream<Item = Result<Stored<()>, WatchEnded>> + Send + 'static {
        let after = after.version;
        let generation = self.state().generation;
        let changed = self.shared.changed.subscribe();
        let store = self.clone();
        stream::unfold(
            Some((store, changed, generation, after)),
            |state| async move {
                let (store, mut changed, generation, after) = state?;
                loop {
                    changed.borrow_and_update();
                    match store.next_after(after, generation) {
                        Ok(Some(next)) => {
                            let after = next.version;
                            return Some((
                                Ok(next.into()),
                                Some((store, changed, generation, after)),
                            ));
                        }
                        Ok(None) => {}
                        Err(ended) => return Some((Err(ended), None)),
                    }
                    if changed.changed().await.is_err() {
                        return None;
                    }
                }
            },
        )
    }

    fn describe(&self) -> String {
        "lease in memory".into()
    }
}

impl MemoryStore {
    fn next_after(&self, after: Version, generation: u64) -> Result<Option<Snapshot>, WatchEnded> {
        let state = self.state();
        if state.generation != generation {
            return Err(WatchEnded::broken("it was broken on purpose"));
        }
        if state.faults.mute_watches {
            return Ok(None);
        }
        let newest = state.current().version;
        if after > newest {
            return Err(WatchEnded::broken(format!(
                "version {after} is yet to come: it is at {newest}"
            )));
        }
        let oldest = state.history.first().map_or(newest, |s| s.version);
        if after < oldest {
            return Err(WatchEnded::broken(format!(
                "what came after version {after} was forgotten"
            )));
        }
        Ok(state.history.iter().find(|s| s.version > after).cloned())
    }
}
