//! Changes of the lease file, and the death of its holder, as they happen.

use std::future::pending;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;

use futures_util::{Stream, stream};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use soloist_core::ids::Version;
use soloist_core::record::Snapshot;

use super::disk::Disk;
use super::folder::OpenFolder;
use super::process::Household;
use super::{FileStore, Look};
use crate::readable::{self, Readable};
use crate::store::{StoreError, WatchEnded};

/// Every version after this one, or the end: notices of changes coalesce, and what lies between two
/// versions that are not neighbours is not known.
pub(super) fn changes(
    store: FileStore,
    after: Version,
) -> impl Stream<Item = Result<Snapshot, WatchEnded>> + Send + 'static {
    let begin = Watching::begin(store, after);
    stream::unfold(Some(begin), |watching| async move {
        match watching? {
            Err(error) => Some((
                Err(WatchEnded::broken(format!(
                    "cannot watch the lease file: {error}"
                ))),
                None,
            )),
            Ok(mut watching) => match watching.next().await {
                Ok(snapshot) => Some((Ok(snapshot), Some(Ok(watching)))),
                Err(ended) => Some((Err(ended), None)),
            },
        }
    })
}

struct Watching {
    store: FileStore,
    notices: Notices,
    last: Version,
    told_gone: bool,
    /// The folder was deleted with the lease, and that has been told.
    told_deleted: bool,
    /// Whose death has already been looked into.
    mourned: Option<Household>,
}

impl Watching {
    fn begin(store: FileStore, after: Version) -> io::Result<Self> {
        Ok(Self {
            notices: Notices::of(&store.inner.disk)?,
            store,
            last: after,
            told_gone: false,
            told_deleted: false,
            mourned: None,
        })
    }

    /// A folder that was deleted is told as a lease that was: the end of a watch alone may be looked into later.
    async fn next(&mut self) -> Result<Snapshot, WatchEnded> {
        if self.told_deleted {
            return Err(WatchEnded::broken("the lease's folder was deleted"));
        }
        match self.next_in_folder().await {
            Err(WatchEnded::Broken(_)) if !self.notices.are_of_the_lease(&self.store) => {
                self.told_deleted = true;
                Ok(Snapshot::new(Version::new(self.last.get() + 1), None))
            }
            other => other,
        }
    }

    async fn next_in_folder(&mut self) -> Result<Snapshot, WatchEnded> {
        loop {
            // Before looking: what happens after this gives a new notice.
            self.notices.take().map_err(ended)?;
            self.notices.follow_the_head(&self.store);
            let Look {
                snapshot: found,
                household,
            } = self.look().await?;
            match found.version.get().checked_sub(self.last.get()) {
                Some(0) if !found.holder_gone || self.told_gone => {}
                Some(0 | 1) => {
                    self.last = found.version;
                    self.told_gone = found.holder_gone;
                    return Ok(found);
                }
                Some(_) | None => {
                    return Err(WatchEnded::broken(format!(
                        "changes went by unseen between version {} and {}",
                        self.last, found.version
                    )));
                }
            }
            let household = household.filter(|h| self.mourned.as_ref() != Some(h));
            tokio::select! {
                notice = self.notices.arrive() => notice.map_err(ended)?,
                () = death(household.as_ref()) => self.mourned = household,
            }
        }
    }

    async fn look(&self) -> Result<Look, WatchEnded> {
        self.store
            .blocking(|inner, given_up| inner.look(given_up))
            .await
            .map_err(|error| match error {
                StoreError::Refused(refusal) => WatchEnded::Refused(refusal),
                other => WatchEnded::broken(other.to_string()),
            })
    }
}

fn ended(error: io::Error) -> WatchEnded {
    WatchEnded::broken(format!("the lease's folder cannot be watched: {error}"))
}

/// Waits until the household is dead; for ever if that cannot be known.
async fn death(household: Option<&Household>) {
    let Some(household) = household else {
        return pending().await;
    };
    let living = household.living();
    // It may have died since we looked; then there is nobody left to wait for.
    if living.is_empty() && !household.is_gone() {
        return pending().await;
    }
    for process in living {
        let Ok(process) = readable::watch(process) else {
            return pending().await;
        };
        if process.readable().await.is_err() {
            return pending().await;
        }
    }
}

/// The kernel's notices about the record file, and about the head: whoever has moved that may be stopped before the record shows it.
struct Notices {
    inotify: Readable,
    folder: OpenFolder,
    /// The notices' number for the folder.
    about_folder: i32,
    name: Vec<u8>,
}

impl Notices {
    fn of(disk: &Disk) -> io::Result<Self> {
        let fd = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let events = WatchFlags::CLOSE_WRITE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        let folder = disk.open_folder().map_err(io::Error::other)?;
        let about_folder = inotify::add_watch(&fd, folder.proc_path(), events)?;
        Ok(Self {
            inotify: readable::watch(fd)?,
            folder,
            about_folder,
            name: disk.record_name().as_bytes().to_owned(),
        })
    }

    /// Whether the folder that they are about is still the lease's.
    fn are_of_the_lease(&self, store: &FileStore) -> bool {
        store.inner.disk.is_in(&self.folder)
    }

    /// Asks for those about the head too. Its folder may be a new one by now; asking again for the same one changes nothing.
    fn follow_the_head(&self, store: &FileStore) {
        if let Some(versions) = store.inner.disk.open_versions(&self.folder) {
            let events = WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
            // Without them the record's own notice comes, later.
            let _ = inotify::add_watch(self.inotify.get_ref(), versions.proc_path(), events);
        }
    }

    /// Waits for one about the record.
    async fn arrive(&mut self) -> io::Result<()> {
        loop {
            let mut ready = self.inotify.readable().await?;
            ready.clear_ready();
            drop(ready);
            if self.take()? {
                return Ok(());
            }
        }
    }

    /// Takes all that there are now; whether one was about the record.
    fn take(&mut self) -> io::Result<bool> {
        let gone = ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::IGNORED;
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(self.inotify.get_ref(), &mut buffer);
        let mut about_the_lease = false;
        loop {
            match reader.next() {
                Ok(event) if event.wd() != self.about_folder => about_the_lease = true,
                Ok(event) if event.events().intersects(gone) => {
                    return Err(io::Error::other("it was moved or deleted"));
                }
                Ok(event) => {
                    let name = event.file_name();
                    about_the_lease |= name.is_some_and(|name| name.to_bytes() == self.name);
                }
                Err(Errno::AGAIN) => return Ok(about_the_lease),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::process::ProcessRef;
    use crate::testing::in_time;
    use std::process::Command;
    use std::task::{Context, Waker};

    #[tokio::test]
    async fn a_death_between_the_look_and_the_wait_is_not_missed() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let household = Household::of(vec![ProcessRef::of(child.id()).unwrap()]).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        in_time(death(Some(&household))).await;
    }

    #[tokio::test]
    async fn a_household_that_cannot_be_seen_is_not_waited_for() {
        let empty = Household::of(vec![]).unwrap();
        for household in [None, Some(&empty)] {
            let wait = std::pin::pin!(death(household));
            assert!(
                wait.poll(&mut Context::from_waker(Waker::noop()))
                    .is_pending()
            );
        }
    }
}
