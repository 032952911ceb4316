//! What every store must do, as tests.
//!
//! A store's tests implement [`Fixture`] and call [`conformance_tests!`](crate::conformance_tests) with an expression that makes one.

mod beside;
mod faults;

use std::collections::BTreeSet;
use std::future::Future;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{Stream, StreamExt};
use soloist_core::election::Purpose;
use soloist_core::ids::{Identity, InstanceId, OpId, PodUid, Term, Version};
use soloist_core::orders::{Handover, Orders, Pause, WallTime};
use soloist_core::record::{Record, Signature, Snapshot};
use soloist_core::timings::LeaseDuration;

use crate::store::{LeaseStore, StoreError, Stored, WatchEnded};

pub use beside::*;
use faults::cannot;
pub use faults::*;

/// One lease in the store under test.
pub trait Fixture: Send + Sync {
    /// The store.
    type Store: LeaseStore;

    /// A handle of its own on the lease, as another replica would have.
    fn store(&self) -> Self::Store;

    /// Deletes the lease, as an operator would.
    fn delete(&self) -> impl Future<Output = ()> + Send;

    /// Changes the holder, as an operator would.
    fn set_holder(&self, holder: Option<&str>) -> impl Future<Output = ()> + Send;

    /// Puts something of its own beside the record, as people and other programs do; or why there is no such place.
    fn annotate(&self, text: &str) -> impl Future<Output = Result<(), &'static str>> + Send;

    /// What was put there.
    fn annotation(&self) -> impl Future<Output = Option<String>> + Send;

    /// Saves the whole store, versions included.
    fn back_up(&self) -> impl Future<Output = ()> + Send;

    /// Sets the whole store back to what was saved last, without a word to anybody: what came after it has never been, and
    /// its versions are given out again.
    fn set_back(&self) -> impl Future<Output = ()> + Send;

    /// A handle of its own whose way to the store can be disturbed; or why there is no such way.
    fn disturbed(
        &self,
    ) -> impl Future<Output = Result<(Self::Store, Disturb), &'static str>> + Send;

    /// A handle of somebody who may do nothing; or why there is nobody like that.
    fn without_rights(&self) -> impl Future<Output = Result<Self::Store, &'static str>> + Send;

    /// Has the store forget all but its present state; or why it remembers nothing anyway.
    fn compact(&self) -> impl Future<Output = Result<(), &'static str>> + Send;
}

/// Fails the test if it takes longer than any healthy store would.
///
/// # Panics
/// When the time is up.
pub async fn in_time<T>(wait: impl Future<Output = T>) -> T {
    match tokio::time::timeout(Duration::from_secs(20), wait).await {
        Ok(value) => value,
        Err(_) => panic!("nothing happened in time"),
    }
}

/// A record held by `holder`, signed by it.
///
/// # Panics
/// When it is no name.
#[must_use]
pub fn held_by(holder: &str, instance: u128, write: u64) -> Record {
    let Some(holder) = Identity::found(holder) else {
        panic!("an empty holder");
    };
    Record {
        holder: Some(holder.clone()),
        duration_seconds: Some(15),
        transitions: 4,
        signature: Some(Signature {
            instance: InstanceId::from_random(instance),
            pod: PodUid::new("0c1e-77"),
            holder,
            term: Term::new(4),
            duration: LeaseDuration::SHORTEST,
            write: OpId::new(write),
            base: Version::new(3),
            released: false,
            heir: None,
        }),
        orders: Orders::NONE,
    }
}

/// The same, released.
#[must_use]
pub fn released(mut record: Record) -> Record {
    record.holder = None;
    record.duration_seconds = Some(Record::RELEASED_SECONDS);
    if let Some(signature) = &mut record.signature {
        signature.released = true;
    }
    record
}

async fn read<S: LeaseStore>(store: &S) -> Stored<S::Carried> {
    match in_time(store.read()).await {
        Ok(stored) => stored,
        Err(error) => panic!("cannot read: {error}"),
    }
}

async fn create<S: LeaseStore>(store: &S, record: &Record) -> Stored<S::Carried> {
    match in_time(store.write(&absent(), record, Purpose::Acquire)).await {
        Ok(stored) => stored,
        Err(error) => panic!("cannot create: {error}"),
    }
}

async fn renew<S: LeaseStore>(
    store: &S,
    base: &Stored<S::Carried>,
    record: &Record,
) -> Stored<S::Carried> {
    match in_time(store.write(base, record, Purpose::Renew)).await {
        Ok(stored) => stored,
        Err(error) => panic!("cannot renew: {error}"),
    }
}

