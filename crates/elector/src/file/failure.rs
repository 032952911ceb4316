//! What goes wrong on a disk, and what to do about it.

use std::io::{self, ErrorKind};
use std::path::Path;

use rustix::io::Errno;

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
        "another process holds the lock on {0} and does not let go; it may be stopped (`fuser {0}` names it)",
        lock.display()
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

pub(super) fn not_one_machine(folder: &Path, kind: &str) -> StoreError {
    StoreError::refused(
        format!("the folder {} is on {kind}", folder.display()),
        folder.display().to_string(),
        "A lease file works for the processes of one machine only: it relies on its locks, its change \
         notices and its process numbers. Choose a folder on a local disk or tmpfs, for example under /run, \
         or another store",
    )
}

/// File systems that several machines may share, by the number that `statfs` gives them.
pub(super) fn shared_file_system(kind: impl TryInto<i64>) -> Option<&'static str> {
    // Some of them have the highest bit set, which sign extension would spread.
    match kind.try_into().unwrap_or(0) & 0xffff_ffff {
        0x6969 => Some("NFS"),
        0x517b => Some("SMB"),
        0xff53_4d42 => Some("CIFS"),
        0xfe53_4d42 => Some("SMB"),
        0x00c3_6400 => Some("Ceph"),
        0x0102_1997 => Some("9p, a file system that is shared with another machine"),
        0x5346_414f => Some("AFS"),
        0x0bd0_0bd0 => Some("Lustre"),
        0x0116_1970 => Some("GFS2"),
        0x7461_636f => Some("OCFS2"),
        0x6573_5546 => Some("FUSE, which may be shared with another machine"),
        _ => None,
    }
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
    fn network_file_systems_are_known_whatever_the_width_of_their_number() {
        assert_eq!(shared_file_system(0x6969_i64), Some("NFS"));
        assert_eq!(shared_file_system(0xff53_4d42_u64), Some("CIFS"));
        assert_eq!(shared_file_system(-11_317_950_i64), Some("CIFS"));
        assert_eq!(shared_file_system(0x0102_1994_i64), None, "tmpfs");
        assert_eq!(shared_file_system(0xef53_i64), None, "ext4");
    }
}
