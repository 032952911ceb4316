//! The child itself: in whose name it works, what it says, and how it ends.

use std::fmt::Display;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use soloist_core::ids::Token;
use soloist_core::time::Human;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{error, info, warn};

use crate::environment::{Environment, EnvironmentError, Role};
use crate::notify::Notices;
use crate::outcome::Outcome;
use crate::part::{self, Part};
#[cfg(feature = "stream")]
use crate::reports::Reporter;
use crate::reports::Reports;
use crate::shutdown::Shutdown;
#[cfg(feature = "stream")]
use crate::stream::{Consumer, ConsumerError, Subscriber, Summary};

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
}

/// What must hold for a heartbeat.
#[derive(Default)]
struct Heart {
    conditions: Vec<Box<dyn Fn() -> bool + Send>>,
}

impl Heart {
    /// All of them are asked: some note what they see.
    fn is_well(&self) -> bool {
        let conditions = self.conditions.iter();
        conditions.fold(true, |is_well, condition| condition() & is_well)
    }
}

impl std::fmt::Debug for Heart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} conditions", self.conditions.len())
    }
}

struct Cleanup {
    name: String,
    work: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl std::fmt::Debug for Cleanup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
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
    /// With another `--stop-signal`, listen to it yourself and call `worker.process().begin()`.
    ///
    /// # Errors
    /// When a variable of soloist's is missing or wrong, or the signals cannot be listened to.
    pub fn from_env() -> Result<Self, WorkerError> {
        let environment = Environment::read(|name| std::env::var_os(name), std::process::id())?;
        let signals = [
            ("SIGTERM", signal(SignalKind::terminate())?),
            ("SIGINT", signal(SignalKind::interrupt())?),
        ];
        let worker = Self::new(environment);
        tokio::spawn(worker.clone().obey(signals));
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

    async fn obey(self, signals: [(&'static str, Signal); 2]) {
        let [(term_name, mut term), (int_name, mut int)] = signals;
        loop {
            let name = tokio::select! {
                Some(()) = term.recv() => term_name,
                Some(()) = int.recv() => int_name,
                else => return,
            };
            if self.process().is_begun() {
                warn!("{name} once more: no more time for what is under way");
                self.process().hurry();
            } else {
                let (stop, drain) = (self.process().budget(), self.stream().budget());
                info!(
                    "{name}: stopping within {}, streams within {}",
                    Human(stop),
                    Human(drain)
                );
                self.inner.notices.stopping();
                self.process().begin();
            }
        }
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

    /// How often [`beat`](Self::beat) is expected; `None` if nobody watches.
    #[must_use]
    pub fn watchdog(&self) -> Option<Duration> {
        self.inner.environment.watchdog
    }

    /// Says that we are alive: for `--health notify`.
    pub fn beat(&self) {
        self.inner.notices.alive();
    }

    /// Beats as often as needed for as long as `is_well` says so, and so does every other condition: those given before, and the
    /// progress of what is [run](Self::run) or consumed. Without a watchdog it does nothing.
    ///
    /// Let it look at the work itself: that this task still runs proves little.
    pub fn beat_while(&self, is_well: impl Fn() -> bool + Send + 'static) {
        let Some(limit) = self.watchdog() else { return };
        let is_first = {
            let mut heart = self.heart();
            heart.conditions.push(Box::new(is_well));
            heart.conditions.len() == 1
        };
        if is_first {
            tokio::spawn(self.clone().keep_beating(limit / 3));
        }
    }

    pub(crate) fn beat_while_progressing(&self, reports: &Reports) {
        if let Some(limit) = self.watchdog() {
            let reports = reports.clone();
            self.beat_while(move || reports.are_well(limit));
        }
    }

    async fn keep_beating(self, interval: Duration) {
        let mut ticks = tokio::time::interval(interval);
        let mut was_well = true;
        loop {
            ticks.tick().await;
            let is_well = self.heart().is_well();
            if is_well {
                self.beat();
            } else if was_well {
                warn!("the work does not go on: no more heartbeats to the watchdog");
            }
            was_well = is_well;
        }
    }

    fn heart(&self) -> std::sync::MutexGuard<'_, Heart> {
        self.inner
            .heart
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins the shutdown of the process if it has not begun, and says so.
    pub(crate) fn stop(&self) {
        if !self.process().is_begun() {
            self.inner.notices.stopping();
            self.process().begin();
        }
    }

    /// Something to be done at the end, by [`finish`](Self::finish): the last one first, each within what is left of the
    /// process's time.
    pub fn on_finish(
        &self,
        name: impl Into<String>,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        let cleanup = Cleanup {
            name: name.into(),
            work: Box::pin(work),
        };
        self.cleanups().push(cleanup);
    }

    fn cleanups(&self) -> std::sync::MutexGuard<'_, Vec<Cleanup>> {
        let cleanups = self.inner.cleanups.lock();
        cleanups.unwrap_or_else(PoisonError::into_inner)
    }

    /// The end: begins the shutdown if it has not begun, cleans up, and says with which code to exit: 0, or 1 if
    /// `result` is an error, which is logged, or is not [complete](Outcome::is_complete), or a cleanup failed.
    pub async fn finish<T: Outcome, E: Display>(&self, result: Result<T, E>) -> ExitCode {
        let failure = match &result {
            Ok(outcome) if outcome.is_complete() => None,
            Ok(_) => Some("the time ran out before all was done".to_owned()),
            Err(error) => Some(format!("{error:#}")),
        };
        let mut is_clean = failure.is_none();
        if let Some(failure) = failure {
            error!("{failure}");
            // The next one's log may be far away: this is where people look first.
            self.status(&format!("failed: {failure}"));
        }
        self.stop();
        loop {
            let Some(Cleanup { name, work }) = self.cleanups().pop() else {
                break;
            };
            // A panic in one must not keep the others from their work.
            let mut work = tokio::spawn(work);
            let failure = tokio::select! {
                done = &mut work => done.err().map(|error| error.to_string()),
                () = self.process().over() => {
                    work.abort();
                    Some("no time is left".to_owned())
                }
            };
            if let Some(failure) = failure {
                error!("cleanup {name:?} failed: {failure}");
                is_clean = false;
            }
        }
        match is_clean {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::net::UnixDatagram;
    use tokio::sync::mpsc;
    use tokio::time::Instant;

    fn worker(variables: &'static [(&str, &str)]) -> Worker {
        let find = |name: &str| {
            let (_, value) = variables.iter().find(|(key, _)| *key == name)?;
            Some((*value).into())
        };
        Worker::new(Environment::read(find, 1).unwrap())
    }

    fn code(code: ExitCode) -> String {
        format!("{code:?}")
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

    #[tokio::test(start_paused = true)]
    async fn the_last_cleanup_comes_first_and_a_panic_stops_none() {
        let worker = worker(&[]);
        let (done, mut order) = mpsc::unbounded_channel();
        for name in ["database", "panics", "socket"] {
            let done = done.clone();
            worker.on_finish(name, async move {
                assert_ne!(name, "panics");
                done.send(name).unwrap();
            });
        }
        let ended = worker.finish(Ok::<_, Infallible>(())).await;
        assert_eq!(code(ended), code(ExitCode::FAILURE));
        assert_eq!(order.recv().await, Some("socket"));
        assert_eq!(order.recv().await, Some("database"));
        assert!(worker.process().is_begun());
    }

    #[tokio::test(start_paused = true)]
    async fn a_cleanup_has_what_is_left_of_the_time_and_no_more() {
        let worker = worker(&[]);
        worker.on_finish("hangs", std::future::pending());
        worker.process().begin();
        tokio::time::advance(Duration::from_secs(5)).await;
        let begun = Instant::now();
        let ended = worker.finish(Ok::<_, Infallible>(())).await;
        assert_eq!(code(ended), code(ExitCode::FAILURE));
        assert_eq!(begun.elapsed(), Duration::from_secs(15));
    }

    #[tokio::test]
    async fn the_exit_code_tells_whether_the_work_went_well() {
        let well = worker(&[]).finish(Ok::<_, Infallible>(())).await;
        assert_eq!(code(well), code(ExitCode::SUCCESS));
        let ill = worker(&[]).finish(Err::<(), _>("the disk is full")).await;
        assert_eq!(code(ill), code(ExitCode::FAILURE));
    }

    #[cfg(feature = "source")]
    #[tokio::test]
    async fn the_exit_code_tells_of_a_drain_that_was_cut() {
        use crate::delivery::{End, Progress};
        for (end, expected) in [
            (End::Confirmed, ExitCode::SUCCESS),
            (End::Cut, ExitCode::FAILURE),
        ] {
            let summary = Progress::default().summary(end);
            let ended = worker(&[]).finish(Ok::<_, Infallible>(summary)).await;
            assert_eq!(code(ended), code(expected), "{end:?}");
        }
    }

    #[tokio::test]
    async fn beats_come_only_while_every_condition_holds() {
        let worker = worker(&[("WATCHDOG_USEC", "30000")]);
        let (looked, mut looks) = mpsc::unbounded_channel();
        worker.beat_while(|| false);
        worker.beat_while(move || looked.send(()).is_ok());
        looks.recv().await.unwrap();
        assert!(!worker.heart().is_well());
    }

    #[tokio::test]
    async fn beats_come_while_all_is_well_and_then_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let listener = UnixDatagram::bind(&path).unwrap();
        let mut environment = Environment::read(|_| None, 1).unwrap();
        environment.watchdog = Some(Duration::from_millis(30));
        environment.notify_socket = Some(path.into());
        let (looked, mut looks) = mpsc::unbounded_channel();
        let count = AtomicUsize::new(0);
        Worker::new(environment).beat_while(move || {
            looked.send(()).unwrap();
            count.fetch_add(1, Ordering::Relaxed) < 2
        });
        for _ in 0..5 {
            looks.recv().await.unwrap();
        }
        let mut beats = Vec::new();
        let mut message = [0; 64];
        while let Ok(length) = listener.try_recv(&mut message) {
            beats.push(String::from_utf8_lossy(&message[..length]).into_owned());
        }
        assert_eq!(beats, ["WATCHDOG=1", "WATCHDOG=1"]);
    }
}
