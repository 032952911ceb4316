//! What is in the files, and who else has a hand in them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use serde_json::json;
use soloist_elector::core::election::Purpose;
use soloist_elector::file::FileStore;
use soloist_elector::testing::{Fixture, absent, held_by, in_time, released};
use soloist_elector::{LeaseStore, StoreError, clock};

use crate::common::File;
use crate::common::election::name;
use crate::{create, fingerprint, refusal};

#[tokio::test]
async fn a_file_of_somebody_else_is_refused_and_left_as_it_is() {
    for content in ["", "hello", "{\"a\": 1}", "\u{0}\u{1}"] {
        let fixture = File::new();
        fs::write(fixture.path(), content).unwrap();
        let store = fixture.store();
        let error = refusal(store.read().await.unwrap_err());
        assert!(error.contains("It was left as it is"), "{error}");
        let write = store
            .write(&absent(), &held_by("a", 1, 1), Purpose::Acquire)
            .await;
        refusal(write.unwrap_err());
        assert_eq!(fs::read_to_string(fixture.path()).unwrap(), content);
    }
}

#[tokio::test]
async fn a_damaged_lease_can_be_moved_away_and_tokens_keep_growing() {
    let fixture = File::new();
    let store = fixture.store();
    let first = create(&store).await;
    let whole = fs::read_to_string(fixture.path()).unwrap();
    fixture.put(&whole[..whole.len() / 2]);
    let error = refusal(store.read().await.unwrap_err());
    assert!(error.contains("move it away"), "{error}");
    fs::rename(fixture.path(), fixture.0.path().join("aside")).unwrap();
    assert!(create(&store).await.version > first.version);
}

