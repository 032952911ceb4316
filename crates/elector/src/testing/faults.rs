//! What a store and the way to it can do wrong, as tests.

use std::time::Duration;

use futures_util::{Stream, StreamExt};
use soloist_core::election::{Base, Purpose};
use soloist_core::ids::OpId;
use soloist_core::record::{Record, Snapshot};
use tokio::time::timeout;

use super::{Fixture, create, held_by, in_time, lost, next, read, renew};
use crate::store::{LeaseStore, StoreError, WatchEnded};

/// What happens on the way to a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// Nothing any more.
    None,
    /// What is asked is done, and the answers are lost.
    LostAnswers,
    /// No change is told any more, and no connection ends.
    SilentWatches,
    /// Everything takes that much longer.
    Slow(Duration),
}

/// Disturbs the way of one handle.
pub type Disturb = Box<dyn Fn(Disturbance) + Send + Sync>;

/// For long enough that a watch which is not silent would have spoken.
const SILENCE: Duration = Duration::from_secs(1);

/// Says in the test's output what this store cannot have.
fn cannot<T>(what: &str, had: Result<T, &'static str>) -> Option<T> {
    had.map_err(|why| eprintln!("not tried: {what}: {why}"))
        .ok()
}

fn write_of(snapshot: &Snapshot) -> Option<OpId> {
    let record: &Record = snapshot.record.as_ref()?;
    Some(record.signature.as_ref()?.write)
}

/// A write whose answer is lost has landed all the same: it is never said to have failed, a read shows it, and nothing lands upon what was before it.
pub async fn a_write_whose_answer_is_lost_has_landed<F: Fixture>(fixture: F) {
    let disturbed = cannot("lost answers", fixture.disturbed().await);
    let Some((store, disturb)) = disturbed else {
        return;
    };
    let created = create(&store, &held_by("a", 1, 1)).await;
    let other = fixture.store();
    assert_eq!(read(&other).await.version, created);
    let mut changes = other.watch(created).boxed();
    disturb(Disturbance::LostAnswers);
    let record = held_by("a", 1, 2);
    let write = store.write(Base::Version(created), &record, Purpose::Renew);
    // Whoever waits gives it up.
    let outcome = timeout(SILENCE, write).await;
    let unknown = matches!(&outcome, Err(_) | Ok(Err(StoreError::Unknown(_))));
    assert!(unknown, "{outcome:?}");
    let landed = next(&mut changes).await;
    assert_eq!(landed.as_ref().map(write_of), Ok(Some(OpId::new(2))));
    disturb(Disturbance::None);
    store.abandon_connections();
    let found = read(&store).await;
    assert_eq!(Ok(&found), landed.as_ref());
    let again = store.write(Base::Version(created), &record, Purpose::Renew);
    let again = in_time(again).await;
    assert!(lost(&again), "{again:?}");
    renew(&store, found.version, &held_by("a", 1, 3)).await;
}

/// A watch that has died without a word tells nothing, but a read shows what it did not, and the next watch what comes after that.
pub async fn a_read_shows_what_a_silent_watch_did_not<F: Fixture>(fixture: F) {
    let disturbed = cannot("silent watches", fixture.disturbed().await);
    let Some((store, disturb)) = disturbed else {
        return;
    };
    let writer = fixture.store();
    let mut version = create(&writer, &held_by("a", 1, 1)).await;
    assert_eq!(read(&store).await.version, version);
    let mut silent = store.watch(version).boxed();
    // It may only begin to watch when it is asked.
    let write = async { renew(&writer, version, &held_by("a", 1, 2)).await };
    let (told, renewed) = tokio::join!(next(&mut silent), write);
    version = renewed;
    assert_eq!(told.map(|s| s.version), Ok(version));

    disturb(Disturbance::SilentWatches);
    version = renew(&writer, version, &held_by("a", 1, 3)).await;
    let told = timeout(SILENCE, silent.next()).await;
    let is_silent = !matches!(&told, Ok(Some(Ok(_))));
    assert!(is_silent, "the fixture does not silence it: {told:?}");
    disturb(Disturbance::None);
    store.abandon_connections();
    assert_eq!(read(&store).await.version, version);
    let mut changes = store.watch(version).boxed();
    let write = async { renew(&writer, version, &held_by("a", 1, 4)).await };
    let (told, renewed) = tokio::join!(next(&mut changes), write);
    assert_eq!(told.map(|s| s.version), Ok(renewed));
}

