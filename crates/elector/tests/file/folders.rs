//! In which folders a lease is safe from other users.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::io::Errno;
use soloist_elector::LeaseStore;
use soloist_elector::file::FileStore;
use soloist_elector::testing::Fixture;

use crate::common::File;
use crate::helper::{Helper, Task, as_user};
use crate::skipped::skipped;
use crate::{chown, create, refusal};

#[test]
fn a_path_that_cannot_be_a_lease_is_refused_when_it_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let error = refusal(FileStore::open(folder.path()).unwrap_err());
    assert!(error.contains("path of a file"), "{error}");
    fs::write(folder.path().join("file"), "").unwrap();
    let error = refusal(FileStore::open(folder.path().join("file/lease")).unwrap_err());
    assert!(error.contains("is not a folder"), "{error}");
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
        skipped("only root may give files away");
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

/// As `setfacl -m u:12345:rwx,g::r-x` writes it.
fn let_write(user: u32, folder: &Path) -> Result<(), Errno> {
    const NOBODY: u32 = u32::MAX;
    let mut list = 2_u32.to_le_bytes().to_vec();
    // The owner, the user, the owner's group, the most that those named get, all others.
    for (kind, rights, id) in [
        (0x01_u16, 7_u16, NOBODY),
        (0x02, 7, user),
        (0x04, 5, NOBODY),
        (0x10, 7, NOBODY),
        (0x20, 0, NOBODY),
    ] {
        list.extend(kind.to_le_bytes());
        list.extend(rights.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(folder, "system.posix_acl_access", &list, flags)
}

#[test]
fn a_folder_with_an_access_list_that_lets_others_write_is_refused_also_above() {
    let fixture = File::new();
    let folder = fixture.0.path();
    FileStore::open(folder.join("below/lease")).unwrap();
    if let_write(12_345, folder) == Err(Errno::OPNOTSUPP) {
        return skipped("this file system has no access control lists");
    }
    // Its own group is trusted: only the list makes the difference.
    for lease in ["lease", "below/lease"] {
        let error = refusal(FileStore::open(folder.join(lease)).unwrap_err());
        assert!(error.contains("has an access control list"), "{error}");
    }
    let mode = fs::Permissions::from_mode(0o750);
    fs::set_permissions(folder, mode).unwrap();
    FileStore::open(folder.join("lease")).unwrap();
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
async fn a_missing_permission_is_refused_with_advice() {
    const USER: u32 = 64_124;
    let fixture = File::new();
    let is_root = rustix::process::geteuid().is_root();
    fs::set_permissions(fixture.0.path(), fs::Permissions::from_mode(0o500)).unwrap();
    let error = match is_root {
        false => refusal(fixture.store().read().await.unwrap_err()),
        // Root may write everywhere.
        true => {
            assert!(chown(fixture.0.path(), USER));
            let mut reader = Helper::start_by(as_user(USER), &fixture, Task::Read);
            reader.outcome().unwrap()
        }
    };
    assert!(error.contains("must be able to write"), "{error}");
}
