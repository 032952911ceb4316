//! The watch of both objects, as one.

use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt, stream};
use soloist_core::ids::Version;
use soloist_core::record::Snapshot;
use tokio::time::{Instant, sleep_until};

use super::super::watch::{Change, objects};
use super::super::{Inner, object};
use super::Both;
use super::merge::{Half, Pair};
use crate::store::WatchEnded;

/// How long a write of both may take between the two, before the first alone is told.
const ON_ITS_WAY: Duration = Duration::from_millis(250);

/// How far one watch may be behind the other.
const BEHIND: Duration = Duration::from_secs(2);

type Changes = Pin<Box<dyn Stream<Item = Result<Change, WatchEnded>> + Send>>;

/// Every change of the two together after this version.
pub(super) fn changes(
    both: Arc<Both>,
    after: Version,
) -> impl Stream<Item = Result<Snapshot, WatchEnded>> + Send + 'static {
    let start = both.seen_at(after).map(|pair| Watching {
        legacy: changes_of(both.legacy.inner.clone(), &pair.legacy),
        lease: changes_of(both.lease.inner.clone(), &pair.lease),
        newest: after,
        pair,
        both,
        early: None,
        untold: None,
    });
    stream::unfold(Some(start), |watching| async move {
        let mut watching = match watching? {
            Ok(watching) => watching,
            Err(error) => return Some((Err(WatchEnded::broken(error.to_string())), None)),
        };
        match watching.next().await {
            Ok(snapshot) => Some((Ok(snapshot), Some(Ok(watching)))),
            Err(ended) => Some((Err(ended), None)),
        }
    })
}

fn changes_of(inner: Arc<Inner>, half: &Half) -> Changes {
    let told = match half.object {
        Some(_) => half.version,
        None => half.as_of,
    };
    objects(inner, told, half.as_of).boxed()
}

struct Watching {
    both: Arc<Both>,
    legacy: Changes,
    lease: Changes,
    pair: Pair,
    /// Of the newest change that was taken in.
    newest: Version,
    /// A change of the Lease that follows one of the old lock's which has not come yet.
    early: Option<(Change, Version, Instant)>,
    /// The first half of a write is there: until when it may wait for the second.
    untold: Option<Instant>,
}

enum Heard {
    Legacy(Change),
    Lease(Change),
    /// The time is up.
    Nothing,
}

impl Watching {
    async fn next(&mut self) -> Result<Snapshot, WatchEnded> {
        loop {
            let told = match self.hear().await? {
                Heard::Legacy(change) => self.take_legacy(change)?,
                Heard::Lease(change) => self.take_lease(change)?,
                Heard::Nothing if self.early.is_some() => {
                    return Err(WatchEnded::broken(
                        "the old lock's changes come later than the Lease's",
                    ));
                }
                Heard::Nothing => true,
            };
            if told {
                self.untold = None;
                return Ok(self.both.remember(self.pair.clone()));
            }
        }
    }

    async fn hear(&mut self) -> Result<Heard, WatchEnded> {
        if let Some((_, follows, _)) = &self.early
            && self.pair.legacy.version >= *follows
            && let Some((change, ..)) = self.early.take()
        {
            return Ok(Heard::Lease(change));
        }
        let early = self.early.as_ref().map(|(_, _, until)| *until);
        let until = early.or(self.untold);
        let time_is_up = async {
            match until {
                Some(until) => sleep_until(until).await,
                None => pending().await,
            }
        };
        let ended = || Err(WatchEnded::broken("the server closed it"));
        tokio::select! {
            change = self.legacy.next() => change.unwrap_or_else(ended).map(Heard::Legacy),
            change = self.lease.next(), if early.is_none() => change.unwrap_or_else(ended).map(Heard::Lease),
            () = time_is_up => Ok(Heard::Nothing),
        }
    }

    /// Whether the state is to be told now.
    fn take_legacy(&mut self, change: Change) -> Result<bool, WatchEnded> {
        self.in_order(&change)?;
        self.pair.legacy = half(self.both.legacy(), change)?;
        Ok(self.is_to_be_told())
    }

    fn take_lease(&mut self, change: Change) -> Result<bool, WatchEnded> {
        if let Some(follows) = follows(&change)
            && follows > self.pair.legacy.version
        {
            self.early = Some((change, follows, Instant::now() + BEHIND));
            return Ok(false);
        }
        self.in_order(&change)?;
        self.pair.lease = half(self.both.lease(), change)?;
        Ok(self.is_to_be_told())
    }

    /// Each watch keeps its own order. If the other one is overtaken, a state was told that has never been.
    fn in_order(&mut self, change: &Change) -> Result<(), WatchEnded> {
        if change.version <= self.newest {
            return Err(WatchEnded::broken(format!(
                "version {} of one object came after version {} of the other",
                change.version, self.newest
            )));
        }
        self.newest = change.version;
        Ok(())
    }

    fn is_to_be_told(&mut self) -> bool {
        if !self.pair.view().on_its_way {
            return true;
        }
        self.untold
            .get_or_insert_with(|| Instant::now() + ON_ITS_WAY);
        false
    }
}

fn half(inner: &Inner, change: Change) -> Result<Half, WatchEnded> {
    let Change { version, object } = change;
    match object {
        None => Ok(Half::missing(version, version)),
        Some(object) => inner
            .half_of(object)
            .map_err(|error| WatchEnded::broken(error.to_string())),
    }
}

/// Which version of the old lock this change of the Lease was written after.
fn follows(change: &Change) -> Option<Version> {
    let mark = object::half_mark(change.object.as_ref()?)?;
    mark.parse().ok().map(Version::new)
}
