//! The watch of both objects, as one.

use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt, stream};
use tokio::time::{Instant, sleep_until};

use super::super::watch::{Change, objects};
use super::super::{Inner, KubernetesStore};
use super::changes::{Changes, Taken};
use super::merge::{Half, Pair};
use super::protocol::{Both, Place};
use crate::store::{Stored, WatchEnded};

/// How long a write of both may take between the two, before the first alone is told.
const ON_ITS_WAY: Duration = Duration::from_millis(250);

/// How far one watch may be behind the other.
const BEHIND: Duration = Duration::from_secs(2);

type OfOne = Pin<Box<dyn Stream<Item = Result<Change, WatchEnded>> + Send>>;

/// Every change of the two together after this one.
pub(super) fn changes(
    both: Arc<Both<KubernetesStore>>,
    after: &Stored<Pair>,
) -> impl Stream<Item = Result<Stored<Pair>, WatchEnded>> + Send + 'static {
    let pair = after.carried.clone();
    let start = Watching {
        legacy: changes_of(both.legacy.inner.clone(), &pair.legacy),
        lease: changes_of(both.lease.inner.clone(), &pair.lease),
        both,
        changes: Changes::after(pair),
        until: None,
    };
    stream::unfold(Some(start), |watching| async move {
        let mut watching = watching?;
        match watching.next().await {
            Ok(stored) => Some((Ok(stored), Some(watching))),
            Err(ended) => Some((Err(ended), None)),
        }
    })
}

fn changes_of(inner: Arc<Inner>, half: &Half) -> OfOne {
    let told = match half.object {
        Some(_) => half.version,
        None => half.as_of,
    };
    objects(inner, told, half.as_of).boxed()
}

struct Watching {
    both: Arc<Both<KubernetesStore>>,
    legacy: OfOne,
    lease: OfOne,
    changes: Changes,
    /// Something has come that waits for something else: until then.
    until: Option<(Taken, Instant)>,
}

impl Watching {
    async fn next(&mut self) -> Result<Stored<Pair>, WatchEnded> {
        loop {
            let taken = self.take_next().await?;
            let wait = match taken {
                Taken::Whole => {
                    self.until = None;
                    return Ok(self.changes.pair().stored());
                }
                Taken::First => ON_ITS_WAY,
                Taken::Early => BEHIND,
            };
            if self.until.is_none_or(|(waiting, _)| waiting != taken) {
                self.until = Some((taken, Instant::now() + wait));
            }
        }
    }

    /// What became of the next change, or of those that have waited long enough.
    async fn take_next(&mut self) -> Result<Taken, WatchEnded> {
        let until = self.until;
        let time_is_up = async {
            match until {
                Some((taken, until)) => {
                    sleep_until(until).await;
                    taken
                }
                None => pending().await,
            }
        };
        let ended = || Err(WatchEnded::broken("the server closed it"));
        let lease_may_come = !self.changes.waits_for_the_old_lock();
        let taken = tokio::select! {
            change = self.legacy.next() => {
                let half = half(&self.both.legacy, change.unwrap_or_else(ended)?)?;
                self.changes.take_legacy(half)
            }
            change = self.lease.next(), if lease_may_come => {
                let half = half(&self.both.lease, change.unwrap_or_else(ended)?)?;
                self.changes.take_lease(half)
            }
            waited = time_is_up => return match waited {
                Taken::Early => Err(WatchEnded::broken(
                    "the old lock's changes come later than the Lease's",
                )),
                Taken::First | Taken::Whole => Ok(Taken::Whole),
            },
        };
        taken.map_err(|overtaken| WatchEnded::broken(overtaken.to_string()))
    }
}

fn half(place: &impl Place, change: Change) -> Result<Half, WatchEnded> {
    let Change { version, object } = change;
    match object {
        None => Ok(Half::missing(version, version)),
        Some(object) => place
            .half_of(object)
            .map_err(|error| WatchEnded::broken(error.to_string())),
    }
}
