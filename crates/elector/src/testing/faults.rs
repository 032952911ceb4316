//! What a store and the way to it can do wrong, as tests.

use std::time::Duration;

use futures_util::{Stream, StreamExt};
use soloist_core::election::Purpose;
use soloist_core::ids::{OpId, Version};
use soloist_core::record::Snapshot;
use tokio::time::timeout;

use super::{Fixture, absent, create, held_by, in_time, lost, next, read, renew, shown, version};
use crate::store::{LeaseStore, StoreError, Stored, WatchEnded};

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
pub(super) fn cannot<T>(what: &str, had: Result<T, &'static str>) -> Option<T> {
    had.map_err(|why| eprintln!("not tried: {what}: {why}"))
        .ok()
}

fn write_of<C>(stored: &Stored<C>) -> Option<OpId> {
    let record = stored.record.as_ref()?;
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
    let seen = read(&other).await;
    assert_eq!(seen.version, created.version);
    let mut changes = other.watch(&seen).boxed();
    disturb(Disturbance::LostAnswers);
    let record = held_by("a", 1, 2);
    let write = store.write(&created, &record, Purpose::Renew);
    // Whoever waits gives it up.
    let outcome = timeout(SILENCE, write).await;
    let unknown = matches!(&outcome, Err(_) | Ok(Err(StoreError::Unknown(_))));
    assert!(unknown, "{outcome:?}");
    let landed = next(&mut changes).await;
    let write = landed.as_ref().map(write_of);
    assert!(
        matches!(write, Ok(Some(n)) if n == OpId::new(2)),
        "{write:?}"
    );
    disturb(Disturbance::None);
    store.abandon_connections();
    let found = read(&store).await;
    assert_eq!(shown(landed), Ok(found.snapshot()));
    let again = in_time(store.write(&created, &record, Purpose::Renew)).await;
    assert!(lost(&again), "{again:?}");
    renew(&store, &found, &held_by("a", 1, 3)).await;
}

/// A watch that has died without a word tells nothing, but a read shows what it did not, and the next watch what comes after that.
pub async fn a_read_shows_what_a_silent_watch_did_not<F: Fixture>(fixture: F) {
    let disturbed = cannot("silent watches", fixture.disturbed().await);
    let Some((store, disturb)) = disturbed else {
        return;
    };
    let writer = fixture.store();
    let mut last = create(&writer, &held_by("a", 1, 1)).await;
    let seen = read(&store).await;
    assert_eq!(seen.version, last.version);
    let mut silent = store.watch(&seen).boxed();
    // It may only begin to watch when it is asked.
    let write = async { renew(&writer, &last, &held_by("a", 1, 2)).await };
    let (told, renewed) = tokio::join!(next(&mut silent), write);
    last = renewed;
    assert_eq!(version(&told), Ok(last.version));

    disturb(Disturbance::SilentWatches);
    last = renew(&writer, &last, &held_by("a", 1, 3)).await;
    let told = timeout(SILENCE, silent.next()).await;
    let is_silent = !matches!(&told, Ok(Some(Ok(_))));
    assert!(is_silent, "the fixture does not silence it: {told:?}");
    disturb(Disturbance::None);
    store.abandon_connections();
    let seen = read(&store).await;
    assert_eq!(seen.version, last.version);
    let mut changes = store.watch(&seen).boxed();
    let write = async { renew(&writer, &last, &held_by("a", 1, 4)).await };
    let (told, renewed) = tokio::join!(next(&mut changes), write);
    assert_eq!(version(&told), Ok(renewed.version));
}

