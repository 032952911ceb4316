//! What is special about a lease in a file.
#![allow(clippy::unwrap_used, reason = "a failing test says where")]

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::File;
use common::election::{lead, name};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Resource, Rlimit, setrlimit};
use serde_json::json;
use soloist_elector::core::election::{Base, Claim, Purpose};
use soloist_elector::core::timings::Timings;
use soloist_elector::file::{FileStore, ProcessRef};
use soloist_elector::testing::{Fixture, held_by, in_time, released};
use soloist_elector::{Elector, LeaseStore, StoreError, clock};

fn refusal(error: StoreError) -> String {
    match error {
        StoreError::Refused(refusal) => refusal.to_string(),
        other => panic!("not refused: {other}"),
    }
}

async fn create(store: &FileStore) -> soloist_elector::core::ids::Version {
    store
        .write(Base::Absent, &held_by("a", 1, 1), Purpose::Acquire)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_file_of_somebody_else_is_refused_and_left_as_it_is() {
    for content in ["", "hello", "{\"a\": 1}", "\u{0}\u{1}"] {
        let fixture = File::new();
        fs::write(fixture.path(), content).unwrap();
        let store = fixture.store();
        let error = refusal(store.read().await.unwrap_err());
        assert!(error.contains("It was left as it is"), "{error}");
        let write = store
            .write(Base::Absent, &held_by("a", 1, 1), Purpose::Acquire)
            .await;
        refusal(write.unwrap_err());
        assert_eq!(fs::read_to_string(fixture.path()).unwrap(), content);
    }
}

#[tokio::test]
async fn a_lock_file_of_somebody_else_is_refused_and_left_as_it_is() {
    let fixture = File::new();
    let lock = fixture.0.path().join("lease.lock");
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
async fn a_damaged_lease_can_be_moved_away_and_tokens_keep_growing() {
    let fixture = File::new();
    let store = fixture.store();
    let first = create(&store).await;
    let whole = fs::read_to_string(fixture.path()).unwrap();
    fixture.put(&whole[..whole.len() / 2]);
    let error = refusal(store.read().await.unwrap_err());
    assert!(error.contains("move it away"), "{error}");
    fs::rename(fixture.path(), fixture.0.path().join("aside")).unwrap();
    assert!(create(&store).await > first);
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
    assert_eq!(mode(&folder.join("lease.lock")), 0o600);
    let names: Vec<_> = fs::read_dir(&folder).unwrap().collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

#[tokio::test]
async fn what_a_crash_leaves_behind_does_no_harm() {
    let fixture = File::new();
    let store = fixture.store();
    let temporary = fixture.0.path().join(".lease.soloist-tmp");
    fs::write(&temporary, "half a lea").unwrap();
    assert_eq!(store.read().await.unwrap().record, None);
    let first = create(&store).await;
    assert!(!temporary.exists());
    // Died after the rename, before the count: whoever looks next counts it.
    let record = fs::read_to_string(fixture.path()).unwrap();
    fixture.put(&record.replace("\"a\"", "\"b\""));
    let found = fixture.store().read().await.unwrap();
    assert_eq!(found.version.get(), first.get() + 1);
    assert_eq!(found.record.unwrap().holder, Some(name("b")));
}

#[tokio::test]
async fn tokens_grow_even_when_every_file_is_deleted() {
    let fixture = File::new();
    let first = create(&fixture.store()).await;
    for entry in fs::read_dir(fixture.0.path()).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    // The counter begins with the wall clock's milliseconds.
    clock::sleep(Duration::from_millis(3)).await.unwrap();
    assert!(create(&fixture.store()).await > first);
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
    let base = Base::Version(store.read().await.unwrap().version);
    let renewed = store.write(base, &held_by("a", 1, 2), Purpose::Renew).await;
    let after = fixture.json();
    assert_eq!(after["note"], edited["note"]);
    assert_eq!(after["acquired"], "then");
    assert_ne!(after["renewed"], "then");
    let base = Base::Version(renewed.unwrap());
    let release = released(held_by("a", 1, 3));
    store.write(base, &release, Purpose::Release).await.unwrap();
    assert_ne!(fixture.json()["acquired"], "then");
    assert_eq!(fixture.json()["holder"], json!(null));
    assert_eq!(fixture.json()["processes"], json!(null));
}

#[tokio::test]
async fn whoever_holds_the_lock_keeps_others_waiting_but_not_their_threads() {
    let fixture = File::new();
    let store = fixture.store();
    store.read().await.unwrap();
    let lock = fs::File::open(fixture.0.path().join("lease.lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let wait = tokio::time::timeout(Duration::from_millis(50), store.read()).await;
    assert!(wait.is_err());
    flock(&lock, FlockOperation::Unlock).unwrap();
    in_time(store.read()).await.unwrap();
}

#[tokio::test]
async fn a_deleted_lock_file_does_not_let_two_writers_in() {
    let fixture = File::new();
    let store = fixture.store();
    let base = Base::Version(create(&store).await);
    let lock = fixture.0.path().join("lease.lock");
    let held = fs::File::open(&lock).unwrap();
    flock(&held, FlockOperation::LockExclusive).unwrap();
    let record = held_by("a", 1, 2);
    let mut waiting = Box::pin(store.write(base, &record, Purpose::Renew));
    assert!(
        tokio::time::timeout(Duration::from_millis(20), &mut waiting)
            .await
            .is_err()
    );
    fs::remove_file(&lock).unwrap();
    fixture.store().read().await.unwrap();
    drop(held);
    // It locks the new lock file, not the one that it had opened, so it sees that versions began anew.
    let outcome = in_time(waiting).await;
    assert!(
        matches!(outcome, Err(StoreError::LostRace(_))),
        "{outcome:?}"
    );
}

#[test]
fn a_path_that_cannot_be_a_lease_is_refused_when_it_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let error = refusal(FileStore::open(folder.path()).unwrap_err());
    assert!(error.contains("path of a file"), "{error}");
    fs::write(folder.path().join("file"), "").unwrap();
    let error = refusal(FileStore::open(folder.path().join("file/lease")).unwrap_err());
    assert!(error.contains("is not a folder"), "{error}");
}

fn chown(path: &Path, user: u32) -> bool {
    let given = std::os::unix::fs::lchown(path, Some(user), Some(user));
    if given.is_err() {
        eprintln!("skipped: only root may give files away");
    }
    given.is_ok()
}

#[test]
fn a_folder_that_another_user_made_is_refused() {
    let fixture = File::new();
    if !chown(fixture.0.path(), 12_345) {
        return;
    }
    let error = refusal(FileStore::open(fixture.path()).unwrap_err());
    assert!(error.contains("belongs to the user 12345"), "{error}");
}

#[tokio::test]
async fn a_folder_that_is_exchanged_for_another_users_is_refused_from_then_on() {
    let fixture = File::new();
    let folder = fixture.0.path().join("folder");
    let store = FileStore::open(folder.join("lease")).unwrap();
    create(&store).await;
    let theirs = fixture.0.path().join("theirs");
    fs::create_dir(&theirs).unwrap();
    if !chown(&theirs, 12_345) {
        return;
    }
    fs::rename(&folder, fixture.0.path().join("ours")).unwrap();
    fs::rename(&theirs, &folder).unwrap();
    refusal(store.read().await.unwrap_err());
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
}

#[test]
fn a_folder_that_is_a_link_is_refused_unless_root_made_it() {
    let fixture = File::new();
    let link = fixture.0.path().join("link");
    let real = fixture.0.path().join("real");
    fs::create_dir(&real).unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    if rustix::process::geteuid().is_root() {
        FileStore::open(link.join("lease")).unwrap();
        assert!(chown(&link, 12_345));
    }
    let error = refusal(FileStore::open(link.join("lease")).unwrap_err());
    assert!(error.contains("is a symbolic link"), "{error}");
}

#[test]
fn a_folder_that_everybody_may_write_to_is_refused_unless_it_is_sticky() {
    let fixture = File::new();
    let mode = |mode| fs::set_permissions(fixture.0.path(), fs::Permissions::from_mode(mode));
    mode(0o777).unwrap();
    let error = refusal(FileStore::open(fixture.path()).unwrap_err());
    assert!(error.contains("everybody may write"), "{error}");
    mode(0o1777).unwrap();
    FileStore::open(fixture.path()).unwrap();
}

#[test]
fn a_folder_that_a_group_of_others_may_write_to_is_refused_unless_it_is_sticky() {
    let fixture = File::new();
    if std::os::unix::fs::chown(fixture.0.path(), None, Some(12_345)).is_err() {
        eprintln!("skipped: only root may give files away");
        return;
    }
    let mode = |mode| fs::set_permissions(fixture.0.path(), fs::Permissions::from_mode(mode));
    mode(0o770).unwrap();
    let error = refusal(FileStore::open(fixture.path()).unwrap_err());
    let folder = fixture.0.path().display();
    for part in [
        format!("{folder} (user 0, group 12345, mode 0770)"),
        format!("chmod g-w {folder}"),
    ] {
        assert!(error.contains(&part), "{part} in {error}");
    }
    for trusted in [0o750, 0o1770] {
        mode(trusted).unwrap();
        FileStore::open(fixture.path()).unwrap();
    }
}

#[test]
fn a_folder_below_another_users_folder_is_refused_and_none_is_made_there() {
    let fixture = File::new();
    let theirs = fixture.0.path().join("theirs");
    let ours = theirs.join("ours");
    fs::create_dir_all(&ours).unwrap();
    if !chown(&theirs, 12_345) {
        return;
    }
    for folder in [&ours, &theirs.join("new/deep")] {
        let error = refusal(FileStore::open(folder.join("lease")).unwrap_err());
        let named = format!("{} (user 12345, group 12345, mode 0755)", theirs.display());
        assert!(error.contains(&named), "{error}");
    }
    assert!(!theirs.join("new").exists());
}

#[test]
fn a_folder_below_one_that_everybody_may_write_to_is_refused_unless_that_is_sticky() {
    let fixture = File::new();
    let lease = fixture.0.path().join("below/lease");
    let mode = |mode| fs::set_permissions(fixture.0.path(), fs::Permissions::from_mode(mode));
    mode(0o777).unwrap();
    let error = refusal(FileStore::open(&lease).unwrap_err());
    assert!(error.contains("everybody may write"), "{error}");
    mode(0o1777).unwrap();
    FileStore::open(&lease).unwrap();
}

#[test]
fn a_way_by_another_users_link_is_refused() {
    let fixture = File::new();
    let link = fixture.0.path().join("link");
    fs::create_dir_all(fixture.0.path().join("real/folder")).unwrap();
    std::os::unix::fs::symlink("real", &link).unwrap();
    let lease = link.join("folder/lease");
    FileStore::open(&lease).unwrap();
    if !chown(&link, 12_345) {
        return;
    }
    let error = refusal(FileStore::open(&lease).unwrap_err());
    assert!(error.contains("belongs to the user 12345"), "{error}");
}

#[tokio::test]
async fn whoever_deletes_the_folder_deletes_the_lease() {
    let fixture = File::new();
    let folder = fixture.0.path().join("folder");
    let store = FileStore::open(folder.join("lease")).unwrap();
    let version = create(&store).await;
    fs::remove_dir_all(&folder).unwrap();
    let found = store.read().await.unwrap();
    assert!(found.record.is_none() && found.version > version);
    let record = held_by("a", 1, 2);
    let renewal = store.write(Base::Version(version), &record, Purpose::Renew);
    let renewal = renewal.await;
    assert!(
        matches!(renewal, Err(StoreError::LostRace(_))),
        "{renewal:?}"
    );
    assert!(create(&store).await > found.version);
}

#[tokio::test]
async fn a_deleted_folder_is_a_deleted_lease_also_where_it_cannot_be_made_again() {
    let Some(mount) = Mount::tmpfs("size=64k") else {
        return;
    };
    let folder = mount.0.path().join("folder");
    let store = FileStore::open(folder.join("lease")).unwrap();
    let version = create(&store).await;
    fs::remove_dir_all(&folder).unwrap();
    mount.make_read_only();
    let found = store.read().await.unwrap();
    assert!(found.record.is_none() && found.version > version);
}

/// As a user of its own: the limit counts all processes of a user.
#[tokio::test]
async fn a_lease_is_written_though_no_thread_can_be_made_any_more() {
    const USER: u32 = 64_123;
    let fixture = File::new();
    if !chown(fixture.0.path(), USER) {
        return;
    }
    let mut other_user = Command::new("setpriv");
    other_user
        .arg(format!("--reuid={USER}"))
        .arg(format!("--regid={USER}"))
        .arg("--clear-groups")
        .arg(std::env::current_exe().unwrap());
    let no_threads = [("ELECTOR_TEST_NO_THREADS", "yes".to_owned())];
    Helper::start_as(other_user, &fixture, "wrote", &no_threads);
    assert_eq!(fixture.json()["holder"], "a");
}

#[tokio::test]
async fn a_file_of_another_user_in_a_folder_for_all_is_refused() {
    let fixture = File::new();
    let lock = fixture.0.path().join("lease.lock");
    fs::write(&lock, "").unwrap();
    if !chown(&lock, 12_345) {
        return;
    }
    let error = refusal(fixture.store().read().await.unwrap_err());
    assert!(error.contains("belongs to the user 12345"), "{error}");
}

#[test]
fn a_file_system_that_is_not_known_to_be_of_one_machine_is_refused() {
    for (path, kind) in [
        ("/proc/self/lease", "procfs"),
        ("/sys/kernel/lease", "sysfs"),
    ] {
        let error = refusal(FileStore::open(path).unwrap_err());
        assert!(error.contains(kind), "{error}");
        assert!(error.contains("XFS, Btrfs"), "{error}");
    }
}

#[tokio::test]
async fn a_guard_that_is_named_during_a_renewal_stays_named() {
    let fixture = File::new();
    let store = fixture.store();
    let mut version = create(&store).await;
    let mut guard = Helper(Command::new("sleep").arg("600").spawn().unwrap());
    for write in 2..40 {
        store
            .set_processes(vec![ProcessRef::this().unwrap()])
            .await
            .unwrap();
        let lock = fs::File::open(fixture.0.path().join("lease.lock")).unwrap();
        flock(&lock, FlockOperation::LockExclusive).unwrap();
        let record = held_by("a", 1, write);
        let renewal = store.write(Base::Version(version), &record, Purpose::Renew);
        let members = vec![
            ProcessRef::this().unwrap(),
            ProcessRef::of(guard.0.id()).unwrap(),
        ];
        // Both wait for the lock, the renewal for longer.
        let naming = async {
            clock::sleep(Duration::from_millis(5)).await.unwrap();
            let naming = store.set_processes(members);
            let letting_go = async {
                clock::sleep(Duration::from_millis(5)).await.unwrap();
                flock(&lock, FlockOperation::Unlock).unwrap();
            };
            tokio::join!(naming, letting_go).0
        };
        let (renewed, named) = tokio::join!(renewal, naming);
        version = renewed.unwrap();
        named.unwrap();
        let named = fixture.json()["processes"]["members"].clone();
        assert_eq!(named.as_array().unwrap().len(), 2, "after write {write}");
    }
    guard.kill();
}

/// A process's start is shown as the reader's time namespace counts it.
#[tokio::test]
async fn a_living_holder_in_another_time_namespace_is_not_gone() {
    let fixture = File::new();
    let mut elsewhere = Command::new("unshare");
    elsewhere.args(["--time", "--boottime", "100000", "--"]);
    let possible = Command::new("unshare")
        .args(["--time", "--boottime", "100000", "--", "true"])
        .stderr(Stdio::null())
        .status();
    if !possible.is_ok_and(|status| status.success()) {
        eprintln!("skipped: this user may make no time namespace");
        return;
    }
    elsewhere.arg(std::env::current_exe().unwrap());
    let mut holder = Helper::start_as(elsewhere, &fixture, "leading", &[]);
    let found = fixture.store().read().await.unwrap();
    assert!(found.record.is_some() && !found.holder_gone);
    holder.kill();
}

/// A small file system of its own; `None`, said aloud, where this user may not mount one.
struct Mount(tempfile::TempDir);

impl Mount {
    fn tmpfs(options: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(folder.path())
            .stderr(Stdio::null())
            .status();
        if mounted.is_ok_and(|status| status.success()) {
            return Some(Self(folder));
        }
        eprintln!("skipped: this user may not mount a file system");
        None
    }

    fn make_read_only(&self) {
        let status = Command::new("mount")
            .args(["-o", "remount,ro"])
            .arg(self.0.path())
            .status();
        assert!(status.unwrap().success());
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[tokio::test]
async fn a_full_disk_is_told_and_leaves_the_old_lease_whole() {
    let Some(mount) = Mount::tmpfs("size=64k") else {
        return;
    };
    let store = FileStore::open(mount.0.path().join("lease")).unwrap();
    let base = create(&store).await;
    let mut filler = fs::File::create(mount.0.path().join("filler")).unwrap();
    while filler.write_all(&[0; 1024]).is_ok() {}
    let record = held_by("a", 1, 2);
    let full = store
        .write(Base::Version(base), &record, Purpose::Renew)
        .await;
    assert!(
        matches!(&full, Err(StoreError::Unavailable(text)) if text.contains("free some space")),
        "{full:?}"
    );
    let found = store.read().await.unwrap();
    assert_eq!(
        (found.version, found.record),
        (base, Some(held_by("a", 1, 1)))
    );
    filler.set_len(0).unwrap();
    store
        .write(Base::Version(base), &record, Purpose::Renew)
        .await
        .unwrap();
}

#[tokio::test]
async fn a_read_only_folder_is_refused_with_advice() {
    let Some(mount) = Mount::tmpfs("size=64k") else {
        return;
    };
    mount.make_read_only();
    let store = FileStore::open(mount.0.path().join("lease")).unwrap();
    let error = refusal(store.read().await.unwrap_err());
    assert!(error.contains("mounted read-only"), "{error}");
}

#[tokio::test]
async fn a_missing_permission_is_refused_with_advice() {
    if rustix::process::geteuid().is_root() {
        eprintln!("skipped: root may write everywhere");
        return;
    }
    let fixture = File::new();
    fs::set_permissions(fixture.0.path(), fs::Permissions::from_mode(0o500)).unwrap();
    let error = refusal(fixture.store().read().await.unwrap_err());
    assert!(error.contains("must be able to write"), "{error}");
}

/// Not a test: the other process of the tests below.
#[tokio::test]
async fn helper_process() {
    let Ok(path) = std::env::var("ELECTOR_TEST_LEASE") else {
        return;
    };
    let store = FileStore::open(path).unwrap();
    if std::env::var_os("ELECTOR_TEST_NO_THREADS").is_some() {
        let most = Some(1);
        let none = Rlimit {
            current: most,
            maximum: most,
        };
        setrlimit(Resource::Nproc, none).unwrap();
        let another = std::thread::Builder::new().spawn(|| {});
        assert!(another.is_err(), "there must be no room for a thread");
        create(&store).await;
        println!("wrote");
        return;
    }
    if std::env::var_os("ELECTOR_TEST_WRITE").is_some() {
        let mut version = store.read().await.unwrap().version;
        for write in 0.. {
            let base = Base::Version(version);
            version = store
                .write(base, &held_by("a", 1, write), Purpose::Renew)
                .await
                .unwrap();
            println!("wrote {version}");
        }
    }
    let elector = Elector::builder(store.clone())
        .identity(name("helper"))
        .timings(slow())
        .spawn()
        .unwrap();
    let _term = lead(&elector).await;
    if let Ok(guard) = std::env::var("ELECTOR_TEST_GUARD") {
        let guard = ProcessRef::of(guard.parse().unwrap()).unwrap();
        let processes = vec![ProcessRef::this().unwrap(), guard];
        store.set_processes(processes).await.unwrap();
    }
    println!("leading");
    std::future::pending::<()>().await;
}

/// So long that nobody waits for it to run out.
fn slow() -> Timings {
    let s = Duration::from_secs;
    Timings::try_new(s(600), s(450), s(5)).unwrap()
}

struct Helper(Child);

impl Helper {
    /// A second process on the same lease, once it has said the word.
    fn start(fixture: &File, word: &str, extra: &[(&str, String)]) -> Self {
        let itself = Command::new(std::env::current_exe().unwrap());
        Self::start_as(itself, fixture, word, extra)
    }

    fn start_as(
        mut command: Command,
        fixture: &File,
        word: &str,
        extra: &[(&str, String)],
    ) -> Self {
        let child = command
            .args(["--exact", "helper_process", "--nocapture"])
            .env("ELECTOR_TEST_LEASE", fixture.path())
            .envs(extra.iter().map(|(name, value)| (name, value)))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut helper = Self(child);
        let lines = BufReader::new(helper.0.stdout.take().unwrap()).lines();
        for line in lines.map_while(Result::ok) {
            if line.contains(word) {
                return helper;
            }
        }
        panic!("the helper ended early");
    }

    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn standby(fixture: &File) -> Elector {
    Elector::builder(fixture.store())
        .identity(name("standby"))
        .timings(slow())
        .spawn()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_was_killed_is_succeeded_at_once() {
    let fixture = File::new();
    let mut holder = Helper::start(&fixture, "leading", &[]);
    let standby = standby(&fixture);
    let mut leadership = standby.leadership();
    let next = tokio::spawn(async move { (lead(&standby).await, standby) });
    in_time(leadership.wait_for(|l| l.leader == Some(name("helper"))))
        .await
        .unwrap();
    assert!(!next.is_finished());
    let killed = clock::now();
    holder.kill();
    let (term, _standby) = in_time(next).await.unwrap();
    let took = clock::now().since(killed);
    assert_eq!(term.claim(), Claim::HolderGone);
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_died_before_we_looked_is_succeeded_at_once() {
    let fixture = File::new();
    Helper::start(&fixture, "leading", &[]).kill();
    let standby = standby(&fixture);
    assert_eq!(lead(&standby).await.claim(), Claim::HolderGone);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_whose_guard_lives_is_not_gone() {
    let fixture = File::new();
    let mut guard = Helper(Command::new("sleep").arg("600").spawn().unwrap());
    let guard_pid = guard.0.id().to_string();
    let mut holder = Helper::start(&fixture, "leading", &[("ELECTOR_TEST_GUARD", guard_pid)]);
    let version = fixture.store().read().await.unwrap().version;
    let standby = standby(&fixture);
    let mut leadership = standby.leadership();
    let next = tokio::spawn(async move { (lead(&standby).await, standby) });
    in_time(leadership.wait_for(|l| l.leader == Some(name("helper"))))
        .await
        .unwrap();
    holder.kill();
    let found = fixture.store().read().await.unwrap();
    assert!(!found.holder_gone);
    assert_eq!(found.version, version, "naming processes is no change");
    assert!(!next.is_finished());
    guard.kill();
    let (term, _standby) = in_time(next).await.unwrap();
    assert_eq!(term.claim(), Claim::HolderGone);
}

#[tokio::test]
async fn a_writer_killed_at_any_moment_leaves_a_whole_lease_and_a_growing_version() {
    let fixture = File::new();
    let store = fixture.store();
    let mut last = create(&store).await;
    for _ in 0..8 {
        let write = [("ELECTOR_TEST_WRITE", "yes".to_owned())];
        Helper::start(&fixture, "wrote", &write).kill();
        let found = in_time(store.read()).await.unwrap();
        assert!(found.version > last);
        assert!(found.record.is_some());
        last = found.version;
    }
    let written = store
        .write(Base::Version(last), &held_by("b", 2, 1), Purpose::Acquire)
        .await;
    assert!(written.unwrap() > last);
}