/// What somebody knows who has not looked.
#[must_use]
pub fn absent<C: Default>() -> Stored<C> {
    Stored::missing(Version::new(0))
}

async fn next<C>(
    changes: &mut (impl Stream<Item = Result<Stored<C>, WatchEnded>> + Unpin),
) -> Result<Stored<C>, WatchEnded> {
    match in_time(changes.next()).await {
        Some(change) => change,
        None => Err(WatchEnded::broken("no more")),
    }
}

/// As what it landed, or is shown.
fn version<C, E: Clone>(outcome: &Result<Stored<C>, E>) -> Result<Version, E> {
    match outcome {
        Ok(stored) => Ok(stored.version),
        Err(error) => Err(error.clone()),
    }
}

/// What the election would be told.
fn shown<C>(change: Result<Stored<C>, WatchEnded>) -> Result<Snapshot, WatchEnded> {
    change.map(|stored| stored.snapshot())
}

fn lost<C>(outcome: &Result<Stored<C>, StoreError>) -> bool {
    matches!(outcome, Err(StoreError::LostRace(_)))
}

/// A missing record is read as missing, at a version below that of any record to come.
pub async fn absence_has_a_version<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let absent = read(&store).await;
    assert_eq!(absent.record, None);
    assert!(!absent.holder_gone);
    let created = create(&store, &held_by("a", 1, 1)).await;
    assert!(created.version > absent.version);
}

/// A record is created only where there is none, and what lost leaves no trace.
pub async fn creates_only_what_is_absent<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let first = held_by("a", 1, 1);
    let created = create(&store, &first).await;
    let second = store
        .write(&absent(), &held_by("b", 2, 1), Purpose::Acquire)
        .await;
    assert!(lost(&second), "{second:?}");
    let found = read(&store).await;
    assert_eq!(
        (found.version, found.record),
        (created.version, Some(first))
    );
}

/// Exactly one of thirty concurrent creators wins, and the record is the winner's.
pub async fn one_of_thirty_creators_wins<F: Fixture>(fixture: F) {
    let writes = (0..30u32).map(|n| {
        let store = fixture.store();
        async move {
            let record = held_by(&format!("replica-{n}"), u128::from(n), 1);
            let outcome = store.write(&absent(), &record, Purpose::Acquire).await;
            (record, outcome.map(|stored| stored.version))
        }
    });
    one_wins(&fixture, in_time(join_all(writes)).await).await;
}

/// Exactly one of thirty writers on the same version wins.
pub async fn one_of_thirty_writers_wins<F: Fixture>(fixture: F) {
    let base = create(&fixture.store(), &held_by("a", 99, 1)).await;
    let stores: Vec<_> = (0..30u32).map(|n| (n, fixture.store())).collect();
    let base = &base;
    let writes = stores.iter().map(|(n, store)| async move {
        let record = held_by(&format!("replica-{n}"), u128::from(*n), 1);
        let outcome = store.write(base, &record, Purpose::Acquire).await;
        (record, outcome.map(|stored| stored.version))
    });
    one_wins(&fixture, in_time(join_all(writes)).await).await;
}

async fn one_wins<F: Fixture>(fixture: &F, outcomes: Vec<(Record, Result<Version, StoreError>)>) {
    let found = read(&fixture.store()).await;
    let mut winners = 0;
    for (record, outcome) in outcomes {
        match outcome {
            Ok(version) => {
                winners += 1;
                assert_eq!((found.version, &found.record), (version, &Some(record)));
            }
            Err(error) => assert!(matches!(error, StoreError::LostRace(_)), "{error}"),
        }
    }
    assert_eq!(winners, 1);
}

/// A write on a version that is no longer there loses, also after a deletion.
pub async fn a_stale_write_loses<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let record = held_by("a", 1, 1);
    let first = create(&store, &record).await;
    let second = renew(&store, &first, &held_by("a", 1, 2)).await;
    assert!(second.version > first.version);
    let stale = store.write(&first, &record, Purpose::Renew).await;
    assert!(lost(&stale), "{stale:?}");
    fixture.delete().await;
    let gone = store.write(&second, &record, Purpose::Renew).await;
    assert!(lost(&gone), "{gone:?}");
    assert_eq!(read(&store).await.record, None);
}

