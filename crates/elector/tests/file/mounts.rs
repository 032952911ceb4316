//! File systems: which can have a lease, and what they do to it.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use soloist_elector::core::election::Purpose;
use soloist_elector::file::FileStore;
use soloist_elector::testing::held_by;
use soloist_elector::{LeaseStore, StoreError};

use crate::skipped::skipped;
use crate::{create, refusal};

#[test]
fn a_file_system_that_is_not_known_to_be_of_one_machine_is_refused() {
    for (path, kind) in [
        ("/proc/self/lease", "procfs"),
        ("/sys/kernel/lease", "sysfs"),
    ] {
        let folder = Path::new(path).parent().unwrap();
        let error = refusal(FileStore::open(path).unwrap_err());
        assert!(
            error.contains(&format!("the folder {} is on {kind}", folder.display())),
            "{error}"
        );
        assert!(error.contains("XFS, Btrfs"), "{error}");
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
    let full = store.write(&base, &record, Purpose::Renew).await;
    assert!(
        matches!(&full, Err(StoreError::Unavailable(text)) if text.contains("free some space")),
        "{full:?}"
    );
    let found = store.read().await.unwrap();
    assert_eq!(
        (found.version, found.record),
        (base.version, Some(held_by("a", 1, 1)))
    );
    filler.set_len(0).unwrap();
    store.write(&base, &record, Purpose::Renew).await.unwrap();
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
async fn a_deleted_folder_is_a_deleted_lease_also_where_it_cannot_be_made_again() {
    let Some(mount) = Mount::tmpfs("size=64k") else {
        return;
    };
    let folder = mount.0.path().join("folder");
    let store = FileStore::open(folder.join("lease")).unwrap();
    let created = create(&store).await;
    fs::remove_dir_all(&folder).unwrap();
    mount.make_read_only();
    let found = store.read().await.unwrap();
    assert!(found.record.is_none() && found.version > created.version);
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
        skipped("this user may not mount a file system");
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
