//! The files themselves: a record that is replaced as a whole or not at all, by compare-and-swap, without a lock.
//!
//! Beside the record `NAME` is the folder `NAME.lock` with the *head*: an empty file whose name says which version the record has now, and a
//! fingerprint of its content. A write prepares the new content as a *draft* in that folder, moves the head (the
//! compare-and-swap, in [`super::versions`]), and makes the draft the record. A content without the
//! head's fingerprint was put there by somebody else: whoever sees it first gives it the next version. So the version grows with
//! every change, also by hand, and also across the record's deletion.

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::OFlags;
use soloist_core::ids::Version;

use super::folder::{Folder, OpenFolder, beside};
use super::state::State;
use super::versions::Versions;
use super::{failure, trust};
use crate::store::StoreError;

/// Much more than a lease needs; a file of this size is not one.
const LARGEST: u64 = 1 << 20;

/// A head that is there is missed only while it moves: not so often in a row.
const LOOKS_FOR_A_HEAD: u32 = 200;

/// Where the files are.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) folder: Folder,
    pub(super) record: Name,
    pub(super) versions: Name,
    /// The highest version that this handle has seen.
    seen: AtomicU64,
}

/// A file of the lease: its name in the folder, and its path, for people.
#[derive(Debug)]
pub(super) struct Name {
    pub(super) name: OsString,
    pub(super) path: PathBuf,
}

/// What tells whether whoever wanted it has given it up.
pub(super) type GivenUp<'a> = &'a dyn Fn() -> bool;

impl Disk {
    /// Finds the folder, or makes it, for this user only.
    pub(super) fn open(record: &Path) -> Result<Self, StoreError> {
        let Some(name) = record.file_name() else {
            return Err(failure::not_a_file(record));
        };
        let folder = match record.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => Folder::find(folder)?,
            Some(_) | None => Folder::find(Path::new("."))?,
        };
        if record.is_dir() {
            return Err(failure::not_a_file(record));
        }
        let versions = beside("", name, ".lock");
        Ok(Self {
            record: Name {
                name: name.to_owned(),
                path: record.to_owned(),
            },
            versions: Name {
                path: folder.path().join(&versions),
                name: versions,
            },
            folder,
            seen: AtomicU64::new(0),
        })
    }

    pub(super) fn record(&self) -> &Path {
        &self.record.path
    }

    pub(super) fn record_name(&self) -> &OsStr {
        &self.record.name
    }

    pub(super) fn open_folder(&self) -> Result<OpenFolder, StoreError> {
        self.folder.open_or_make()
    }

    /// The folder in which the head is moved, if it is there.
    pub(super) fn open_versions(&self, folder: &OpenFolder) -> Option<OpenFolder> {
        folder.folder(&self.versions.name).ok()
    }

    /// Whether this is still the lease's folder.
    pub(super) fn is_in(&self, folder: &OpenFolder) -> bool {
        self.folder.is(folder)
    }

    pub(super) fn folder_is_gone(&self) -> bool {
        self.folder.is_gone()
    }

    /// What follows all that this handle has seen.
    pub(super) fn next_version(&self) -> Version {
        Version::new(self.seen.load(Ordering::Relaxed) + 1)
    }

    pub(super) fn note(&self, version: u64) {
        self.seen.fetch_max(version, Ordering::Relaxed);
    }

    /// What the lease is now. A folder that was deleted is made again: who deletes it deletes the lease, and ends no election.
    pub(super) fn look(&self, given_up: GivenUp<'_>) -> Result<State<'_>, StoreError> {
        let mut headless = 0;
        loop {
            if given_up() {
                return Err(failure::given_up(&self.record.path));
            }
            let folder = self.folder.open_or_make()?;
            let Some(versions) = self.find_versions(&folder, given_up)? else {
                continue;
            };
            let listing = versions.list().map_err(|error| self.failed(&error))?;
            let Some(head) = listing.head else {
                headless += 1;
                match listing.is_empty() {
                    true => self.begin(&folder)?,
                    false if headless < LOOKS_FOR_A_HEAD => {
                        thread::sleep(Duration::from_millis(1));
                    }
                    false => return Err(failure::no_head(&self.versions.path)),
                }
                continue;
            };
            if let Some(state) = State::read(self, folder, versions, &listing, head)? {
                return Ok(state);
            }
        }
    }

    /// `None` if it has just been made, or may be there by now.
    fn find_versions(
        &self,
        folder: &OpenFolder,
        given_up: GivenUp<'_>,
    ) -> Result<Option<Versions>, StoreError> {
        let Name { name, path } = &self.versions;
        match folder.folder(name) {
            Ok(found) => {
                let rights = found.rights().map_err(|error| self.failed(&error))?;
                trust::check_own_folder(path, rights)?;
                Ok(Some(Versions::new(found)))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.begin(folder)?;
                Ok(None)
            }
            Err(error) if error.kind() == ErrorKind::NotADirectory => {
                self.take_over_from_former(folder, given_up)?;
                Ok(None)
            }
            Err(error) => Err(self.failed(&error)),
        }
    }

    pub(super) fn failed(&self, error: &io::Error) -> StoreError {
        failure::before(error, "use the folder", &self.versions.path)
    }

    pub(super) fn read_record(&self, folder: &OpenFolder) -> Result<Option<Vec<u8>>, StoreError> {
        let Name { name, path } = &self.record;
        let failed = |error: io::Error| failure::before(&error, "read the lease", path);
        let file = match folder.file(name, OFlags::RDONLY) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let mut content = Vec::new();
        file.take(LARGEST)
            .read_to_end(&mut content)
            .map_err(failed)?;
        Ok(Some(content))
    }
}
