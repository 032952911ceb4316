//! The elector: leadership as values, for any program.

mod builder;
mod task;
mod term;

use std::io;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use soloist_core::ids::{Identity, Term as TermNumber, Token};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::driver::{Heartbeat, HeartbeatMonitor};
use crate::store::{LeaseStore, StoreError};

pub use builder::{ElectorBuilder, default_identity};
pub use term::Term;

use task::Command;

/// Takes part in an election for as long as somebody waits in [`Elector::lead`], or always if it was built
/// with [`on_started_leading`](ElectorBuilder::on_started_leading).
///
/// Dropping it is a [`shutdown`](Elector::shutdown) that nobody waits for.
#[derive(Debug)]
pub struct Elector {
    identity: Identity,
    commands: mpsc::UnboundedSender<Command>,
    leadership: watch::Receiver<Leadership>,
    heartbeat: HeartbeatMonitor,
    fate: Arc<OnceLock<Fate>>,
    task: JoinHandle<()>,
}

/// Who leads, as far as this replica has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leadership {
    /// The holder in the record, if there is one.
    pub leader: Option<Identity>,
    /// Since when this replica has known it, on the wall clock.
    pub since: SystemTime,
    /// This replica's own term, if it leads.
    pub term: Option<OwnTerm>,
    /// What the store's last request failed with, if it did.
    pub trouble: Option<StoreError>,
}

/// A term of this replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnTerm {
    /// Its number, for people.
    pub number: TermNumber,
    /// Its fencing token.
    pub token: Token,
}

/// How an elector ended that did not end in order.
#[derive(Clone, Debug)]
enum Fate {
    Died(String),
    Unfinished,
}

impl From<Fate> for ElectorError {
    fn from(fate: Fate) -> Self {
        match fate {
            Fate::Died(reason) => Self::Died(reason),
            Fate::Unfinished => Self::Unfinished,
        }
    }
}

/// Why there is no leadership to be had from an elector.
#[derive(Debug, thiserror::Error)]
pub enum ElectorError {
    /// It could not be started.
    #[error("the elector cannot start: {0}")]
    Start(#[source] io::Error),
    /// It was shut down.
    #[error("the elector has been shut down")]
    Ended,
    /// Its task died, or one of the callbacks. Every term was cancelled.
    #[error("the elector's task died: {0}")]
    Died(String),
    /// It was shut down, and its term was not finished within the [drain limit](ElectorBuilder::drain_limit). The lease was not
    /// released, and runs out by itself.
    #[error(
        "the elector has been shut down, but its term was not finished; its lease has to run out"
    )]
    Unfinished,
}

impl Elector {
    /// An elector on this store.
    pub fn builder<S: LeaseStore>(store: S) -> ElectorBuilder<S> {
        ElectorBuilder::new(store)
    }

    /// Waits until this replica leads. The term is held, and renewed, until it is
    /// [finished](Term::finish) or dropped. Giving up the wait gives up the candidacy.
    ///
    /// # Errors
    /// When the elector has ended.
    pub async fn lead(&self) -> Result<Term, ElectorError> {
        let (sender, receiver) = oneshot::channel();
        self.commands
            .send(Command::Lead(sender))
            .map_err(|_| self.fate())?;
        receiver.await.map_err(|_| self.fate())
    }

    /// Announces the end of the present term, if there is one: it is cancelled, and the lease is kept,
    /// and renewed, until it is finished.
    pub fn resign(&self) {
        let _ = self.commands.send(Command::Resign);
    }

    /// Resigns, waits for the term to be finished, releases the lease and ends. A term that is not finished within the
    /// [drain limit](ElectorBuilder::drain_limit) is left to run out: what its work does is unknown, so nothing is released.
    ///
    /// # Errors
    /// When the elector's task or a callback had died, or the term was not finished.
    pub async fn shutdown(self) -> Result<(), ElectorError> {
        let Self {
            commands,
            fate,
            task,
            ..
        } = self;
        drop(commands);
        if let Err(error) = task.await {
            return Err(ElectorError::Died(error.to_string()));
        }
        match fate.get() {
            Some(fate) => Err(fate.clone().into()),
            None => Ok(()),
        }
    }

    /// Who leads, now and at every change. It closes when the elector ends.
    #[must_use]
    pub fn leadership(&self) -> watch::Receiver<Leadership> {
        self.leadership.clone()
    }

    /// This replica's name.
    #[must_use]
    pub const fn identity(&self) -> &Identity {
        &self.identity
    }

    /// A sign of life of the election's loop: see [`DriverHandle::HEARTBEAT`](crate::DriverHandle::HEARTBEAT).
    #[must_use]
    pub fn heartbeat(&self) -> Heartbeat {
        self.heartbeat.heartbeat()
    }

    fn fate(&self) -> ElectorError {
        match self.fate.get() {
            Some(fate) => fate.clone().into(),
            None => ElectorError::Ended,
        }
    }
}