#[tokio::test]
async fn files_are_private_and_the_folder_is_made_private() {
    let fixture = File::new();
    let folder = fixture.0.path().join("new/deep");
    let store = FileStore::open(folder.join("lease")).unwrap();
    create(&store).await;
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    assert_eq!(mode(&folder.join("lease")), 0o600);
    assert_eq!(mode(&folder.join("lease.lock")), 0o700);
    let names: Vec<_> = fs::read_dir(&folder).unwrap().collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

/// As a writer that is stopped or dies when it has moved the head: its draft is not the record yet.
fn move_head(fixture: &File, holder: &str) {
    let versions = fixture.0.path().join("lease.lock");
    let head = only_name(&versions);
    let parts: Vec<_> = head.split('.').collect();
    let [serial, version] = [1, 2].map(|part| parts[part].parse::<u64>().unwrap() + 1);
    let record = fs::read_to_string(fixture.path()).unwrap();
    let record = record.replace("\"a\"", &format!("\"{holder}\""));
    let fingerprint = fingerprint(&record);
    fs::write(versions.join(format!("draft.{serial}.{NONCE}")), record).unwrap();
    let moved = format!("head.{serial}.{version}.{fingerprint:016x}.{NONCE}");
    fs::rename(versions.join(head), versions.join(moved)).unwrap();
}

const NONCE: &str = "00000000000000ab";

#[tokio::test]
async fn what_a_crash_leaves_behind_does_no_harm() {
    let fixture = File::new();
    let store = fixture.store();
    assert_eq!(store.read().await.unwrap().record, None);
    // Died before it moved the head.
    let draft = fixture.0.path().join("lease.lock/draft.1.00000000000000cd");
    fs::write(&draft, "half a lea").unwrap();
    let first = create(&store).await;
    let found = store.read().await.unwrap();
    let expected = (first.version, Some(held_by("a", 1, 1)));
    assert_eq!((found.version, found.record), expected);
    assert!(!draft.exists());
    // Died after it had moved the head: whoever looks next makes its draft the record.
    move_head(&fixture, "b");
    let found = fixture.store().read().await.unwrap();
    assert_eq!(found.record.unwrap().holder, Some(name("b")));
    assert_eq!(found.version.get(), first.version.get() + 1);
    only_name(&fixture.0.path().join("lease.lock"));
}

#[tokio::test]
async fn a_watch_shows_a_write_whose_writer_was_stopped_before_the_record_was_replaced() {
    let fixture = File::new();
    let store = fixture.store();
    let first = create(&store).await;
    let mut changes = Box::pin(store.watch(&first));
    // It has looked, and waits.
    assert!(changes.next().now_or_never().is_none());
    let wait = tokio::time::timeout(Duration::from_millis(20), changes.next());
    assert!(wait.await.is_err());
    move_head(&fixture, "b");
    let seen = in_time(changes.next()).await.unwrap().unwrap();
    assert_eq!(seen.record.unwrap().holder, Some(name("b")));
}

fn only_name(folder: &Path) -> String {
    let names: Vec<_> = fs::read_dir(folder).unwrap().collect();
    let [Ok(name)] = &names[..] else {
        panic!("{names:?}");
    };
    name.file_name().into_string().unwrap()
}

#[tokio::test]
async fn a_folder_without_a_head_is_refused_unless_it_is_empty() {
    let fixture = File::new();
    let store = fixture.store();
    let first = create(&store).await;
    let versions = fixture.0.path().join("lease.lock");
    let head = versions.join(only_name(&versions));
    fs::rename(&head, versions.join("somebody's")).unwrap();
    let error = refusal(in_time(store.read()).await.unwrap_err());
    assert!(
        error.contains("does not say the lease's version"),
        "{error}"
    );
    fs::remove_file(versions.join("somebody's")).unwrap();
    let found = store.read().await.unwrap();
    assert_eq!(found.record, Some(held_by("a", 1, 1)));
    assert!(found.version > first.version);
}

#[tokio::test]
async fn a_deleted_head_does_not_let_two_writers_in() {
    let fixture = File::new();
    let store = fixture.store();
    let base = create(&store).await;
    fs::remove_dir_all(fixture.0.path().join("lease.lock")).unwrap();
    // The version begins with the wall clock's milliseconds.
    clock::sleep(Duration::from_millis(3)).await.unwrap();
    fixture.store().read().await.unwrap();
    let outcome = store
        .write(&base, &held_by("a", 1, 2), Purpose::Renew)
        .await;
    assert!(
        matches!(outcome, Err(StoreError::LostRace(_))),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn a_head_that_was_copied_back_beside_the_present_one_counts_for_nothing() {
    let fixture = File::new();
    let store = fixture.store();
    let first = create(&store).await;
    let versions = fixture.0.path().join("lease.lock");
    let former = versions.join(only_name(&versions));
    let record = held_by("a", 1, 2);
    let second = store.write(&first, &record, Purpose::Renew);
    let second = second.await.unwrap();
    fs::write(former, "").unwrap();
    let found = store.read().await.unwrap();
    assert_eq!(
        (found.version, found.record),
        (second.version, Some(record))
    );
    only_name(&versions);
}

#[tokio::test]
async fn tokens_grow_even_when_every_file_is_deleted() {
    let fixture = File::new();
    let first = create(&fixture.store()).await;
    fs::remove_file(fixture.path()).unwrap();
    fs::remove_dir_all(fixture.0.path().join("lease.lock")).unwrap();
    // The version begins with the wall clock's milliseconds.
    clock::sleep(Duration::from_millis(3)).await.unwrap();
    assert!(create(&fixture.store()).await.version > first.version);
}

#[tokio::test]
async fn fields_that_are_not_ours_are_kept_and_times_are_for_people() {
    let fixture = File::new();
    let store = fixture.store();
    create(&store).await;
    let mut edited = fixture.json();
    edited["note"] = json!({"by": "an operator"});
    edited["acquired"] = json!("then");
    edited["renewed"] = json!("then");
    fixture.put(&edited.to_string());
    let base = store.read().await.unwrap();
    let renewed = store
        .write(&base, &held_by("a", 1, 2), Purpose::Renew)
        .await;
    let after = fixture.json();
    assert_eq!(after["note"], edited["note"]);
    assert_eq!(after["acquired"], "then");
    assert_ne!(after["renewed"], "then");
    let base = renewed.unwrap();
    let release = released(held_by("a", 1, 3));
    store
        .write(&base, &release, Purpose::Release)
        .await
        .unwrap();
    assert_ne!(fixture.json()["acquired"], "then");
    assert_eq!(fixture.json()["holder"], json!(null));
    assert_eq!(fixture.json()["processes"], json!(null));
}

#[tokio::test]
async fn whoever_deletes_the_folder_deletes_the_lease() {
    let fixture = File::new();
    let folder = fixture.0.path().join("folder");
    let store = FileStore::open(folder.join("lease")).unwrap();
    let created = create(&store).await;
    fs::remove_dir_all(&folder).unwrap();
    let found = store.read().await.unwrap();
    assert!(found.record.is_none() && found.version > created.version);
    let record = held_by("a", 1, 2);
    let renewal = store.write(&created, &record, Purpose::Renew);
    let renewal = renewal.await;
    assert!(
        matches!(renewal, Err(StoreError::LostRace(_))),
        "{renewal:?}"
    );
    assert!(create(&store).await.version > found.version);
}
