//! What goes wrong on a disk, and what to do about it.

use std::io::{self, ErrorKind};
use std::path::Path;

use rustix::io::Errno;

use super::trust::{Rights, described};
use crate::store::StoreError;

/// A failure before anything had an effect.
pub(super) fn before(error: &io::Error, what: &str, path: &Path) -> StoreError {
    let place = path.display();
    let what = format!("cannot {what} {place}: {error}");
    let folder = path.parent().unwrap_or(path).display();
    let is_link = error.raw_os_error() == Some(Errno::LOOP.raw_os_error());
    let advice = match error.kind() {
        _ if is_link => "It is a symbolic link; the lease's files must be plain files".into(),
        ErrorKind::PermissionDenied => format!(
            "This user must be able to write in the folder {folder} and to read and write the lease files in it"
        ),
        ErrorKind::ReadOnlyFilesystem => format!(
            "The file system of {folder} is mounted read-only; choose a folder that can be written to, for example under /run"
        ),
        ErrorKind::NotADirectory => {
            format!("{folder} is not a folder; choose another path for the lease")
        }
        // Said only of folders that were to be made.
        ErrorKind::AlreadyExists => {
            format!("{place} is not a folder; choose another path for the lease")
        }
        ErrorKind::IsADirectory => {
            "Choose the path of a file for the lease, not of a folder".into()
        }
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            return StoreError::Unavailable(format!(
                "{what}; free some space there (the lease itself needs less than a kilobyte)"
            ));
        }
        _ => return StoreError::Unavailable(what),
    };
    StoreError::refused(what, place.to_string(), advice)
}

/// A failure after the record was replaced.
pub(super) fn after(error: &io::Error, record: &Path) -> StoreError {
    StoreError::Unknown(format!(
        "the lease {} was replaced, but that could not be made certain: {error}",
        record.display()
    ))
}

pub(super) fn lock_is_held(lock: &Path) -> StoreError {
    StoreError::Unavailable(format!(
        "a replica of a former version holds the lock on {0} and does not let go; it may be stopped (`fuser {0}` names it)",
        lock.display()
    ))
}

pub(super) fn folder_was_exchanged(record: &Path) -> StoreError {
    StoreError::Unknown(format!(
        "the folder of the lease {} was deleted or exchanged during a write",
        record.display()
    ))
}

pub(super) fn given_up(record: &Path) -> StoreError {
    StoreError::Unavailable(format!(
        "the access to the lease {} was given up before it had an effect",
        record.display()
    ))
}

pub(super) fn no_thread(error: &io::Error) -> StoreError {
    StoreError::Unavailable(format!(
        "no thread can be made for the lease file: {error}; this user, or this container, may have no more processes (`ulimit -u`, pids limit)"
    ))
}

pub(super) fn disk_is_mute(record: &Path) -> StoreError {
    StoreError::Unavailable(format!(
        "the disk of {} does not answer: requests of before still wait for it",
        record.display()
    ))
}

pub(super) fn not_a_file(path: &Path) -> StoreError {
    StoreError::refused(
        format!("{} cannot be a lease file", path.display()),
        path.display().to_string(),
        "Choose the path of a file for the lease, not of a folder",
    )
}

pub(super) fn not_our_record(record: &Path, reason: &str) -> StoreError {
    StoreError::refused(
        format!("the file {} {reason}", record.display()),
        record.display().to_string(),
        "It was left as it is. If it is somebody else's, choose another path for the lease; \
         if it is a damaged lease, move it away: once every replica's lease time has passed, the election goes on without it, \
         and tokens keep growing",
    )
}

pub(super) fn not_our_lock(lock: &Path) -> StoreError {
    StoreError::refused(
        format!("the file {} is not a lock file of soloist", lock.display()),
        lock.display().to_string(),
        "It was left as it is. If it is somebody else's, choose another path for the lease; \
         if it is a damaged lock file, stop every replica, then move it away",
    )
}

pub(super) fn no_head(folder: &Path) -> StoreError {
    StoreError::refused(
        format!(
            "the folder {} does not say the lease's version",
            folder.display()
        ),
        folder.display().to_string(),
        "It was left as it is. If it is somebody else's, choose another path for the lease; \
         if a file in it was deleted, stop every replica, then delete the folder",
    )
}

/// Where a lease can be: file systems that one machine alone has, by the number that `statfs` gives them.
const OF_ONE_MACHINE: [(i64, &str); 13] = [
    (0xef53, "ext2 to ext4"),
    (0x5846_5342, "XFS"),
    (0x9123_683e, "Btrfs"),
    (0x2fc1_2fc1, "ZFS"),
    (0xf2f5_2010, "F2FS"),
    (0xca45_1a4e, "bcachefs"),
    (0x3153_464a, "JFS"),
    (0x5265_4973, "ReiserFS"),
    (0x3434, "NILFS2"),
    (0x2405_1905, "UBIFS"),
    (0x794c_7630, "overlay"),
    (0x0102_1994, "tmpfs"),
    (0x8584_58f6, "ramfs"),
];

/// Others that people meet, by name.
const NOT_OF_ONE_MACHINE: [(i64, &str); 16] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB"),
    (0x00c3_6400, "Ceph"),
    (0x0102_1997, "9p"),
    (0x5346_414f, "AFS"),
    (0x0bd0_0bd0, "Lustre"),
    (0x0116_1970, "GFS2"),
    (0x7461_636f, "OCFS2"),
    (0x6573_5546, "FUSE or virtiofs"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x786f_4256, "VirtualBox shared folders"),
    (0x9fa0, "procfs"),
    (0x6265_6572, "sysfs"),
];

