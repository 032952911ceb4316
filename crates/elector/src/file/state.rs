//! What the lease is at one moment, and the write that is based on it.

use std::io;

use soloist_core::ids::Version;

use super::disk::{Disk, GivenUp, Name};
use super::failure;
use super::folder::OpenFolder;
use super::head::{Head, fingerprint};
use super::versions::{Listing, Versions};
use crate::form::Form;
use crate::store::StoreError;

/// The lease, as it was when the head was looked at last.
#[derive(Debug)]
pub(super) struct State<'a> {
    disk: &'a Disk,
    folder: OpenFolder,
    versions: Versions,
    head: Head,
    form: Option<Form>,
}

/// What a replacement is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Its version is a token, so the head must outlive a loss of power. Nothing else must: after one, no
    /// process of before is alive. (The record's content is always flushed, lest it be found torn.)
    NewTerm,
    /// A new version that is not a token.
    Progress,
    /// The same version, for watchers.
    Correction,
}

impl<'a> State<'a> {
    pub(super) const fn version(&self) -> Version {
        Version::new(self.head.version)
    }

    pub(super) const fn form(&self) -> Option<&Form> {
        self.form.as_ref()
    }

    /// `None` if the head has moved on meanwhile, or the folder is another one.
    pub(super) fn read(
        disk: &'a Disk,
        folder: OpenFolder,
        versions: Versions,
        listing: &Listing,
        head: Head,
    ) -> Result<Option<Self>, StoreError> {
        let mut state = State {
            disk,
            folder,
            versions,
            head,
            form: None,
        };
        if !state.is_of_the_lease() {
            return Ok(None);
        }
        state.publish().map_err(|e| disk.failed(&e))?;
        let content = disk.read_record(&state.folder)?;
        // What was read is this head's, or by another hand, only if the head has not moved.
        let still = state.versions.is_at(&state.head);
        if !still.map_err(|e| disk.failed(&e))? || !state.is_of_the_lease() {
            return Ok(None);
        }
        let form = content.as_deref().map(Form::parse).transpose();
        state.form = form.map_err(|reason| failure::not_our_record(disk.record(), &reason))?;
        let found = content.as_deref().map(fingerprint);
        if found != state.head.fingerprint {
            let counted = state.head.next(state.head.version + 1, found);
            let counted = counted.map_err(|e| disk.failed(&e))?;
            let moved = state.versions.advance(&state.head, &counted);
            if !moved.map_err(|e| disk.failed(&e))? {
                return Ok(None);
            }
            state.head = counted;
        }
        disk.note(state.head.version);
        state.versions.tidy(listing, &state.head);
        Ok(Some(state))
    }

    /// Replaces the record. `None` if somebody else has changed something since it was read: nothing has landed then.
    pub(super) fn replace(
        self,
        form: &Form,
        change: Change,
        given_up: GivenUp<'_>,
    ) -> Result<Option<Version>, StoreError> {
        let disk = self.disk;
        let content = form.to_bytes();
        let version = match change {
            Change::NewTerm | Change::Progress => self.head.version + 1,
            Change::Correction => self.head.version,
        };
        let next = self.head.next(version, Some(fingerprint(&content)));
        let next = next.map_err(|e| disk.failed(&e))?;
        match self.versions.write_draft(next.draft(), &content) {
            Ok(()) => {}
            // The folder was deleted.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failure::before(&error, "write the lease", disk.record())),
        }
        let moved = self.is_unchanged(given_up).and_then(|unchanged| {
            let moved = unchanged.then(|| self.versions.advance(&self.head, &next));
            moved.transpose().map_err(|e| disk.failed(&e))
        });
        if !matches!(moved, Ok(Some(true))) {
            self.versions.remove_draft(next.draft());
            return moved.map(|_| None);
        }
        // From here on it has landed, whatever goes wrong; should we die, the next one to look makes it the record.
        disk.note(version);
        let landed = Self { head: next, ..self };
        landed
            .publish()
            .and_then(|()| match change {
                Change::NewTerm => landed.make_durable(),
                Change::Progress | Change::Correction => Ok(()),
            })
            .map_err(|error| failure::after(&error, disk.record()))?;
        match landed.is_of_the_lease() {
            true => Ok(Some(Version::new(version))),
            false => Err(failure::folder_was_exchanged(disk.record())),
        }
    }

    /// Writing to a disk takes long: another hand may have been here meanwhile.
    fn is_unchanged(&self, given_up: GivenUp<'_>) -> Result<bool, StoreError> {
        if given_up() {
            return Err(failure::given_up(self.disk.record()));
        }
        let found = self.disk.read_record(&self.folder)?;
        Ok(found.as_deref().map(fingerprint) == self.head.fingerprint && self.is_of_the_lease())
    }

    /// Whether both folders are still where the lease is.
    fn is_of_the_lease(&self) -> bool {
        let Name { name, .. } = &self.disk.versions;
        self.disk.is_in(&self.folder) && self.folder.has(name, self.versions.folder())
    }

    fn publish(&self) -> io::Result<()> {
        let record = self.disk.record_name();
        self.versions.publish(&self.head, &self.folder, record)
    }

    fn make_durable(&self) -> io::Result<()> {
        self.versions.folder().sync()?;
        self.folder.sync()
    }
}
