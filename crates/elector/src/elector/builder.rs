//! How an elector is put together.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use soloist_core::election::Config;
use soloist_core::ids::{Identity, InstanceId, PodUid};
use soloist_core::timings::{Preset, Timings};
use tokio::sync::{mpsc, watch};
use tracing::Instrument;

use super::task::{Limits, Task};
use super::{Elector, ElectorError, Leadership, Term};
use crate::driver::Driver;
use crate::random;
use crate::store::LeaseStore;

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;
type Start = Box<dyn FnMut(Term) -> Work + Send>;
type Tell = Box<dyn FnMut() + Send>;
type TellWho = Box<dyn FnMut(&Identity) + Send>;

/// For those who know client-go's `LeaderCallbacks`.
#[derive(Default)]
pub(super) struct Callbacks {
    pub(super) started: Option<Start>,
    pub(super) stopped: Option<Tell>,
    pub(super) new_leader: Option<TellWho>,
}

impl fmt::Debug for Callbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callbacks").finish_non_exhaustive()
    }
}

/// See [`Elector::builder`].
#[derive(Debug)]
#[must_use]
pub struct ElectorBuilder<S> {
    store: S,
    identity: Option<Identity>,
    pod: Option<PodUid>,
    timings: Timings,
    drain_limit: Duration,
    callbacks: Callbacks,
}

impl<S: LeaseStore> ElectorBuilder<S> {
    pub(super) fn new(store: S) -> Self {
        Self {
            store,
            identity: None,
            pod: None,
            timings: Timings::preset(Preset::Standard),
            drain_limit: Duration::from_secs(60),
            callbacks: Callbacks::default(),
        }
    }

    /// The replica's name in the lease. Without it: `$POD_NAME`, else the host's name and a random part.
    pub fn identity(mut self, identity: Identity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// The lease's timings. Without it: 15 s, renewed every 5 s.
    pub const fn timings(mut self, timings: Timings) -> Self {
        self.timings = timings;
        self
    }

    /// How long a [shutdown](Elector::shutdown) waits for the term to be finished, and renews it meanwhile. Without it: 60 s.
    pub const fn drain_limit(mut self, limit: Duration) -> Self {
        self.drain_limit = limit;
        self
    }

    /// The Pod's UID, only if this process is the first in the Pod's only PID namespace: see [`PodUid`].
    pub fn pod(mut self, pod: PodUid) -> Self {
        self.pod = Some(pod);
        self
    }

    /// Called with every term; leading ends when the future does, and the elector then stands again. If it panics the lease is
    /// released and the elector ends: [`ElectorError::Died`]. With
    /// this the elector takes part always, and nobody needs to call [`Elector::lead`].
    pub fn on_started_leading<F, W>(mut self, mut work: F) -> Self
    where
        F: FnMut(Term) -> W + Send + 'static,
        W: Future<Output = ()> + Send + 'static,
    {
        self.callbacks.started = Some(Box::new(move |term| Box::pin(work(term))));
        self
    }

    /// Called once for every term: when it is lost or finished, whichever comes first.
    pub fn on_stopped_leading(mut self, tell: impl FnMut() + Send + 'static) -> Self {
        self.callbacks.stopped = Some(Box::new(tell));
        self
    }

    /// Called when another leader is seen, this replica included.
    pub fn on_new_leader(mut self, tell: impl FnMut(&Identity) + Send + 'static) -> Self {
        self.callbacks.new_leader = Some(Box::new(tell));
        self
    }

    /// Starts it, on the tokio runtime that this is called in.
    ///
    /// # Errors
    /// When the system has no randomness or no file descriptor left.
    pub fn spawn(self) -> Result<Elector, ElectorError> {
        let instance = InstanceId::from_random(random::bits128().map_err(ElectorError::Start)?);
        let identity = match self.identity {
            Some(identity) => identity,
            None => default_identity(instance).map_err(ElectorError::Start)?,
        };
        let config = Config {
            identity: identity.clone(),
            instance,
            pod: self.pod,
            timings: self.timings,
            seed: random::bits64().map_err(ElectorError::Start)?,
        };
        let (driver, events) = Driver::spawn(self.store, config).map_err(ElectorError::Start)?;
        let heartbeat = driver.monitor();
        let (command_sender, commands) = mpsc::unbounded_channel();
        let (leadership_sender, leadership) = watch::channel(Leadership {
            leader: None,
            since: SystemTime::now(),
            term: None,
            trouble: None,
        });
        let fate = Arc::new(OnceLock::new());
        let task = Task::new(
            driver,
            events,
            commands,
            leadership_sender,
            self.callbacks,
            Limits {
                timings: self.timings,
                drain: self.drain_limit,
            },
            Arc::clone(&fate),
        );
        let span = tracing::info_span!("elector", %identity);
        Ok(Elector {
            identity,
            commands: command_sender,
            leadership,
            heartbeat,
            fate,
            task: tokio::spawn(task.run().instrument(span)),
        })
    }
}

/// A replica's name if it was given none: `$POD_NAME`, else the host's name and a random part.
///
/// # Errors
/// When the host has no usable name, which is not expected.
pub fn default_identity(instance: InstanceId) -> io::Result<Identity> {
    if let Ok(pod) = std::env::var("POD_NAME")
        && let Ok(identity) = Identity::try_new(&pod)
    {
        return Ok(identity);
    }
    let system = rustix::system::uname();
    let host = system.nodename().to_string_lossy();
    let random = instance.to_string();
    let name = format!("{host}_{}", &random[..8]);
    Identity::try_new(&name)
        .or_else(|_| Identity::try_new(&random))
        .map_err(io::Error::other)
}
