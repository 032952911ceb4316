//! What the server must still know after it was killed: the highest token, what is acknowledged, and since when it
//! produces.
//!
//! The token stands in a redb database and is synced before it is admitted: no leader of yesterday gets in, whatever
//! happens to the machine. Acknowledgements are many, and each would wait for the disk, so they go to a small file
//! beside it that is written and not synced (redb has nothing between "synced" and "lost when the process dies"). A
//! killed server knows them all. A loss of power may lose the last of them, which only means that some messages are
//! forgotten later: an ack lets the server forget, and it never has to.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use redb::{Database, ReadableDatabase, TableDefinition, TableError};
use soloist_worker::Token;

use acks::Acks;

mod acks;

const TABLE: TableDefinition<'_, &str, u64> = TableDefinition::new("feed");
const TOKEN: &str = "token";
const ACKED: &str = "acked";
const RATE: &str = "rate";
const MOMENT: &str = "moment";
const BASE: &str = "base";

/// The server's memory, open for this process alone.
pub struct Store {
    database: Database,
    path: PathBuf,
    acks: Mutex<Acks>,
    token: Token,
    production: Option<Production>,
}

/// Since when messages are produced, and how fast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Production {
    /// Messages per second; 0: all are there from the start.
    pub rate: u64,
    /// When this rate began, by the clock on the wall: it must outlive the process.
    pub moment: SystemTime,
    /// The last position that had been produced by then.
    pub base: u64,
}

/// Why the store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Another process has it open.
    #[error(
        "the store {} is in use by another process: stop that server, or choose another file with --store",
        path.display()
    )]
    Locked {
        /// The database.
        path: PathBuf,
    },
    /// It is no database, or a damaged one.
    #[error(
        "the store {} is broken or no store at all: {reason}; restore it, or move it away to begin anew, which forgets the highest token and what was acknowledged",
        path.display()
    )]
    Broken {
        /// The database.
        path: PathBuf,
        /// What redb says.
        reason: String,
    },
    /// The system refuses to read or write it.
    #[error(
        "cannot use the store {}: {cause}; its directory must exist, be writable for this user and have room",
        path.display()
    )]
    Io {
        /// The database, or the file of acknowledgements.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
}

impl Store {
    /// Opens the database or creates it, and the file `PATH.acks` beside it.
    ///
    /// # Errors
    /// When another process has it open, it is broken, or cannot be written.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, StoreError> {
        let path = path.into();
        let failed = |error: redb::Error| failure(&path, error);
        let exists = path.try_exists().unwrap_or(true);
        if !exists {
            create(&path).map_err(failed)?;
        }
        let database = Database::create(&path).map_err(|error| failed(error.into()))?;
        let values = read(&database).map_err(failed)?;
        let acks_path = acks::path(&path);
        let acks = Acks::open(&acks_path, values.acked).map_err(|cause| StoreError::Io {
            path: acks_path,
            cause,
        })?;
        Ok(Self {
            database,
            path,
            acks: Mutex::new(acks),
            token: values.token,
            production: values.production,
        })
    }

    /// The highest token, as it was when the store was opened; 0 if there was none.
    #[must_use]
    pub const fn token(&self) -> Token {
        self.token
    }

    /// Since when messages were produced, as it was when the store was opened.
    #[must_use]
    pub const fn production(&self) -> Option<Production> {
        self.production
    }

    /// The highest acknowledged position; 0 if none is.
    #[must_use]
    pub fn acked(&self) -> u64 {
        self.acks().position()
    }

    /// Writes the highest token, and waits until it survives a loss of power.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_token(&self, token: Token) -> Result<(), StoreError> {
        self.write(&[(TOKEN, token.get()), (ACKED, self.acked())])
    }

    /// Writes since when messages are produced, and waits until it survives a loss of power.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_production(&self, production: Production) -> Result<(), StoreError> {
        let since = production.moment.duration_since(SystemTime::UNIX_EPOCH);
        let micros = since.unwrap_or_default().as_micros();
        self.write(&[
            (RATE, production.rate),
            (MOMENT, u64::try_from(micros).unwrap_or(u64::MAX)),
            (BASE, production.base),
        ])
    }

    /// Writes the acknowledged position, unless a higher one is. Returns the highest. It survives the process.
    ///
    /// # Errors
    /// When it cannot be written. Then it is not acknowledged.
    pub fn ack(&self, position: u64) -> Result<u64, StoreError> {
        self.acks().raise(position).map_err(|cause| StoreError::Io {
            path: acks::path(&self.path),
            cause,
        })
    }

    fn acks(&self) -> MutexGuard<'_, Acks> {
        self.acks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self, values: &[(&str, u64)]) -> Result<(), StoreError> {
        let write = || -> Result<(), redb::Error> {
            let transaction = self.database.begin_write()?;
            let mut table = transaction.open_table(TABLE)?;
            for (key, value) in values {
                table.insert(key, value)?;
            }
            drop(table);
            Ok(transaction.commit()?)
        };
        write().map_err(|error| failure(&self.path, error))
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("Store");
        text.field("path", &self.path).finish_non_exhaustive()
    }
}

/// A process that is killed meanwhile must leave no half database under this name: redb would refuse it for ever.
fn create(path: &Path) -> Result<(), redb::Error> {
    let directory = match path.parent() {
        Some(directory) if directory != Path::new("") => directory,
        _ => Path::new("."),
    };
    // Without the temporary name, which says nothing to anyone.
    let file = tempfile::NamedTempFile::new_in(directory);
    let file = file.map_err(|error| io::Error::from(error.kind()))?;
    drop(Database::builder().create_file(file.reopen()?)?);
    match file.persist_noclobber(path) {
        Err(error) if error.error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(error.error.into());
        }
        _ => {}
    }
    Ok(File::open(directory)?.sync_all()?)
}

struct Values {
    token: Token,
    acked: u64,
    production: Option<Production>,
}

fn read(database: &Database) -> Result<Values, redb::Error> {
    let transaction = database.begin_read()?;
    let table = match transaction.open_table(TABLE) {
        Ok(table) => Some(table),
        Err(TableError::TableDoesNotExist(_)) => None,
        Err(error) => return Err(error.into()),
    };
    let value = |key| -> Result<Option<u64>, redb::Error> {
        let Some(table) = &table else {
            return Ok(None);
        };
        Ok(table.get(key)?.map(|value| value.value()))
    };
    let production = match (value(RATE)?, value(MOMENT)?, value(BASE)?) {
        (Some(rate), Some(moment), Some(base)) => Some(Production {
            rate,
            moment: SystemTime::UNIX_EPOCH + Duration::from_micros(moment),
            base,
        }),
        _ => None,
    };
    Ok(Values {
        token: Token::new(value(TOKEN)?.unwrap_or_default()),
        acked: value(ACKED)?.unwrap_or_default(),
        production,
    })
}

fn failure(path: &Path, error: redb::Error) -> StoreError {
    let path = path.to_owned();
    match error {
        redb::Error::DatabaseAlreadyOpen => StoreError::Locked { path },
        redb::Error::Io(source) if source.kind() == io::ErrorKind::InvalidData => {
            let reason = source.to_string();
            StoreError::Broken { path, reason }
        }
        redb::Error::Io(cause) => StoreError::Io { path, cause },
        error => StoreError::Broken {
            path,
            reason: error.to_string(),
        },
    }
}

#[cfg(test)]
mod tests;
