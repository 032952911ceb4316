//! A former version's lock file, and whoever has it locked.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use soloist_elector::LeaseStore;
use soloist_elector::testing::{Fixture, in_time};

use crate::common::File;
use crate::common::election::name;
use crate::{chown, fingerprint, refusal};

#[tokio::test]
async fn a_lock_file_of_somebody_else_is_refused_and_left_as_it_is() {
    let fixture = File::new();
    let lock = lock(&fixture);
    fs::write(&lock, "12345\n").unwrap();
    let error = refusal(fixture.store().read().await.unwrap_err());
    assert!(error.contains("is not a lock file of soloist"), "{error}");
    assert_eq!(fs::read_to_string(&lock).unwrap(), "12345\n");
    fs::remove_file(&lock).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &lock).unwrap();
    let error = refusal(fixture.store().read().await.unwrap_err());
    assert!(error.contains("symbolic link"), "{error}");
}

#[tokio::test]
async fn a_file_of_another_user_in_a_folder_for_all_is_refused() {
    let fixture = File::new();
    let lock = lock(&fixture);
    fs::write(&lock, "").unwrap();
    if !chown(&lock, 12_345) {
        return;
    }
    let error = refusal(fixture.store().read().await.unwrap_err());
    assert!(error.contains("belongs to the user 12345"), "{error}");
}

/// As a former version left it: a record at version 1234567890123.
fn former() -> File {
    let fixture = File::new();
    let record =
        "{\n  \"format\": \"soloist-lease\",\n  \"formatVersion\": 1,\n  \"holder\": \"old\"\n}\n";
    fs::write(fixture.path(), record).unwrap();
    let fingerprint = fingerprint(record);
    let counter = format!(
        "soloist lease counter, do not edit\nversion {VERSION:020}\nrecord {fingerprint:016x}\n"
    );
    fs::write(lock(&fixture), counter).unwrap();
    fs::write(fixture.0.path().join(".lease.soloist-tmp"), "half").unwrap();
    fixture
}

const VERSION: u64 = 1_234_567_890_123;

fn lock(fixture: &File) -> PathBuf {
    fixture.0.path().join("lease.lock")
}

#[tokio::test]
async fn a_former_versions_lease_goes_on_at_its_version_and_no_former_version_comes_back() {
    let fixture = former();
    let (store, other) = (fixture.store(), fixture.store());
    let (found, same) = tokio::join!(store.read(), other.read());
    let found = found.unwrap();
    assert_eq!(found, same.unwrap());
    assert_eq!(found.version.get(), VERSION);
    assert_eq!(found.record.unwrap().holder, Some(name("old")));
    let names: Vec<_> = fs::read_dir(fixture.0.path()).unwrap().collect();
    assert_eq!(names.len(), 2, "{names:?}");
    // As a former version opens it.
    let opened = fs::File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(lock(&fixture));
    assert_eq!(opened.unwrap_err().kind(), ErrorKind::IsADirectory);
}

#[tokio::test]
async fn an_edit_that_a_former_version_had_not_seen_is_counted() {
    let fixture = former();
    fixture.set_holder(Some("operator")).await;
    let found = fixture.store().read().await.unwrap();
    assert_eq!(found.version.get(), VERSION + 1);
}

#[tokio::test]
async fn whoever_holds_the_lock_keeps_others_waiting_but_not_their_threads() {
    let fixture = former();
    let store = fixture.store();
    let held = fs::File::open(lock(&fixture)).unwrap();
    flock(&held, FlockOperation::LockExclusive).unwrap();
    let wait = tokio::time::timeout(Duration::from_millis(50), store.read()).await;
    assert!(wait.is_err());
    flock(&held, FlockOperation::Unlock).unwrap();
    in_time(store.read()).await.unwrap();
}

/// It was in the middle of a write when the file was replaced.
#[tokio::test]
async fn a_former_version_that_waits_for_the_lock_finds_it_gone() {
    let fixture = former();
    let waiting = fs::File::open(lock(&fixture)).unwrap();
    fixture.store().read().await.unwrap();
    flock(&waiting, FlockOperation::NonBlockingLockExclusive).unwrap();
    // It looks then whether that is still the lock file.
    assert!(fs::metadata(lock(&fixture)).unwrap().is_dir());
}
