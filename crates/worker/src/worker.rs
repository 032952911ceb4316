//! The child itself: in whose name it works, what it says, and how it ends.

use std::io;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use soloist_core::ids::Token;
use tracing::info;

use crate::environment::{Environment, EnvironmentError, Role};
use crate::notify::Notices;
use crate::part::{self, Part};
#[cfg(feature = "stream")]
use crate::reports::{Reporter, Reports};
use crate::shutdown::Shutdown;
#[cfg(feature = "stream")]
use crate::stream::{Consumer, ConsumerError, Subscriber, Summary};

mod finish;
mod heartbeat;
mod signals;

use finish::Cleanup;
use heartbeat::Heart;

/// A child of soloist or, without it, a program that behaves as one. Clones are the same worker.
#[derive(Clone, Debug)]
pub struct Worker {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    environment: Environment,
    process: Shutdown,
    term: Shutdown,
    notices: Notices,
    cleanups: Mutex<Vec<Cleanup>>,
    heart: Mutex<Heart>,
    has_finished: AtomicBool,
}

/// Why there is no worker.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The environment is not as soloist makes it.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// Nothing would tell us to stop.
    #[error("SIGTERM and SIGINT cannot be listened to: {0}")]
    Signals(#[from] io::Error),
}

impl Worker {
    /// Reads the environment and listens to SIGTERM and SIGINT from now on: the first begins the shutdown, the second
    /// ends its time. When soloist says that the Pod's end is near, the shutdown is [announced](Shutdown::announce). Needs
    /// tokio's runtime.
    ///
    /// Signals are heard, and time runs out, on a thread of its own: also if a handler that blocks holds all the others. When this
    /// process is still there two seconds after the shutdown's time is over, and has not [finished](Self::finish) in order, it is
    /// ended there and then, with a message and the code 1.
    ///
    /// With another `--stop-signal`, listen to it yourself and call `worker.process().begin()`.
    ///
    /// # Errors
    /// When a variable of soloist's is missing or wrong, or the signals cannot be listened to.
    pub fn from_env() -> Result<Self, WorkerError> {
        let environment = Environment::read(|name| std::env::var_os(name), std::process::id())?;
        let worker = Self::new(environment);
        worker.obey_signals()?;
        tokio::spawn(worker.clone().hear_of_ending());
        Ok(worker)
    }

    pub(crate) fn new(environment: Environment) -> Self {
        let process = Shutdown::new(environment.stop);
        // The ladder has no step between them.
        let term = process.below(environment.stop);
        let notices = Notices::to(environment.notify_socket.as_deref());
        Self {
            inner: Arc::new(Inner {
                environment,
                process,
                term,
                notices,
                cleanups: Mutex::default(),
                heart: Mutex::default(),
                has_finished: AtomicBool::new(false),
            }),
        }
    }

    async fn hear_of_ending(self) {
        self.inner.notices.ending().await;
        if !self.process().is_begun() {
            info!("the Pod's end is near: clients are sent elsewhere until the stop comes");
        }
        self.process().announce();
    }

    /// In whose name we work; `None` without soloist.
    #[must_use]
    pub fn role(&self) -> Option<&Role> {
        self.inner.environment.role.as_ref()
    }

    /// The fencing token, to be sent along with whatever is written elsewhere; `None` without soloist.
    #[must_use]
    pub fn token(&self) -> Option<Token> {
        self.role().map(|role| role.token)
    }

    /// The shutdown of the whole process; its time is the ladder's time for the child.
    #[must_use]
    pub fn process(&self) -> &Shutdown {
        &self.inner.process
    }

    /// The shutdown of this term: it comes with the process's, or when a server says that a later leader is at work.
    #[must_use]
    pub fn term(&self) -> &Shutdown {
        &self.inner.term
    }

    /// The shutdown of one stream, below the term's; its time is the ladder's time for the drain.
    #[must_use]
    pub fn stream(&self) -> Shutdown {
        self.inner.term.below(self.inner.environment.drain)
    }

