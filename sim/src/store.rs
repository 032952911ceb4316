//! The store: one record, real compare-and-swap, versions that grow also when other objects change, until the
//! store is set back to a backup.

use soloist_core::election::{Answer, Base};
use soloist_core::ids::{Identity, Version};
use soloist_core::record::{Record, Snapshot};

use crate::clock::Nanos;
use crate::rng::Rng;

#[derive(Default)]
pub(crate) struct Store {
    revision: u64,
    current: Option<Change>,
    history: Vec<Change>,
    pub(crate) down_until: Nanos,
    /// How often it has been set back to a backup.
    pub(crate) epoch: u32,
}

/// One state that the record has been in.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) version: Version,
    pub(crate) record: Option<Record>,
    /// The writer's wall clock, as the record's renew time says.
    pub(crate) renewed_at: i64,
}

impl Change {
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.version, self.record.clone())
    }
}

impl Store {
    pub(crate) fn record(&self) -> Option<&Record> {
        self.current.as_ref()?.record.as_ref()
    }

    /// The version of the last change.
    pub(crate) fn newest(&self) -> Version {
        Version::new(self.revision)
    }

    /// What a read sees now.
    pub(crate) fn read(&self) -> Change {
        match &self.current {
            Some(change) if change.record.is_some() => change.clone(),
            Some(_) | None => Change {
                version: Version::new(self.revision),
                record: None,
                renewed_at: 0,
            },
        }
    }

    pub(crate) fn changes_after(&self, version: Version) -> impl Iterator<Item = &Change> {
        let first = self.history.partition_point(|c| c.version <= version);
        self.history[first..].iter()
    }

    pub(crate) fn write(
        &mut self,
        rng: &mut Rng,
        base: Base,
        record: Record,
        renewed_at: i64,
    ) -> Answer {
        let fits = match (base, &self.current) {
            (Base::Absent, current) => current.as_ref().is_none_or(|c| c.record.is_none()),
            (Base::Version(version), Some(current)) => {
                current.record.is_some() && current.version == version
            }
            (Base::Version(_), None) => false,
        };
        if !fits {
            return Answer::LostRace;
        }
        Answer::Written(self.change(rng, Some(record), renewed_at))
    }

    fn change(&mut self, rng: &mut Rng, record: Option<Record>, renewed_at: i64) -> Version {
        self.revision += rng.between(1, 3);
        let version = Version::new(self.revision);
        let change = Change {
            version,
            record,
            renewed_at,
        };
        self.history.push(change.clone());
        self.current = Some(change);
        version
    }

    /// An operator deletes the record.
    pub(crate) fn delete(&mut self, rng: &mut Rng) -> bool {
        let there = self.record().is_some();
        if there {
            self.change(rng, None, 0);
        }
        there
    }

    /// An operator writes back a record of former times.
    pub(crate) fn restore(&mut self, rng: &mut Rng) -> bool {
        if self.record().is_none() {
            return false;
        }
        // Of the same life of the record: what was saved before a deletion can say anything.
        let deleted = self.history.iter().rposition(|c| c.record.is_none());
        let born = deleted.map_or(0, |n| n + 1);
        let former = born + rng.index(self.history.len() - born);
        let Change {
            record, renewed_at, ..
        } = self.history[former].clone();
        self.change(rng, record, renewed_at);
        true
    }

    /// The whole store is set back to a backup: what came after it has never been, and its versions are given
    /// out again.
    pub(crate) fn set_back(&mut self, rng: &mut Rng) -> bool {
        let Some(newest) = self.history.last() else {
            return false;
        };
        // Mostly a recent one.
        let most = match rng.percent(70) {
            true => self.history.len().min(8),
            false => self.history.len(),
        };
        let lost = 1 + rng.index(most);
        let newest = newest.version.get();
        self.history.truncate(self.history.len() - lost);
        self.current = self.history.last().cloned();
        let kept = self.current.as_ref().map_or(0, |c| c.version.get());
        self.revision = rng.between(kept, newest - 1);
        self.epoch += 1;
        true
    }

    /// An operator edits the record, and leaves everything else in it as it is.
    pub(crate) fn edit(&mut self, rng: &mut Rng, edit: impl FnOnce(&mut Record)) -> bool {
        let Some(Change {
            record: Some(record),
            renewed_at,
            ..
        }) = self.current.clone()
        else {
            return false;
        };
        let mut record = record;
        edit(&mut record);
        self.change(rng, Some(record), renewed_at);
        true
    }
}

pub(crate) fn foreign_holder() -> Identity {
    Identity::found("somebody-else").expect("not empty")
}
