//! What a place that keeps the lease must be able to do.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use futures_util::Stream;
use soloist_core::election::{Answer, Purpose};
use soloist_core::ids::Version;
use soloist_core::orders::Orders;
use soloist_core::record::{Record, Snapshot};
use soloist_core::time::Human;

/// A place that keeps one lease record, with compare-and-swap and a watch.
///
/// The election relies on each of these promises; the module `testing`, behind the feature of that
/// name, checks them.
pub trait LeaseStore: Send + Sync + 'static {
    /// What it needs beside the record to write the lease back as it was: fields of others, a value as it was found.
    type Carried: Clone + Default + fmt::Debug + Send + Sync + 'static;

    /// The record as it is now, not as some cache remembers it. Absence has a version too.
    fn read(&self) -> impl Future<Output = Result<Stored<Self::Carried>, StoreError>> + Send;

    /// Writes the record if the lease still is as `base` has it, at that version or still missing, and says as what it landed. What `base`
    /// carries beside the record stays as it is; timestamps, for people, are set as `purpose` says.
    ///
    /// The future may be dropped at any time; the write may then have landed or not, or land later.
    fn write(
        &self,
        base: &Stored<Self::Carried>,
        record: &Record,
        purpose: Purpose,
    ) -> impl Future<Output = Result<Stored<Self::Carried>, StoreError>> + Send;

    /// Writes these orders, and nothing else, if the record still is at the version of `base`, and says as what they landed.
    fn order(
        &self,
        base: &Stored<Self::Carried>,
        orders: &Orders,
    ) -> impl Future<Output = Result<Stored<Self::Carried>, StoreError>> + Send;

    /// Every change after this one, in order and without a gap; or the stream ends with an error.
    /// A store that learns that the holder is gone may send the same version again to say so.
    fn watch(
        &self,
        after: &Stored<Self::Carried>,
    ) -> impl Stream<Item = Result<Stored<Self::Carried>, WatchEnded>> + Send + 'static;

    /// A request was given up without an answer: its connection may swallow everything, so the next
    /// request must go over a new one.
    fn abandon_connections(&self) {}

    /// Which lease this is and where, for logs: `lease default/demo on https://10.0.0.1`.
    fn describe(&self) -> String;
}

/// The lease as it is in the store: what the election decides by, and what the store needs to write it back.
///
/// A write, an order or a watch is based on one of these, and on nothing that the store remembers by itself: whoever has an old one loses
/// the race, whatever has been read since.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored<C> {
    /// The record's version. For a missing record: a version at which it was missing.
    pub version: Version,
    /// The record, if there is one.
    pub record: Option<Record>,
    /// The latest state of the whole store for which this is known to be true: the record's version, or a later one. A lease that nobody touches keeps its
    /// version while the store's grows, until the store has forgotten so old a version; a watch begins here.
    pub as_of: Version,
    /// See [`Snapshot::holder_gone`].
    pub holder_gone: bool,
    /// For the store alone.
    pub carried: C,
}

impl<C> Stored<C> {
    /// A record that was found or written as this version.
    pub const fn present(version: Version, record: Record, carried: C) -> Self {
        Self {
            version,
            record: Some(record),
            as_of: version,
            holder_gone: false,
            carried,
        }
    }

    /// It still was so when the store was at this version.
    #[must_use]
    pub fn still_at(self, store: Version) -> Self {
        Self {
            as_of: store.max(self.version),
            ..self
        }
    }

    /// What the election is told.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let mut snapshot = Snapshot::new(self.version, self.record.clone());
        snapshot.holder_gone = self.holder_gone;
        snapshot
    }
}

impl<C: Default> Stored<C> {
    /// No record, at this version.
    #[must_use]
    pub fn missing(version: Version) -> Self {
        Self {
            version,
            record: None,
            as_of: version,
            holder_gone: false,
            carried: C::default(),
        }
    }
}

/// For stores that carry nothing.
impl From<Snapshot> for Stored<()> {
    fn from(snapshot: Snapshot) -> Self {
        Self {
            version: snapshot.version,
            record: snapshot.record,
            as_of: snapshot.version,
            holder_gone: snapshot.holder_gone,
            carried: (),
        }
    }
}

/// Why a request failed, and what that means for the election.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The record is not, or no longer, at the version that the write was based on: it did not land.
    #[error("lost the race: {0}")]
    LostRace(String),
    /// It had no effect, and will not work until somebody changes something.
    #[error("refused: {0}")]
    Refused(Box<Refusal>),
    /// It certainly had no effect, and may work later.
    #[error("unavailable: {0}")]
    Unavailable(String),
    /// It certainly had no effect: the store has too much to do, and asks us to wait for so long.
    #[error("unavailable: {}; it asks us to wait for {}", .0.reason, Human(.0.wait))]
    Throttled(Box<Throttling>),
    /// Nobody knows whether it had an effect.
    #[error("no answer: {0}")]
    Unknown(String),
}

impl StoreError {
    /// A refusal, with everything that a person needs to end it.
    pub fn refused(
        what: impl Into<String>,
        place: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self::Refused(Box::new(Refusal {
            what: what.into(),
            place: place.into(),
            advice: advice.into(),
        }))
    }

    /// What the election is to be told.
    #[must_use]
    pub const fn answer(&self) -> Answer {
        match self {
            Self::LostRace(_) => Answer::LostRace,
            Self::Refused(_) => Answer::Refused,
            Self::Unavailable(_) => Answer::Unavailable,
            Self::Throttled(throttling) => Answer::Throttled {
                wait: throttling.wait,
            },
            Self::Unknown(_) => Answer::Unknown,
        }
    }
}

/// A store that has too much to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Throttling {
    /// What it says.
    pub reason: String,
    /// For how long it asks us to wait.
    pub wait: Duration,
}

/// What was refused, where, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What was refused, and by whom.
    pub what: String,
    /// On which object.
    pub place: String,
    /// What to do; may have several lines, ready to paste.
    pub advice: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}). {}", self.what, self.place, self.advice)
    }
}

/// Why a watch ended. It is followed by a read, and by a new watch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WatchEnded {
    /// It broke, or might have missed something.
    #[error("the watch ended: {0}")]
    Broken(String),
    /// It was refused, and will be until somebody changes something. The record is read now and then instead.
    #[error("the watch was refused: {0}")]
    Refused(Box<Refusal>),
}

impl WatchEnded {
    /// It broke.
    pub fn broken(reason: impl Into<String>) -> Self {
        Self::Broken(reason.into())
    }
}