/// Of two that write upon the same version one wins, also if one of them is slow to ask and to hear; and it hears what won.
pub async fn a_slow_writer_wins_or_loses_like_any_other<F: Fixture>(fixture: F) {
    let disturbed = cannot("slow answers", fixture.disturbed().await);
    let Some((slow, disturb)) = disturbed else {
        return;
    };
    let quick = fixture.store();
    let mut version = create(&quick, &held_by("q", 1, 1)).await;
    assert_eq!(read(&slow).await.version, version);
    disturb(Disturbance::Slow(Duration::from_millis(100)));
    for n in 2..5 {
        let (ours, theirs) = (held_by("s", 2, n), held_by("q", 1, n));
        let base = Base::Version(version);
        let (slowly, quickly) = in_time(async {
            tokio::join!(
                slow.write(base, &ours, Purpose::Renew),
                quick.write(base, &theirs, Purpose::Renew)
            )
        })
        .await;
        let (won, record) = match (slowly, quickly) {
            (Ok(won), Err(StoreError::LostRace(_))) => (won, ours),
            (Err(StoreError::LostRace(_)), Ok(won)) => (won, theirs),
            other => panic!("{other:?}"),
        };
        assert!(won > version);
        version = won;
        for store in [&slow, &quick] {
            let found = read(store).await;
            assert_eq!((found.version, found.record.as_ref()), (won, Some(&record)));
        }
    }
}

/// Where a right is missing, that is said of each request, with what to do about it.
pub async fn what_is_refused_is_said_with_what_to_do<F: Fixture>(fixture: F) {
    let Some(store) = cannot("missing rights", fixture.without_rights().await) else {
        return;
    };
    let told = |refusal: &crate::store::Refusal| {
        assert!(!refusal.what.is_empty() && !refusal.place.is_empty());
        assert!(!refusal.advice.is_empty(), "{refusal}");
    };
    match in_time(store.read()).await {
        Err(StoreError::Refused(refusal)) => told(&refusal),
        other => panic!("{other:?}"),
    }
    let record = held_by("a", 1, 1);
    match in_time(store.write(Base::Absent, &record, Purpose::Acquire)).await {
        Err(StoreError::Refused(refusal)) => told(&refusal),
        other => panic!("{other:?}"),
    }
}

/// A watch from a version that the store has forgotten ends, or has not missed a thing; then a read helps.
pub async fn a_watch_of_what_was_compacted_away_never_skips<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let created = create(&store, &held_by("a", 1, 1)).await;
    let mut version = created;
    let mut written = Vec::new();
    for n in 2..6 {
        version = renew(&store, version, &held_by("a", 1, n)).await;
        written.push(version);
    }
    if cannot("compaction", fixture.compact().await).is_none() {
        return;
    }
    let mut old = store.watch(created).boxed();
    if let Ok(first) = next(&mut old).await {
        let seen = rest(&mut old, written.len() - 1).await;
        let seen = [vec![first.version], seen].concat();
        assert_eq!(seen, written[..seen.len()]);
    }
    assert_eq!(read(&store).await.version, version);
    let mut changes = store.watch(version).boxed();
    let write = async { renew(&store, version, &held_by("a", 1, 6)).await };
    let (told, renewed) = tokio::join!(next(&mut changes), write);
    assert_eq!(told.map(|s| s.version), Ok(renewed));
}

async fn rest(
    changes: &mut (impl Stream<Item = Result<Snapshot, WatchEnded>> + Unpin),
    many: usize,
) -> Vec<soloist_core::ids::Version> {
    let mut seen = Vec::new();
    while seen.len() < many {
        match next(changes).await {
            Ok(change) => seen.push(change.version),
            Err(_) => break,
        }
    }
    seen
}