    /// Runs a consumer in this term: its requests bear the token, its shutdown is a [stream](Self::stream)'s, its states are
    /// told as status, and we are [ready](Self::ready) once its stream is open for the first time. The watchdog hears of us as with
    /// [`run`](Self::run). If the server has seen a later token, the term is over at once.
    ///
    /// For more than one stream, use [`run`](Self::run).
    ///
    /// # Errors
    /// When trying again would not help, or a message cannot be handled.
    #[cfg(feature = "stream")]
    pub async fn consume<S: Subscriber>(
        &self,
        consumer: Consumer,
        subscriber: &S,
    ) -> Result<Summary, ConsumerError<S::Error>> {
        let reports = Reports::new(["stream".to_owned()].into_iter());
        self.beat_while_progressing(&reports);
        let (shutdown, reporter) = (self.stream(), reports.reporter(0));
        let result = tokio::select! {
            biased;
            never = reports.tell(self) => match never {},
            result = self.consume_in(&shutdown, consumer, subscriber, &reporter) => result,
        };
        reporter.ended();
        result
    }

    #[cfg(feature = "stream")]
    pub(crate) async fn consume_in<S: Subscriber>(
        &self,
        shutdown: &Shutdown,
        consumer: Consumer,
        subscriber: &S,
        reporter: &Reporter,
    ) -> Result<Summary, ConsumerError<S::Error>> {
        let consumer = consumer.role(self.role());
        reporter.watch_progress(consumer.progress());
        let states = consumer.states();
        let result = tokio::select! {
            biased;
            never = reporter.follow(states) => match never {},
            result = consumer.run(shutdown, subscriber) => result,
        };
        if matches!(result, Err(ConsumerError::Fenced { .. })) {
            // A later leader is at work already: nothing of this term may go on, not even for a drain.
            self.term().hurry();
        }
        result
    }

    /// Runs the child: all its parts side by side, until they have ended, and then the cleanups. The exit code for `main`.
    ///
    /// - soloist is told that we are ready when all parts are, and how each of them is.
    /// - The first part that fails or panics ends the others, in order; so does a server that has seen a later token.
    /// - All drain at the same time, each within the ladder's time for the drain.
    /// - The watchdog hears of us for as long as no part is stuck: a stream that has messages in hand and finishes none, or a
    ///   [task](Part::task) that does not come back to wait, for longer than the watchdog's limit.
    /// - The code is 0 if all has ended in order, and 1 if a part failed or was cut, or a cleanup failed.
    pub async fn run(&self, parts: impl IntoIterator<Item = Part>) -> ExitCode {
        let result = part::run_all(self, parts.into_iter().collect()).await;
        self.finish(result).await
    }

    /// Says that we are up: for `--ready notify`.
    pub fn ready(&self) {
        self.inner.notices.ready();
    }

    /// Says how we are, in one line: soloist logs it.
    pub fn status(&self, text: &str) {
        self.inner.notices.status(text);
    }

    /// Begins the shutdown of the process if it has not begun, and says so.
    pub(crate) fn stop(&self) {
        if !self.process().is_begun() {
            self.inner.notices.stopping();
            self.process().begin();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    pub(super) fn worker(variables: &'static [(&str, &str)]) -> Worker {
        let find = |name: &str| {
            let (_, value) = variables.iter().find(|(key, _)| *key == name)?;
            Some((*value).into())
        };
        Worker::new(Environment::read(find, 1).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn losing_the_term_ends_its_streams_and_not_the_process() {
        let worker = worker(&[]);
        let (first, second) = (worker.stream(), worker.stream());
        first.begin();
        assert!(!second.is_begun());
        worker.term().begin();
        assert!(second.is_begun() && !worker.process().is_begun());
        assert_eq!(second.time_left(), Some(Duration::from_secs(15)));
        assert_eq!(worker.term().time_left(), Some(Duration::from_secs(20)));
    }
}
