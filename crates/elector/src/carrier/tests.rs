use super::*;
use crate::memory::{Faults, MemoryStore};
use crate::testing::in_time;
use soloist_core::election::Base;
use soloist_core::ids::{Identity, Version};
use soloist_core::record::Record;

fn carrier(store: &MemoryStore) -> StoreCarrier {
    StoreCarrier::new(store.clone(), Duration::from_secs(1))
}

fn read(op: u64) -> StoreCommand {
    let op = OpId::new(op);
    StoreCommand::Read { op }
}

fn write(op: u64, base: Base) -> StoreCommand {
    StoreCommand::Write {
        op: OpId::new(op),
        base,
        record: Record {
            holder: Identity::found("a"),
            duration_seconds: Some(15),
            transitions: 0,
            signature: None,
            orders: soloist_core::orders::Orders::NONE,
        },
        purpose: Purpose::Acquire,
    }
}

fn watch(id: u64, after: u64) -> StoreCommand {
    StoreCommand::Watch {
        watch: WatchId::new(id),
        after: Version::new(after),
    }
}

/// Reads the lease first, as an election does.
async fn carrier_of_a_reader(store: &MemoryStore) -> StoreCarrier {
    let mut carrier = carrier(store);
    carrier.carry(read(0));
    assert_eq!(answer(&mut carrier).await.0, 0);
    carrier
}

/// Which request has ended how.
async fn answer(carrier: &mut StoreCarrier) -> (u64, RequestKind, Answer) {
    match in_time(carrier.next()).await {
        Arrival::Answer {
            op, kind, answer, ..
        } => (op.get(), kind, answer),
        other => panic!("no answer: {other:?}"),
    }
}

async fn change(carrier: &mut StoreCarrier) -> (u64, u64) {
    match in_time(carrier.next()).await {
        Arrival::Change { watch, snapshot } => (watch.get(), snapshot.version.get()),
        other => panic!("no change: {other:?}"),
    }
}

#[tokio::test]
async fn an_answer_says_which_request_it_belongs_to() {
    let mut carrier = carrier(&MemoryStore::new());
    carrier.carry(read(1));
    let seen = Answer::Read(Snapshot::new(Version::new(1), None));
    assert_eq!(answer(&mut carrier).await, (1, RequestKind::Read, seen));
    carrier.carry(write(2, Base::Absent));
    let written = Answer::Written(Version::new(2));
    let acquired = (2, RequestKind::Acquire, written);
    assert_eq!(answer(&mut carrier).await, acquired);
    carrier.carry(write(3, Base::Absent));
    let lost = (3, RequestKind::Acquire, Answer::LostRace);
    assert_eq!(answer(&mut carrier).await, lost);
}

#[tokio::test]
async fn a_request_that_is_given_up_is_told_once_and_its_answer_never_comes() {
    let store = MemoryStore::new();
    let mut carrier = carrier(&store);
    store.set_faults(Faults {
        swallow_next_request: true,
        ..Faults::default()
    });
    carrier.carry(read(1));
    carrier.hand_on().await;
    let op = OpId::new(1);
    carrier.carry(StoreCommand::Abandon { op });
    carrier.carry(StoreCommand::Abandon { op });
    carrier.carry(read(2));
    let given_up = in_time(carrier.next()).await;
    let Arrival::Answer {
        error: Some(error),
        answer: Answer::Unknown,
        ..
    } = given_up
    else {
        panic!("{given_up:?}");
    };
    let expected = "no answer: no answer within 1s from the lease in memory";
    assert_eq!(error.to_string(), expected);
    assert_eq!(answer(&mut carrier).await.0, 2);
}

#[tokio::test]
async fn a_new_watch_takes_the_place_of_the_old_one() {
    let store = MemoryStore::new();
    let mut carrier = carrier_of_a_reader(&store).await;
    carrier.carry(watch(1, 1));
    carrier.carry(write(1, Base::Absent));
    assert_eq!(answer(&mut carrier).await.0, 1);
    assert_eq!(change(&mut carrier).await, (1, 2));
    carrier.carry(watch(2, 1));
    assert_eq!(change(&mut carrier).await, (2, 2));
}

#[tokio::test]
async fn a_watch_that_ends_is_told_with_its_reason_and_is_over() {
    let store = MemoryStore::new();
    let mut carrier = carrier_of_a_reader(&store).await;
    carrier.carry(watch(7, 1));
    store.break_watches();
    let ended = in_time(carrier.next()).await;
    let reason = WatchEnded::broken("it was broken on purpose");
    let watch = WatchId::new(7);
    assert_eq!(ended, Arrival::WatchEnded { watch, reason });
    store.delete();
    carrier.carry(read(1));
    assert_eq!(answer(&mut carrier).await.0, 1);
}

#[tokio::test]
async fn an_answer_does_not_wait_behind_a_busy_watch() {
    let store = MemoryStore::new();
    let mut carrier = carrier_of_a_reader(&store).await;
    for _ in 0..1000 {
        store.delete();
    }
    carrier.carry(watch(1, 1));
    assert_eq!(change(&mut carrier).await, (1, 2));
    carrier.carry(read(1));
    assert_eq!(answer(&mut carrier).await.0, 1);
    assert_eq!(change(&mut carrier).await, (1, 3));
}

#[tokio::test]
async fn what_is_handed_on_has_left_before_its_answer_is_asked_for() {
    let store = MemoryStore::new();
    let mut carrier = carrier(&store);
    carrier.hand_on().await;
    carrier.carry(write(1, Base::Absent));
    assert_eq!(store.requests(), (0, 0));
    carrier.hand_on().await;
    assert_eq!(store.current().version, Version::new(2));
    assert_eq!(answer(&mut carrier).await.0, 1);
}

#[tokio::test]
async fn what_was_never_told_can_be_neither_watched_nor_written_over() {
    let mut carrier = carrier(&MemoryStore::new());
    carrier.carry(watch(1, 7));
    let ended = in_time(carrier.next()).await;
    assert!(matches!(ended, Arrival::WatchEnded { .. }), "{ended:?}");
    carrier.carry(write(1, Base::Version(Version::new(7))));
    let lost = (1, RequestKind::Acquire, Answer::LostRace);
    assert_eq!(answer(&mut carrier).await, lost);
}
