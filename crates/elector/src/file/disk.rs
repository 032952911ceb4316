//! The files themselves: a lock, a counter, and a record that is replaced as a whole or not at all.
//!
//! Beside the record `NAME` lies `NAME.lock`. It is locked (`flock`) for every access, is never replaced, and holds the
//! counter: the version of the record as last seen, with a fingerprint of the content that had this
//! version. A content without that fingerprint was put there by somebody else, or by a write of ours that
//! was cut off after its rename: whoever sees it first gives it the next version. So the version grows with
//! every change, also by hand, and also across the record's deletion.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;
use soloist_core::ids::Version;

use super::counter::{Counter, fingerprint, first_version};
use super::failure;
use super::form::Form;
use crate::store::StoreError;

/// Much more than a lease needs; a file of this size is not one.
const LARGEST: u64 = 1 << 20;

/// Where the files are.
#[derive(Debug)]
pub(super) struct Disk {
    record: PathBuf,
    lock: PathBuf,
    temporary: PathBuf,
    folder: PathBuf,
}

impl Disk {
    /// Finds the folder, or makes it, for this user only.
    pub(super) fn open(record: &Path) -> Result<Self, StoreError> {
        let Some(name) = record.file_name() else {
            return Err(failure::not_a_file(record));
        };
        let folder = match record.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder.to_owned(),
            Some(_) | None => PathBuf::from("."),
        };
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder);
        made.map_err(|error| failure::before(&error, "make the folder", &folder))?;
        let file_system = rustix::fs::statfs(&folder)
            .map_err(|error| failure::before(&error.into(), "examine the folder", &folder))?;
        if let Some(kind) = failure::shared_file_system(file_system.f_type) {
            return Err(failure::not_one_machine(&folder, kind));
        }
        if record.is_dir() {
            return Err(failure::not_a_file(record));
        }
        let beside = |prefix: &str, suffix: &str| {
            let mut beside = std::ffi::OsString::from(prefix);
            beside.push(name);
            beside.push(suffix);
            folder.join(beside)
        };
        Ok(Self {
            record: record.to_owned(),
            lock: beside("", ".lock"),
            temporary: beside(".", ".soloist-tmp"),
            folder,
        })
    }

    pub(super) fn record(&self) -> &Path {
        &self.record
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Locks the lease, and says what it is now. Waits for as long as `given_up` is false.
    pub(super) fn lock(&self, given_up: &dyn Fn() -> bool) -> Result<Locked<'_>, StoreError> {
        let file = self.wait_for_lock(given_up)?;
        let mut locked = Locked {
            disk: self,
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

    fn wait_for_lock(&self, given_up: &dyn Fn() -> bool) -> Result<File, StoreError> {
        let failed = |error: io::Error| failure::before(&error, "open the lock file", &self.lock);
        let mut file = self.open_lock().map_err(failed)?;
        loop {
            if given_up() {
                return Err(failure::lock_is_held(&self.lock));
            }
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                // Whoever deletes the lock file would have two of us lock two different ones.
                Ok(()) if self.is_in_place(&file) => return Ok(file),
                Ok(()) => file = self.open_lock().map_err(failed)?,
                Err(Errno::WOULDBLOCK) => thread::sleep(Duration::from_millis(1)),
                Err(Errno::INTR) => {}
                Err(error) => return Err(failed(error.into())),
            }
        }
    }

    fn open_lock(&self) -> io::Result<File> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(no_follow())
            .open(&self.lock)
    }

    fn is_in_place(&self, file: &File) -> bool {
        match (file.metadata(), fs::symlink_metadata(&self.lock)) {
            (Ok(locked), Ok(found)) => locked.ino() == found.ino() && locked.dev() == found.dev(),
            _ => false,
        }
    }

    fn read_record(&self) -> Result<Option<Vec<u8>>, StoreError> {
        let failed = |error: io::Error| failure::before(&error, "read the lease", &self.record);
        // Through a link, two paths would be two leases as soon as one is replaced.
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(no_follow())
            .open(&self.record);
        let file = match opened {
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

fn no_follow() -> i32 {
    i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or(0)
}

/// The lease, locked.
#[derive(Debug)]
pub(super) struct Locked<'a> {
    disk: &'a Disk,
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
        let lock = &self.disk.lock;
        let counter = Counter::load(&self.file)
            .map_err(|error| failure::before(&error, "read the lock file", lock))?;
        let Some(counter) = counter else {
            return Err(failure::not_our_lock(lock));
        };
        self.counter = counter;
        let content = self.disk.read_record()?;
        self.form = match &content {
            Some(bytes) => Some(
                Form::parse(bytes)
                    .map_err(|reason| failure::not_our_record(&self.disk.record, &reason))?,
            ),
            None => None,
        };
        let found = content.as_deref().map(fingerprint);
        if self.counter.version == 0 {
            self.count(Counter {
                version: first_version(),
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
        .map_err(|error| failure::before(&error, "write the lock file", lock))
    }

    /// Replaces the record.
    pub(super) fn replace(mut self, form: &Form, change: Change) -> Result<Version, StoreError> {
        let content = form.to_bytes();
        let disk = self.disk;
        write_durably(&disk.temporary, &content).map_err(|error| {
            let _ = fs::remove_file(&disk.temporary);
            failure::before(&error, "write the lease", &disk.temporary)
        })?;
        fs::rename(&disk.temporary, &disk.record).map_err(|error| {
            let _ = fs::remove_file(&disk.temporary);
            failure::before(&error, "replace the lease", &disk.record)
        })?;
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
            .map_err(|error| failure::after(&error, &disk.record))?;
        Ok(Version::new(version))
    }

    fn make_durable(&self) -> io::Result<()> {
        self.file.sync_data()?;
        File::open(&self.disk.folder)?.sync_all()
    }

    fn count(&mut self, counter: Counter) -> io::Result<()> {
        counter.save(&self.file)?;
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

fn write_durably(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .custom_flags(no_follow())
        .open(path)?;
    file.write_all(content)?;
    file.sync_all()
}