/// Only where it is known to work: on what several machines may share, another machine's processes would look dead.
pub(super) fn check_file_system(folder: &Path, kind: impl TryInto<i64>) -> Result<(), StoreError> {
    // Some of them have the highest bit set, which sign extension would spread.
    let kind = kind.try_into().unwrap_or(0) & 0xffff_ffff;
    let find = |list: &[(i64, &'static str)]| {
        let found = list.iter().find(|(number, _)| *number == kind);
        found.map(|(_, name)| *name)
    };
    if find(&OF_ONE_MACHINE).is_some() {
        return Ok(());
    }
    let name = match find(&NOT_OF_ONE_MACHINE) {
        Some(name) => name.to_owned(),
        None => format!("a file system that is not known here (0x{kind:x})"),
    };
    let known = OF_ONE_MACHINE.map(|(_, name)| name).join(", ");
    Err(StoreError::refused(
        format!("the folder {} is on {name}", folder.display()),
        folder.display().to_string(),
        format!(
            "A lease file works for the processes of one machine only: it relies on its locks, its change notices and its process \
             numbers. Choose a folder on a file system that only this machine has ({known}), for example under /run, or another store"
        ),
    ))
}

const OWN_FOLDER: &str = "Choose a folder of your own, or one below it that does not exist yet: it is made for this user only";

pub(super) fn folder_is_a_link(folder: &Path) -> StoreError {
    StoreError::refused(
        format!("the folder {} is a symbolic link", folder.display()),
        folder.display().to_string(),
        format!("Name the folder that it leads to, if you trust whoever made it. {OWN_FOLDER}"),
    )
}

pub(super) fn folder_of_another_user(folder: &Path, at: &Path, rights: Rights) -> StoreError {
    let what = format!("belongs to the user {}", rights.user);
    let advice = "Whoever owns a folder could exchange the lease in it or below it";
    untrusted(folder, at, rights, &what, advice)
}

pub(super) fn folder_for_everybody(folder: &Path, at: &Path, rights: Rights) -> StoreError {
    let advice = format!(
        "Anybody could exchange the lease. Take that right away (`chmod o-w {0}`), or set the sticky bit as /tmp has it (`chmod +t {0}`)",
        at.display()
    );
    let what = "is one that everybody may write to";
    untrusted(folder, at, rights, what, &advice)
}

pub(super) fn folder_for_a_group(folder: &Path, at: &Path, rights: Rights) -> StoreError {
    let advice = format!(
        "Its members could exchange the lease. Take that right away (`chmod g-w {0}`), or set the sticky bit as /tmp has it (`chmod +t {0}`)",
        at.display()
    );
    let what = format!("is one that the group {} may write to", rights.group);
    untrusted(folder, at, rights, &what, &advice)
}

pub(super) fn folder_with_access_list(folder: &Path, at: &Path, rights: Rights) -> StoreError {
    let advice = format!(
        "Whom it names could exchange the lease. Take the list away (`setfacl -b {0}`), or the right to write (`chmod g-w {0}`)",
        at.display()
    );
    let what = "has an access control list that lets others write to it";
    untrusted(folder, at, rights, what, &advice)
}

/// No other user has anything to do there.
pub(super) fn folder_for_others(folder: &Path, rights: Rights) -> StoreError {
    let advice = format!(
        "They could exchange the lease. Take that right away (`chmod 700 {}`)",
        folder.display()
    );
    let what = "is one that other users may write to";
    untrusted(folder, folder, rights, what, &advice)
}

/// Somebody else could exchange the lease, by way of its folder or of one above it.
fn untrusted(folder: &Path, at: &Path, rights: Rights, what: &str, advice: &str) -> StoreError {
    let which = match folder == at {
        true => "the folder",
        false => "above the lease's folder, the folder",
    };
    StoreError::refused(
        format!("{which} {} {what}", described(at, rights)),
        folder.display().to_string(),
        format!("{advice}. {OWN_FOLDER}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_may_have_room_later_and_a_missing_permission_needs_somebody() {
        let path = Path::new("/run/x/lease");
        let full = before(&ErrorKind::StorageFull.into(), "write the lease", path);
        assert!(matches!(&full, StoreError::Unavailable(text) if text.contains("free some space")));
        let denied = before(&ErrorKind::PermissionDenied.into(), "write the lease", path);
        let StoreError::Refused(refusal) = &denied else {
            panic!("{denied:?}");
        };
        assert!(refusal.advice.contains("/run/x "), "{}", refusal.advice);
    }

    #[test]
    fn only_file_systems_of_one_machine_are_accepted_whatever_the_width_of_their_number() {
        let folder = Path::new("/x");
        let refused = |kind: i64| check_file_system(folder, kind).map_err(|e| e.to_string());
        for (kind, name) in [
            (0x6969, "is on NFS"),
            (0xff53_4d42, "is on CIFS"),
            (-11_317_950, "is on CIFS"),
            (0x4750_4653, "is on GPFS"),
            (0x1983_0326, "is on BeeGFS"),
            (0x786f_4256, "is on VirtualBox shared folders"),
            (0x1234_5678, "not known here (0x12345678)"),
        ] {
            let error = refused(kind).unwrap_err();
            assert!(error.contains(name), "{error}");
        }
        for kind in [0x0102_1994, 0xef53, 0x9123_683e, 0x9123_683e - (1 << 32)] {
            assert_eq!(refused(kind), Ok(()));
        }
    }
}