/// An operator's edit counts as a change: a write on the version before it loses.
pub async fn a_write_over_an_unseen_edit_loses<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let created = create(&store, &held_by("a", 1, 1)).await;
    fixture.set_holder(Some("operator")).await;
    let write = store
        .write(&created, &held_by("a", 1, 2), Purpose::Renew)
        .await;
    assert!(lost(&write), "{write:?}");
    let found = read(&store).await;
    assert!(found.version > created.version);
    assert_eq!(
        found.record.and_then(|r| r.holder),
        Identity::found("operator")
    );
}

/// The version grows across deletions, so tokens do.
pub async fn the_version_grows_across_deletion<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let mut last = read(&store).await.version;
    for n in 1..4 {
        let created = create(&store, &held_by("a", 1, n)).await;
        assert!(created.version > last);
        fixture.delete().await;
        let absent = read(&store).await;
        assert_eq!(absent.record, None);
        assert!(absent.version > created.version);
        last = absent.version;
    }
}

/// What is written is what is read: signature, odd durations, many transitions.
pub async fn a_record_survives_being_written_and_read<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let plain = held_by("a", u128::MAX, u64::MAX);
    let mut last = create(&store, &plain).await;
    let unsigned = Record {
        signature: None,
        ..plain.clone()
    };
    let many = u64::from(u32::MAX) + 9;
    let mut overflown = held_by("b", 7, 3);
    overflown.transitions = many;
    if let Some(signature) = &mut overflown.signature {
        signature.term = Term::new(many);
        signature.pod = None;
    }
    let long = Record {
        duration_seconds: Some(86_400),
        ..plain.clone()
    };
    for record in [unsigned, overflown, long, plain.clone(), released(plain)] {
        last = renew(&store, &last, &record).await;
        let found = read(&store).await;
        assert_eq!((found.version, found.record), (last.version, Some(record)));
    }
}

/// A release is read as one.
pub async fn a_release_is_read_as_one<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let record = held_by("a", 1, 1);
    let created = create(&store, &record).await;
    let release = released(record);
    let written = in_time(store.write(&created, &release, Purpose::Release)).await;
    let found = read(&fixture.store()).await;
    assert_eq!(version(&written), Ok(found.version));
    assert!(found.record.is_some_and(|r| r.released_by_its_holder()));
}

/// An order is written beside a record that stays as it is, upon exactly the version that was read; the holder's next write sees
/// it, and can take it away.
pub async fn an_order_leaves_the_record_as_it_is<F: Fixture>(fixture: F) {
    let (holder, person) = (fixture.store(), fixture.store());
    let mut record = held_by("a", 1, 1);
    let created = create(&holder, &record).await;
    let read_by_person = read(&person).await;
    assert_eq!(read_by_person.version, created.version);
    record.orders = Orders {
        handover: Some(Box::new(Handover {
            term: Term::new(4),
            to: Identity::found("b"),
        })),
        pause: Some(Pause {
            stop: true,
            until: Some(WallTime::from_unix_seconds(1_769_882_400)),
        }),
    };
    let mut changes = Box::pin(holder.watch(&created));
    let ordered = in_time(person.order(&read_by_person, &record.orders)).await;
    let seen = shown(next(&mut changes).await);
    assert_eq!(seen, Ok(read(&holder).await.snapshot()));
    let Ok(ordered) = ordered else {
        panic!("not ordered: {ordered:?}");
    };
    assert_eq!(ordered.record.as_ref(), Some(&record));
    assert_eq!(seen, Ok(ordered.snapshot()));
    let stale = in_time(person.order(&created, &Orders::NONE)).await;
    assert!(lost(&stale), "{stale:?}");
    record.orders = Orders::NONE;
    let renewed = renew(&holder, &ordered, &record).await;
    let found = read(&person).await;
    assert_eq!(
        (found.version, found.record),
        (renewed.version, Some(record))
    );
}

/// The watch shows changes by write, edit and deletion, each with the version that a read would give.
pub async fn the_watch_shows_every_change_in_order<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let absent = read(&store).await;
    let watcher = fixture.store();
    let mut changes = Box::pin(watcher.watch(&absent));
    let mut last = create(&store, &held_by("a", 1, 1)).await;
    for n in 2..6 {
        let seen = shown(next(&mut changes).await);
        assert_eq!(seen, Ok(read(&store).await.snapshot()), "change {n}");
        last = renew(&store, &last, &held_by("a", 1, n)).await;
    }
    assert_eq!(version(&next(&mut changes).await), Ok(last.version));
    fixture.set_holder(None).await;
    let emptied = next(&mut changes).await;
    assert!(matches!(&emptied, Ok(s) if s.record.as_ref().is_some_and(|r| r.holder.is_none())));
    fixture.delete().await;
    let deleted = next(&mut changes).await;
    assert!(
        matches!(&deleted, Ok(s) if s.record.is_none()),
        "{deleted:?}"
    );
    let again = create(&store, &held_by("b", 2, 1)).await;
    assert_eq!(version(&next(&mut changes).await), Ok(again.version));
}

