//! The lease as a file, for the processes of one machine. No daemon.
//!
//! The record is a JSON file of mode 0600 that is only ever replaced as a whole; the folder `NAME.lock` beside it
//! holds the version. There is no lock: a writer that is stopped or killed at any moment keeps nobody out (`docs/file-store.md` says why).
//! Timestamps in the record are for people. Fields that are not ours are kept.
//!
//! *Dead holders.* The record names the processes that can act for the holder: this one, unless
//! [`FileStore::set_processes`] says otherwise. Once all of them are provably dead, or the machine was
//! restarted, the holder is succeeded at once. The proof needs the same PID and time namespaces, and the kernel's own word of
//! which boot this is; where one of them differs or is hidden (containers, LXD's own boot id) the lease is waited out instead.
//!
//! *Where.* Only on file systems that are known to be of one machine (ext2 to ext4, XFS, Btrfs, ZFS, F2FS, bcachefs, JFS, ReiserFS, NILFS2,
//! UBIFS, overlay, tmpfs, ramfs), and in a folder of this user's or of root's, below such folders only, that others (everybody, or a group
//! with others in it) cannot write to, unless it has the sticky bit as `/tmp` has; a symbolic link by anybody but root is refused, and so
//! are files of another user's.
//!
//! *Limits.* Whoever deletes the folder `NAME.lock` *and* sets the wall clock back
//! may make tokens shrink: versions then begin anew with the clock's milliseconds. A write takes as long as
//! the disk takes to flush it, so on a slow disk a lease of a few seconds is too short; a tmpfs has no such wait.

mod begin;
mod disk;
mod failure;
mod folder;
mod former;
mod head;
mod household;
mod process;
mod state;
mod surroundings;
mod thread;
mod trust;
mod versions;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::{Stream, TryStreamExt};
use soloist_core::election::Purpose;
use soloist_core::ids::{InstanceId, Version};
use soloist_core::orders::Orders;
use soloist_core::record::{Record, Snapshot};

use crate::form::Form;
use crate::store::{LeaseStore, StoreError, Stored, WatchEnded};
use disk::{Disk, GivenUp};
use process::Household;
use state::{Change, State};
use thread::StoreThread;
use tokio::sync::oneshot;

pub use process::ProcessRef;

/// A lease in a file. Clones share it.
#[derive(Clone, Debug)]
pub struct FileStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    disk: Disk,
    own: Mutex<Own>,
    thread: StoreThread,
}

#[derive(Debug)]
struct Own {
    /// All that act for this replica.
    processes: Vec<ProcessRef>,
    /// Whose records these processes act for.
    instance: Option<InstanceId>,
}

impl FileStore {
    /// The lease at this path. The folder is made, for this user only, if it does not exist.
    ///
    /// # Errors
    /// When the path cannot be a lease: the folder cannot be made, it is a folder itself, or it is not on a
    /// file system of this machine. Also when there can be no thread for it. Files are first touched by the first request.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let own = Own {
            // Without /proc nothing can be proven, and leases are waited out.
            processes: ProcessRef::this().into_iter().collect(),
            instance: None,
        };
        Ok(Self {
            inner: Arc::new(Inner {
                disk: Disk::open(path.as_ref())?,
                own: Mutex::new(own),
                thread: StoreThread::start().map_err(|error| failure::no_thread(&error))?,
            }),
        })
    }

    /// Where the record is.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.inner.disk.record().to_owned()
    }

    /// Names all processes that act for this replica, for example this one and its guard. When this returns,
    /// a record that this replica holds names them too, so it is to be called *before* a new process begins
    /// to act. The record's version stays.
    ///
    /// # Errors
    /// When `/proc` cannot be read, or as a write.
    pub async fn set_processes(&self, processes: Vec<ProcessRef>) -> Result<(), StoreError> {
        self.blocking(move |inner, given_up| {
            let household = Household::of(processes.clone())
                .map_err(|error| StoreError::Unavailable(format!("cannot read /proc: {error}")))?;
            let instance = {
                let mut own = inner.own();
                own.processes = processes;
                own.instance
            };
            loop {
                let state = inner.disk.look(given_up)?;
                let Some(mut form) = state.form().cloned() else {
                    return Ok(());
                };
                let record = form.record();
                let signed = record.signed().map(|s| s.instance);
                if record.holder.is_none() || signed.is_none() || signed != instance {
                    return Ok(());
                }
                household::set(&mut form, Some(&household));
                if state
                    .replace(&form, Change::Correction, given_up)?
                    .is_some()
                {
                    return Ok(());
                }
            }
        })
        .await
    }

    /// Disks block, so this is not for the runtime's threads. Whoever drops the future gives up what has not had an effect yet.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner, GivenUp<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let inner = Arc::clone(&self.inner);
        let dropped = Dropped(Arc::new(AtomicBool::new(false)));
        let given_up = Arc::clone(&dropped.0);
        let (answer, answered) = oneshot::channel();
        let job = move || {
            let given_up = || given_up.load(Ordering::Relaxed);
            if !given_up() {
                let _ = answer.send(work(&inner, &given_up));
            }
        };
        if !self.inner.thread.run(job) {
            return Err(failure::disk_is_mute(self.inner.disk.record()));
        }
        let done = answered.await;
        drop(dropped);
        done.unwrap_or_else(|_| {
            Err(StoreError::Unknown(
                "the store's thread has panicked".into(),
            ))
        })
    }
}

struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Inner {
    fn own(&self) -> MutexGuard<'_, Own> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&self, given_up: GivenUp<'_>) -> Result<Look, StoreError> {
        match self.disk.look(given_up) {
            Ok(state) => Ok(Look {
                snapshot: snapshot(&state),
                household: state.form().and_then(household::of),
            }),
            // Whoever deletes the folder deletes the lease, also where this user cannot make it again.
            Err(_) if self.disk.folder_is_gone() => Ok(Look {
                snapshot: Snapshot::new(self.disk.next_version(), None),
                household: None,
            }),
            Err(error) => Err(error),
        }
    }

    fn write(
        &self,
        base: Option<Version>,
        record: &Record,
        purpose: Purpose,
        given_up: GivenUp<'_>,
    ) -> Result<Version, StoreError> {
        self.own().instance = record.signature.as_ref().map(|s| s.instance);
        let processes = self.own().processes.clone();
        let household = Household::of(processes).ok();
        let household = household.filter(|_| record.holder.is_some());
        let change = match purpose {
            Purpose::Acquire => Change::NewTerm,
            Purpose::Renew | Purpose::Release => Change::Progress,
        };
        loop {
            let state = self.disk.look(given_up)?;
            let found = state.version();
            let mut form = match (base, state.form()) {
                (None, None) => Form::default(),
                (Some(version), Some(form)) if version == found => form.clone(),
                (_, Some(_)) => return Err(is_at(found)),
                (_, None) => {
                    return Err(StoreError::LostRace(format!(
                        "there is no lease, at version {found}"
                    )));
                }
            };
            form.set(record, purpose);
            household::set(&mut form, household.as_ref());
            // Another change that left the version as it is does not let this one lose.
            if let Some(version) = state.replace(&form, change, given_up)? {
                return Ok(version);
            }
        }
    }

    /// All else, the processes that act for the holder too, stays as it is.
    fn order(
        &self,
        base: Version,
        orders: &Orders,
        given_up: GivenUp<'_>,
    ) -> Result<Version, StoreError> {
        loop {
            let state = self.disk.look(given_up)?;
            let found = state.version();
            let Some(mut form) = state.form().filter(|_| found == base).cloned() else {
                return Err(is_at(found));
            };
            form.set_orders(orders);
            if let Some(version) = state.replace(&form, Change::Progress, given_up)? {
                return Ok(version);
            }
        }
    }
}

fn is_at(found: Version) -> StoreError {
    StoreError::LostRace(format!("the lease is at version {found}"))
}

/// The file itself is read again for every write, in the same step as its version: what is not ours is kept from there.
impl LeaseStore for FileStore {
    type Carried = ();

    async fn read(&self) -> Result<Stored<()>, StoreError> {
        self.blocking(|inner, given_up| Ok(inner.look(given_up)?.snapshot.into()))
            .await
    }

    async fn write(
        &self,
        base: &Stored<()>,
        record: &Record,
        purpose: Purpose,
    ) -> Result<Stored<()>, StoreError> {
        let base = base.record.as_ref().map(|_| base.version);
        let record = record.clone();
        self.blocking(move |inner, given_up| {
            let version = inner.write(base, &record, purpose, given_up)?;
            Ok(Stored::present(version, record, ()))
        })
        .await
    }

    async fn order(&self, base: &Stored<()>, orders: &Orders) -> Result<Stored<()>, StoreError> {
        let (base, orders) = (base.clone(), orders.clone());
        self.blocking(move |inner, given_up| {
            let version = inner.order(base.version, &orders, given_up)?;
            let record = base.record.map(|record| Record { orders, ..record });
            Ok(Stored {
                version,
                as_of: version,
                record,
                ..base
            })
        })
        .await
    }

    fn watch(
        &self,
        after: &Stored<()>,
    ) -> impl Stream<Item = Result<Stored<()>, WatchEnded>> + Send + 'static {
        watch::changes(self.clone(), after.version).map_ok(Stored::from)
    }

    fn describe(&self) -> String {
        format!("lease file {}", self.inner.disk.record().display())
    }
}

/// The lease, and who acts for its holder.
struct Look {
    snapshot: Snapshot,
    household: Option<Household>,
}

fn snapshot(state: &State<'_>) -> Snapshot {
    let mut snapshot = Snapshot::new(state.version(), state.form().map(Form::record));
    snapshot.holder_gone = state.form().is_some_and(household::is_gone);
    snapshot
}
