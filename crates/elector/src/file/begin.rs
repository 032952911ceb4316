//! How a lease gets its first head: where there is none, and in place of a former version's lock file.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::thread;
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::disk::{Disk, GivenUp, Name};
use super::failure;
use super::folder::{OpenFolder, beside};
use super::former::{self, Counter};
use super::head::{Head, fingerprint, first_version};
use crate::random;
use crate::store::StoreError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Where {
    NoneIs,
    TheLockFileIs,
}

impl Disk {
    /// Where there is no head yet. Afterwards there is one, by this or by somebody else's hand.
    pub(super) fn begin(&self, folder: &OpenFolder) -> Result<(), StoreError> {
        let head = self.first_head(folder)?;
        self.install(folder, &head, Where::NoneIs)
            .map_err(|error| self.failed(&error))
    }

    fn first_head(&self, folder: &OpenFolder) -> Result<Head, StoreError> {
        let found = self.read_record(folder)?.as_deref().map(fingerprint);
        let version = first_version().max(self.next_version().get());
        Head::first(version, found).map_err(|error| self.failed(&error))
    }

    /// Waits for the lock: a former version that has it reads or writes now. When this returns there is no lock file any more, or it is
    /// to be looked at again.
    pub(super) fn take_over_from_former(
        &self,
        folder: &OpenFolder,
        given_up: GivenUp<'_>,
    ) -> Result<(), StoreError> {
        let Name { name, path } = &self.versions;
        let failed = |error: io::Error| failure::before(&error, "open the lock file", path);
        let lock = match folder.file(name, OFlags::RDWR) {
            Ok(lock) => lock,
            Err(error) if somebody_was_faster(&error) => return Ok(()),
            Err(error) => return Err(failed(error)),
        };
        while !former::try_lock(&lock).map_err(failed)? {
            if given_up() {
                return Err(failure::lock_is_held(path));
            }
            thread::sleep(Duration::from_millis(1));
        }
        if !self.folder.is(folder) || !folder.has(name, &lock) {
            return Ok(());
        }
        let head = match Counter::load(&lock).map_err(failed)? {
            None => return Err(failure::not_our_lock(path)),
            Some(Counter { version: 0, .. }) => self.first_head(folder)?,
            Some(counter) => Head::first(counter.version, counter.fingerprint).map_err(failed)?,
        };
        self.install(folder, &head, Where::TheLockFileIs)
            .map_err(failed)
    }

    /// The head's folder is made under a name of its own, with the head in it, and gets its real name in one step: it never is without a
    /// head. An empty folder of that name is replaced. Where somebody else was faster, that is it.
    fn install(&self, folder: &OpenFolder, head: &Head, place: Where) -> io::Result<()> {
        let name = &self.versions.name;
        let prefix = beside(".", name, ".");
        let mut own = prefix.clone();
        own.push(format!("{:016x}", random::bits64()?));
        let installed = folder.make_folder(&own).and_then(|new| {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
            new.file(head.name().as_ref(), flags)?;
            match place {
                Where::NoneIs => folder.rename(&own, folder, name),
                Where::TheLockFileIs => replace_file(folder, name, &own),
            }
        });
        match installed {
            Ok(()) => {
                folder.remove(&beside(".", &self.record.name, ".soloist-tmp"));
                remove_leftovers(folder, &prefix)
            }
            Err(error) => {
                remove(folder, &own);
                match somebody_was_faster(&error) {
                    true => Ok(()),
                    false => Err(error),
                }
            }
        }
    }
}

/// The caller has the file's lock. Whoever waits for that looks afterwards whether the file is still there.
fn replace_file(folder: &OpenFolder, file: &OsStr, by: &OsStr) -> io::Result<()> {
    match folder.exchange(by, file) {
        // Not every file system can. A crash in between costs the count, which then begins with the wall clock.
        Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
            folder.remove(file);
            folder.rename(by, folder, file)
        }
        done => done,
    }
}

/// By then the head's folder, or another lock file, is there; or the whole folder is not.
fn somebody_was_faster(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::AlreadyExists
            | ErrorKind::DirectoryNotEmpty
            | ErrorKind::NotADirectory
            | ErrorKind::IsADirectory
            | ErrorKind::NotFound
    )
}

/// What those have left who died in here, or came too late. Each is first given a name that nobody else knows: the one who made it
/// cannot make it the head's folder any more, and it was not that before.
fn remove_leftovers(folder: &OpenFolder, prefix: &OsStr) -> io::Result<()> {
    let prefix = prefix.as_encoded_bytes();
    for name in folder.list()? {
        let rest = name.as_encoded_bytes().strip_prefix(prefix);
        if !rest.is_some_and(|rest| rest.len() == 16 && rest.iter().all(u8::is_ascii_hexdigit)) {
            continue;
        }
        let mut taken = name.clone();
        taken.push(format!(".{:016x}", random::bits64()?));
        if folder.rename(&name, folder, &taken).is_ok() {
            remove(folder, &taken);
        }
    }
    Ok(())
}

/// Nobody else knows this name.
fn remove(parent: &OpenFolder, name: &OsStr) {
    match parent.folder(name) {
        Ok(folder) => {
            for entry in folder.list().unwrap_or_default() {
                folder.remove(&entry);
            }
            parent.remove_folder(name);
        }
        Err(_) => parent.remove(name),
    }
}
