//! The folder in which the lease's head is moved, `NAME.lock`, and the one operation on which everything rests.
//!
//! There is exactly one head. Whoever changes the lease renames the head from the name that it has read to a new one. A rename needs its
//! source, and no name is ever given twice, so of all who have read the same head exactly one succeeds, at whatever moment
//! each of them does it. Nobody has to be kept out meanwhile, so nobody who is stopped keeps anybody out.

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind, Write};

use rustix::fs::OFlags;

use super::folder::OpenFolder;
use super::head::{Draft, Entry, Head};

/// The folder, open.
#[derive(Debug)]
pub(super) struct Versions {
    folder: OpenFolder,
}

/// What is in it.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// The latest.
    pub(super) head: Option<Head>,
    /// More than one there is only if somebody has put them there.
    earlier: Vec<Head>,
    drafts: Vec<Draft>,
    others: Vec<OsString>,
}

impl Listing {
    pub(super) fn is_empty(&self) -> bool {
        self.head.is_none() && self.drafts.is_empty() && self.others.is_empty()
    }
}

impl Versions {
    pub(super) const fn new(folder: OpenFolder) -> Self {
        Self { folder }
    }

    pub(super) const fn folder(&self) -> &OpenFolder {
        &self.folder
    }

    /// A head that is renamed meanwhile may be missing.
    pub(super) fn list(&self) -> io::Result<Listing> {
        let mut listing = Listing::default();
        for name in self.folder.list()? {
            match Entry::parse(&name) {
                Some(Entry::Head(head)) => match listing.head {
                    Some(former) if former.is_after(&head) => listing.earlier.push(head),
                    former => {
                        listing.earlier.extend(former);
                        listing.head = Some(head);
                    }
                },
                Some(Entry::Draft(draft)) => listing.drafts.push(draft),
                None => listing.others.push(name),
            }
        }
        Ok(listing)
    }

    /// Whether this still is the head.
    pub(super) fn is_at(&self, head: &Head) -> io::Result<bool> {
        self.folder.there_is(head.name().as_ref())
    }

    /// Writes what is to be the record with this head. No head yet, so nobody else touches it.
    pub(super) fn write_draft(&self, draft: Draft, content: &[u8]) -> io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let mut file = self.folder.file(draft.name().as_ref(), flags)?;
        let written = file.write_all(content).and_then(|()| file.sync_all());
        if written.is_err() {
            self.remove_draft(draft);
        }
        written
    }

    pub(super) fn remove_draft(&self, draft: Draft) {
        self.folder.remove(draft.name().as_ref());
    }

    /// The compare-and-swap. `false` if somebody else has moved the head before.
    pub(super) fn advance(&self, from: &Head, to: &Head) -> io::Result<bool> {
        let (from, to) = (from.name(), to.name());
        was_there(self.folder.rename(from.as_ref(), &self.folder, to.as_ref()))
    }

    /// Makes the head's draft the record, unless that is done. Whoever comes by does it: the one who moved the head may be stopped.
    ///
    /// Each draft becomes the record once, for its name is then gone; and before the head moves on, for nobody moves it
    /// whose own call of this has not returned. So a former record cannot be put back by who was stopped in here.
    pub(super) fn publish(
        &self,
        head: &Head,
        lease_folder: &OpenFolder,
        record: &OsStr,
    ) -> io::Result<()> {
        let draft = head.draft().name();
        if self.folder.there_is(draft.as_ref())? {
            was_there(self.folder.rename(draft.as_ref(), lease_folder, record))?;
        }
        Ok(())
    }

    /// Removes what the dead have left behind.
    pub(super) fn tidy(&self, listing: &Listing, head: &Head) {
        for draft in &listing.drafts {
            if draft.is_too_late_for(head) {
                self.remove_draft(*draft);
            }
        }
        for earlier in &listing.earlier {
            self.folder.remove(earlier.name().as_ref());
        }
    }
}

fn was_there(renamed: io::Result<()>) -> io::Result<bool> {
    match renamed {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