/// Of two that write upon the same version one wins, also if one of them is slow to ask and to hear; and it hears what won.
pub async fn a_slow_writer_wins_or_loses_like_any_other<F: Fixture>(fixture: F) {
    let disturbed = cannot("slow answers", fixture.disturbed().await);
    let Some((slow, disturb)) = disturbed else {
        return;
    };
    let quick = fixture.store();
    let mut last = create(&quick, &held_by("q", 1, 1)).await;
    assert_eq!(read(&slow).await.version, last.version);
    disturb(Disturbance::Slow(Duration::from_millis(100)));
    for n in 2..5 {
        let (ours, theirs) = (held_by("s", 2, n), held_by("q", 1, n));
        let (slowly, quickly) = in_time(async {
            tokio::join!(
                slow.write(&last, &ours, Purpose::Renew),
                quick.write(&last, &theirs, Purpose::Renew)
            )
        })
        .await;
        let (won, record) = match (slowly, quickly) {
            (Ok(won), Err(StoreError::LostRace(_))) => (won, ours),
            (Err(StoreError::LostRace(_)), Ok(won)) => (won, theirs),
            other => panic!("{other:?}"),
        };
        assert!(won.version > last.version);
        last = won;
        for store in [&slow, &quick] {
            let found = read(store).await;
            assert_eq!(
                (found.version, found.record.as_ref()),
                (last.version, Some(&record))
            );
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
    match in_time(store.write(&absent(), &record, Purpose::Acquire)).await {
        Err(StoreError::Refused(refusal)) => told(&refusal),
        other => panic!("{other:?}"),
    }
}

/// A watch from a version that the store has forgotten ends, or has not missed a thing; then a read helps.
pub async fn a_watch_of_what_was_compacted_away_never_skips<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let created = create(&store, &held_by("a", 1, 1)).await;
    let mut last = created.clone();
    let mut written = Vec::new();
    for n in 2..6 {
        last = renew(&store, &last, &held_by("a", 1, n)).await;
        written.push(last.version);
    }
    if cannot("compaction", fixture.compact().await).is_none() {
        return;
    }
    let mut old = store.watch(&created).boxed();
    if let Ok(first) = next(&mut old).await {
        let seen = rest(&mut old, written.len() - 1).await;
        let seen = [vec![first.version], seen].concat();
        assert_eq!(seen, written[..seen.len()]);
    }
    let seen = read(&store).await;
    assert_eq!(seen.version, last.version);
    let mut changes = store.watch(&seen).boxed();
    let write = async { renew(&store, &last, &held_by("a", 1, 6)).await };
    let (told, renewed) = tokio::join!(next(&mut changes), write);
    assert_eq!(version(&told), Ok(renewed.version));
}

async fn rest<C>(
    changes: &mut (impl Stream<Item = Result<Stored<C>, WatchEnded>> + Unpin),
    many: usize,
) -> Vec<Version> {
    let mut seen = Vec::new();
    while seen.len() < many {
        match next(changes).await {
            Ok(change) => seen.push(change.version),
            Err(_) => break,
        }
    }
    seen
}

/// A store that was set back to a backup is read as it is now and can be written again, by handles that knew more; nothing that is based on what was
/// lost lands; and a watch that was open ends.
pub async fn a_store_that_was_set_back_can_be_written_again<F: Fixture>(fixture: F) {
    let (writer, other) = (fixture.store(), fixture.store());
    let saved = held_by("a", 1, 1);
    let base = create(&writer, &saved).await;
    fixture.back_up().await;
    let mut late = base.clone();
    for n in 2..22 {
        late = renew(&writer, &late, &held_by("a", 1, n)).await;
        assert_eq!(read(&other).await.version, late.version);
    }
    let mut old_watch = other.watch(&late).boxed();
    late = renew(&writer, &late, &held_by("a", 1, 22)).await;
    assert_eq!(version(&next(&mut old_watch).await), Ok(late.version));
    fixture.set_back().await;

    for store in [&writer, &other] {
        let found = read(store).await;
        assert_eq!(
            (found.version, found.record.as_ref()),
            (base.version, Some(&saved))
        );
        let stale = in_time(store.write(&late, &saved, Purpose::Renew)).await;
        assert!(lost(&stale), "{stale:?}");
    }
    let ended = next(&mut old_watch).await;
    assert!(ended.is_err(), "{ended:?}");
    let mut last = read(&other).await;
    let mut changes = other.watch(&last).boxed();
    for n in 15..18 {
        for (nth, store) in [&writer, &other].into_iter().enumerate() {
            let record = held_by("a", 1, 2 * n + nth as u64);
            let found = read(store).await;
            assert_eq!(found.version, last.version);
            let written = renew(store, &found, &record).await;
            assert!(written.version > last.version);
            last = written;
            let seen = shown(next(&mut changes).await);
            assert_eq!(seen, Ok(Snapshot::new(last.version, Some(record))));
        }
    }
}
