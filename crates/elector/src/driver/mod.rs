//! The low level: one task that runs the election on a store.
//!
//! [`Driver::spawn`] gives a [`DriverHandle`] for commands and a channel of [`DriverEvent`]s. The owner
//! keeps the duties that [`soloist_core::election`] names: to stop its work in time, and not to
//! [`leave`](DriverHandle::leave) before the work has stopped.

mod heartbeat;
mod task;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use soloist_core::election::{Config, Elected, Loss};
use soloist_core::ids::Identity;
use soloist_core::orders::{OrderRefusal, Ordered, Pause};
use soloist_core::time::Moment;
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinHandle};
use tracing::{Instrument, info_span};

use crate::clock;
use crate::store::{LeaseStore, StoreError, WatchEnded};
use heartbeat::Pulse;
use task::{Command, Task};

pub use crate::carrier::RequestKind;
pub use heartbeat::{Heartbeat, HeartbeatMonitor};

/// What the owner of an election is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriverEvent {
    /// We lead.
    Elected(Elected),
    /// We lead until then.
    Extended {
        /// The new end.
        valid_until: Moment,
    },
    /// We do not lead any more.
    Lost(Loss),
    /// What [`DriverHandle::leave`] asked for is done.
    Left,
    /// Another holder was seen in the record, or none.
    Holder(Option<Identity>),
    /// Somebody ordered that our term end, so we have resigned.
    Ordered(Ordered),
    /// Somebody ordered something that is not obeyed.
    OrderRefused(OrderRefusal),
    /// From now on nobody may take the lease; or, with `None`, somebody may again.
    Paused(Option<Pause>),
    /// The store refuses us until somebody changes something. It is tried again.
    Refused {
        /// What, where, and what to do.
        error: StoreError,
        /// It has from the start, and for a minute.
        for_good: bool,
    },
    /// A request ended: for metrics, and for logs that say why.
    Answered {
        /// Which kind.
        request: RequestKind,
        /// How long it took.
        took: Duration,
        /// What went wrong, if something did.
        error: Option<StoreError>,
    },
    /// The watch ended; a read and a new watch follow.
    WatchEnded(WatchEnded),
}

/// Starts drivers.
#[derive(Debug)]
pub struct Driver;

impl Driver {
    /// Starts the election's task, in the tokio runtime that this is called in, which must have I/O
    /// enabled. It takes no part before [`DriverHandle::stand`], and ends, without
    /// releasing anything, when the handle or the receiver is dropped.
    ///
    /// The channel is bounded: an owner that takes no events for long stops the renewals, as it should.
    ///
    /// # Errors
    /// When the system has no file descriptor left for a timer.
    pub fn spawn<S: LeaseStore>(
        store: S,
        config: Config,
    ) -> io::Result<(DriverHandle, mpsc::Receiver<DriverEvent>)> {
        let (command_sender, commands) = mpsc::unbounded_channel();
        let (events, event_receiver) = mpsc::channel(64);
        let pulse = Arc::new(Pulse::default());
        pulse.beat(clock::now());
        let span = info_span!("election", identity = %config.identity, store = %store.describe());
        let task = Task::new(store, config, commands, events, Arc::clone(&pulse))?;
        let handle = DriverHandle {
            commands: command_sender,
            pulse,
            task: tokio::spawn(task.run().instrument(span)),
        };
        Ok((handle, event_receiver))
    }
}

/// Commands to the election's task, and a look at its health. A command to a task that has ended does
/// nothing: the closed event channel says that it has.
#[derive(Debug)]
pub struct DriverHandle {
    commands: mpsc::UnboundedSender<Command>,
    pulse: Arc<Pulse>,
    task: JoinHandle<()>,
}

impl DriverHandle {
    /// The loop turns at least this often, so a [`heartbeat`](Self::heartbeat) that is a few of these
    /// old means that it has stalled.
    pub const HEARTBEAT: Duration = Duration::from_secs(2);

    /// See [`Election::stand`](soloist_core::election::Election::stand).
    pub fn stand(&self) {
        let _ = self.commands.send(Command::Stand);
    }

    /// See [`Election::resign`](soloist_core::election::Election::resign).
    pub fn resign(&self) {
        let _ = self.commands.send(Command::Resign);
    }

    /// See [`Election::leave`](soloist_core::election::Election::leave); only when our work has stopped.
    pub fn leave(&self) {
        let _ = self.commands.send(Command::Leave);
    }

    /// How often the loop has turned, and when last.
    #[must_use]
    pub fn heartbeat(&self) -> Heartbeat {
        self.pulse.read()
    }

    /// A look at the heartbeat for somebody who does not own the handle.
    #[must_use]
    pub fn monitor(&self) -> HeartbeatMonitor {
        HeartbeatMonitor(Arc::clone(&self.pulse))
    }

    /// Ends the task, without releasing anything, and says how it had ended if it had.
    ///
    /// # Errors
    /// When it panicked.
    pub async fn join(self) -> Result<(), JoinError> {
        drop(self.commands);
        self.task.await
    }
}