/// A watch that begins at an older version shows what came after it, or ends; it never skips.
pub async fn the_watch_never_skips<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let start = read(&store).await;
    let mut last = create(&store, &held_by("a", 1, 1)).await;
    let mut written = vec![last.version];
    let watcher = fixture.store();
    let mut changes = Box::pin(watcher.watch(&start));
    for n in 2..30 {
        last = renew(&store, &last, &held_by("a", 1, n)).await;
        written.push(last.version);
    }
    let mut seen = Vec::new();
    while seen.len() < written.len() {
        match next(&mut changes).await {
            Ok(change) => seen.push(change.version),
            Err(_) => break,
        }
    }
    assert_eq!(seen, written[..seen.len()]);
}

/// Thirty watches at once are all served.
pub async fn thirty_watches_see_a_release<F: Fixture>(fixture: F) {
    let store = fixture.store();
    let record = held_by("a", 1, 1);
    let created = create(&store, &record).await;
    let mut watches = Vec::new();
    for _ in 0..30 {
        let store = fixture.store();
        let seen = read(&store).await;
        assert_eq!(seen.version, created.version);
        watches.push(store.watch(&seen).boxed());
    }
    let release = released(record);
    let written = in_time(store.write(&created, &release, Purpose::Release)).await;
    let seen = join_all(watches.iter_mut().map(next)).await;
    let versions: BTreeSet<_> = seen.iter().map(|seen| version(seen).ok()).collect();
    assert_eq!(versions, BTreeSet::from([version(&written).ok()]));
}

/// One test for each promise of a store, on the lease that `$fixture` makes: an `Option`, which may be awaited
/// for, and is `None` where the store cannot be had. Setting a store back is nothing to do to one that other tests share: then
/// `set_back:` makes a lease in one of its own. With `harmed:` so are compaction and missing rights. What a store cannot have is said in
/// words in the test's output.
#[macro_export]
macro_rules! conformance_tests {
    ($fixture:expr) => {
        $crate::conformance_tests!($fixture, set_back: $fixture);
    };
    ($fixture:expr, set_back: $own:expr) => {
        $crate::conformance_tests!(
            $own;
            a_store_that_was_set_back_can_be_written_again,
            of_two_states_with_one_version_the_present_one_is_written_back,
        );
        $crate::conformance_tests!($fixture, alone: $fixture);
    };
    ($fixture:expr, harmed: $own:expr) => {
        $crate::conformance_tests!(
            $own;
            a_store_that_was_set_back_can_be_written_again,
            of_two_states_with_one_version_the_present_one_is_written_back,
        );
        $crate::conformance_tests!($fixture, alone: $own);
    };
    ($fixture:expr, alone: $own:expr) => {
        $crate::conformance_tests!(
            $own;
            what_is_refused_is_said_with_what_to_do,
            a_watch_of_what_was_compacted_away_never_skips,
        );
        $crate::conformance_tests!(
            $fixture;
            absence_has_a_version,
            creates_only_what_is_absent,
            one_of_thirty_creators_wins,
            one_of_thirty_writers_wins,
            a_stale_write_loses,
            a_write_over_an_unseen_edit_loses,
            the_version_grows_across_deletion,
            a_record_survives_being_written_and_read,
            a_release_is_read_as_one,
            an_order_leaves_the_record_as_it_is,
            what_others_keep_beside_the_record_survives_a_write,
            the_watch_shows_every_change_in_order,
            the_watch_never_skips,
            thirty_watches_see_a_release,
            a_write_whose_answer_is_lost_has_landed,
            a_read_shows_what_a_silent_watch_did_not,
            a_slow_writer_wins_or_loses_like_any_other,
        );
    };
    ($fixture:expr; $($name:ident,)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                if let Some(fixture) = $fixture {
                    $crate::testing::$name(fixture).await;
                }
            }
        )*
    };
}
