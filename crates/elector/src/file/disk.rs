//! The files themselves: a lock, a counter, and a record that is replaced as a whole or not at all.
//!
//! Beside the record `NAME` lies `NAME.lock`. It is locked (`flock`) for every access, is never replaced, and holds the
//! counter: the version of the record as last seen, with a fingerprint of the content that had this
//! version. A content without that fingerprint was put there by somebody else, or by a write of ours that
//! was cut off after its rename: whoever sees it first gives it the next version. So the version grows with
//! every change, also by hand, and also across the record's deletion.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use soloist_core::ids::Version;

use super::counter::{Counter, fingerprint, first_version};
use super::failure;
use super::folder::{Folder, OpenFolder, beside};
use crate::form::Form;
use crate::store::StoreError;

/// Much more than a lease needs; a file of this size is not one.
const LARGEST: u64 = 1 << 20;

/// Where the files are.
#[derive(Debug)]
pub(super) struct Disk {
    folder: Folder,
    record: Name,
    lock: Name,
    temporary: Name,
    /// The highest version that this handle has seen.
    seen: AtomicU64,
}

/// A file of the lease: its name in the folder, and its path, for people.
#[derive(Debug)]
struct Name {
    name: OsString,
    path: PathBuf,
}

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
        let named = |name: OsString| Name {
            path: folder.path().join(&name),
            name,
        };
        Ok(Self {
            record: Name {
                name: name.to_owned(),
                path: record.to_owned(),
            },
            lock: named(beside("", name, ".lock")),
            temporary: named(beside(".", name, ".soloist-tmp")),
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

    /// Locks the lease, and says what it is now. Waits for as long as `given_up` is false. A folder that was deleted is made
    /// again: who deletes it deletes the lease, and ends no election.
    pub(super) fn lock(&self, given_up: &dyn Fn() -> bool) -> Result<Locked<'_>, StoreError> {
        let (folder, file) = loop {
            let folder = self.folder.open_or_make()?;
            if let Some(file) = self.wait_for_lock(&folder, given_up)? {
                break (folder, file);
            }
        };
        let mut locked = Locked {
            disk: self,
            folder,
            file,
            counter: Counter {
                version: 0,
                fingerprint: None,
            },
            form: None,
        };
        locked.look()?;
        Ok(locked)
    }

    /// `None` if it is not the lease's folder any more.
    fn wait_for_lock(
        &self,
        folder: &OpenFolder,
        given_up: &dyn Fn() -> bool,
    ) -> Result<Option<File>, StoreError> {
        let Name { name, path } = &self.lock;
        let failed = |error: io::Error| failure::before(&error, "open the lock file", path);
        let open = || match folder.file(name, OFlags::RDWR | OFlags::CREATE) {
            Ok(file) => Ok(Some(file)),
            // Nothing can be made in a folder that was deleted.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(error)),
        };
        let mut opened = open()?;
        loop {
            if given_up() {
                return Err(failure::lock_is_held(path));
            }
            let Some(file) = opened else {
                return Ok(None);
            };
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) if !self.folder.is(folder) => return Ok(None),
                // Whoever deletes the lock file would have two of us lock two different ones.
                Ok(()) if folder.has(name, &file) => return Ok(Some(file)),
                Ok(()) => {
                    opened = open()?;
                    continue;
                }
                Err(Errno::WOULDBLOCK) => thread::sleep(Duration::from_millis(1)),
                Err(Errno::INTR) => {}
                Err(error) => return Err(failed(error.into())),
            }
            opened = Some(file);
        }
    }

    fn note(&self, version: u64) {
        self.seen.fetch_max(version, Ordering::Relaxed);
    }

    fn read_record(&self, folder: &OpenFolder) -> Result<Option<Vec<u8>>, StoreError> {
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

/// The lease, locked.
#[derive(Debug)]
pub(super) struct Locked<'a> {
    disk: &'a Disk,
    folder: OpenFolder,
    file: File,
    counter: Counter,
    form: Option<Form>,
}

impl Locked<'_> {
    pub(super) const fn version(&self) -> Version {
        Version::new(self.counter.version)
    }

    pub(super) const fn form(&self) -> Option<&Form> {
        self.form.as_ref()
    }

    fn look(&mut self) -> Result<(), StoreError> {
        let lock = &self.disk.lock.path;
        let counter = Counter::load(&self.file)
            .map_err(|error| failure::before(&error, "read the lock file", lock))?;
        let Some(counter) = counter else {
            return Err(failure::not_our_lock(lock));
        };
        self.counter = counter;
        let content = self.disk.read_record(&self.folder)?;
        self.form = match &content {
            Some(bytes) => Some(
                Form::parse(bytes)
                    .map_err(|reason| failure::not_our_record(&self.disk.record.path, &reason))?,
            ),
            None => None,
        };
        let found = content.as_deref().map(fingerprint);
        if self.counter.version == 0 {
            self.count(Counter {
                version: first_version().max(self.disk.next_version().get()),
                fingerprint: found,
            })
        } else if found != self.counter.fingerprint {
            self.count(Counter {
                version: self.counter.version + 1,
                fingerprint: found,
            })
        } else {
            Ok(())
        }
        .map_err(|error| failure::before(&error, "write the lock file", lock))?;
        // Somebody else may have counted it.
        self.disk.note(self.counter.version);
        Ok(())
    }

    /// Replaces the record.
    pub(super) fn replace(mut self, form: &Form, change: Change) -> Result<Version, StoreError> {
        let content = form.to_bytes();
        let disk = self.disk;
        let (folder, temporary, record) = (&self.folder, &disk.temporary, &disk.record);
        let failed = |error: io::Error, what: &str, path: &Path| {
            folder.remove(&temporary.name);
            match error.kind() {
                ErrorKind::NotFound => failure::folder_was_deleted(&record.path),
                _ => failure::before(&error, what, path),
            }
        };
        write_durably(folder, &temporary.name, &content)
            .map_err(|error| failed(error, "write the lease", &temporary.path))?;
        folder
            .rename(&temporary.name, &record.name)
            .map_err(|error| failed(error, "replace the lease", &record.path))?;
        // From here on it has landed, whatever goes wrong; should we die, the next one to look counts it.
        let version = match change {
            Change::NewTerm | Change::Progress => self.counter.version + 1,
            Change::Correction => self.counter.version,
        };
        let counter = Counter {
            version,
            fingerprint: Some(fingerprint(&content)),
        };
        self.count(counter)
            .and_then(|()| match change {
                Change::NewTerm => self.make_durable(),
                Change::Progress | Change::Correction => Ok(()),
            })
            .map_err(|error| failure::after(&error, &disk.record.path))?;
        Ok(Version::new(version))
    }

    fn make_durable(&self) -> io::Result<()> {
        self.file.sync_data()?;
        self.folder.sync()
    }

    fn count(&mut self, counter: Counter) -> io::Result<()> {
        counter.save(&self.file)?;
        self.disk.note(counter.version);
        self.counter = counter;
        Ok(())
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // Closing alone would not do while a fork of this process has a copy of the descriptor.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

/// What a replacement is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Its version is a token, so the count must outlive a loss of power. Nothing else must: after one, no
    /// process of before is alive. (The record's content is always flushed, lest it be found torn.)
    NewTerm,
    /// A new version that is not a token.
    Progress,
    /// The same version, for watchers.
    Correction,
}

fn write_durably(folder: &OpenFolder, name: &OsStr, content: &[u8]) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
    let mut file = folder.file(name, flags)?;
    file.write_all(content)?;
    file.sync_all()
}
