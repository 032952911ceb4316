//! What a child does, as named parts that run side by side, are ready together and end together.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

#[cfg(feature = "server")]
use hyper::body::{Body, Incoming};
#[cfg(feature = "server")]
use hyper::{Request, Response};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::sleep;
#[cfg(feature = "server")]
use tower::Service;
use tracing::{info, warn};

#[cfg(any(feature = "server", feature = "source"))]
use crate::outcome::Outcome;
use crate::panics::panic_message;
use crate::reports::{Reporter, Reports};
#[cfg(feature = "server")]
use crate::server::Server;
use crate::shutdown::Shutdown;
#[cfg(feature = "source")]
use crate::source::{Intake, Source};
#[cfg(feature = "stream")]
use crate::stream::{Consumer, Subscriber};
use crate::worker::Worker;

/// One thing that a child does: a stream, a server or a loop. [`Worker::run`] runs any number of them.
#[must_use = "it does nothing until Worker::run runs it"]
pub struct Part {
    name: String,
    is_ready_at_once: bool,
    run: Box<dyn FnOnce(Context) -> Run + Send>,
}

/// What a part may use while it runs.
pub(crate) struct Context {
    #[cfg(feature = "stream")]
    pub(crate) worker: Worker,
    pub(crate) shutdown: Shutdown,
    pub(crate) reporter: Reporter,
}

/// How a part ended, unless it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// All that it had begun is done.
    Complete,
    /// The time ran out before that.
    Cut,
}

impl Ended {
    #[cfg(any(feature = "server", feature = "source"))]
    fn new(outcome: &impl Outcome) -> Self {
        match outcome.is_complete() {
            true => Self::Complete,
            false => Self::Cut,
        }
    }
}

type Failure = Box<dyn Error + Send + Sync>;
type Run = Pin<Box<dyn Future<Output = Result<Ended, Failure>> + Send>>;

/// Why a child has ended that was to go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RunError {
    /// A part failed, and the others ended with it.
    #[error("{name}: {cause}")]
    Failed {
        name: String,
        #[source]
        cause: Failure,
    },
    /// A part panicked, and the others ended with it.
    #[error("{name} panicked: {message}")]
    Panicked { name: String, message: String },
    /// The shutdown's time was too short.
    #[error("the time ran out before {} had ended in order", names.join(" and "))]
    Cut { names: Vec<String> },
}

impl fmt::Debug for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Part").field(&self.name).finish()
    }
}

impl Part {
    pub(crate) fn new<F>(
        name: impl Into<String>,
        is_ready_at_once: bool,
        run: impl FnOnce(Context) -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Ended, Failure>> + Send + 'static,
    {
        Self {
            name: name.into(),
            is_ready_at_once,
            run: Box::new(move |context| Box::pin(run(context))),
        }
    }

    /// A stream, consumed as [`Worker::consume`] does it. It is ready when the stream is open for the first time.
    #[cfg(feature = "stream")]
    pub fn stream<S>(name: impl Into<String>, consumer: Consumer, subscriber: S) -> Self
    where
        S: Subscriber + Send + 'static,
        S::Message: 'static,
        S::Receipt: 'static,
        S::Error: fmt::Debug + Send + Sync + 'static,
    {
        Self::new(name, false, |context| async move {
            let Context {
                worker,
                shutdown,
                reporter,
            } = context;
            let consumed = worker
                .consume_in(&shutdown, consumer, &subscriber, &reporter)
                .await?;
            Ok(Ended::new(&consumed))
        })
    }

    /// A queue of any kind. It is ready at once: to connect is the source's, before it is given here.
    #[cfg(feature = "source")]
    pub fn source<S>(name: impl Into<String>, intake: Intake<S>) -> Self
    where
        S: Source + Send + 'static,
        S::Error: fmt::Debug + Send + Sync + 'static,
    {
        Self::new(name, true, |context| async move {
            let Context {
                shutdown, reporter, ..
            } = context;
            reporter.watch_progress(intake.progress());
            let states = intake.states();
            let summary = tokio::select! {
                biased;
                never = reporter.follow(states) => match never {},
                ended = intake.run(&shutdown) => ended?,
            };
            Ok(Ended::new(&summary))
        })
    }

    /// A server, which is ready at once: its listener exists.
    #[cfg(feature = "server")]
    pub fn server<S, B>(name: impl Into<String>, server: Server, service: S) -> Self
    where
        S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
        S::Future: Send,
        S::Error: Into<Failure> + Send,
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Failure>,
    {
        Self::new(name, true, |context| async move {
            let Context {
                shutdown, reporter, ..
            } = context;
            reporter.state("serving");
            let serve = server.serve(service, &shutdown);
            let drained = reporter.draining(&shutdown, serve).await;
            Ok(Ended::new(&drained))
        })
    }

    /// A loop of any kind: a poller, a job at intervals, a reader of a queue. It ends by returning, at the latest when its
    /// shutdown's time is over; then it is dropped where it waits, and the exit code tells.
    ///
    /// ```no_run
    /// # async fn tidy_up() -> std::io::Result<()> { Ok(()) }
    /// use std::time::Duration;
    /// use soloist_worker::Part;
    ///
    /// let part = Part::task("tidy", async |task| {
    ///     while task.pause(Duration::from_secs(60)).await {
    ///         tidy_up().await?;
    ///     }
    ///     std::io::Result::Ok(())
    /// });
    /// ```
    pub fn task<F, E>(
        name: impl Into<String>,
        work: impl FnOnce(Task) -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Failure>,
    {
        Self::new(name, true, |context| async move {
            let Context {
                shutdown, reporter, ..
            } = context;
            reporter.state("running");
            let work = work(Task {
                shutdown: shutdown.clone(),
                reporter: reporter.clone(),
            });
            tokio::select! {
                biased;
                done = reporter.draining(&shutdown, work) => done.map(|()| Ended::Complete).map_err(Into::into),
                () = shutdown.over() => Ok(Ended::Cut),
            }
        })
    }

    /// The child is ready when this task has said so ([`Task::ready`]), and not as soon as it has started.
    pub fn ready_when_told(mut self) -> Self {
        self.is_ready_at_once = false;
        self
    }
}

/// What a task is given: when to stop, and how to say that it goes on.
#[derive(Debug)]
pub struct Task {
    shutdown: Shutdown,
    reporter: Reporter,
}

impl Task {
    /// When to stop, and the time that is left then.
    #[must_use]
    pub fn shutdown(&self) -> &Shutdown {
        &self.shutdown
    }

    /// Waits for what the task has no hand in: the next message, a tick. `None` once the shutdown has begun.
    ///
    /// To the watchdog a task that waits here is well, and one that has not come back here for longer than the watchdog's
    /// limit is stuck. A task that never comes here is not watched.
    pub async fn wait_for<T>(&self, event: impl Future<Output = T>) -> Option<T> {
        self.reporter.idle();
        let came = tokio::select! {
            biased;
            () = self.shutdown.begun() => None,
            came = event => Some(came),
        };
        self.reporter.busy();
        came
    }

    /// Waits for so long; `false` once the shutdown has begun.
    pub async fn pause(&self, time: Duration) -> bool {
        self.wait_for(sleep(time)).await.is_some()
    }

    /// Says that the task is ready; see [`Part::ready_when_told`].
    pub fn ready(&self) {
        self.reporter.ready();
    }

    /// Says how it is, in a few words: a part of the child's status.
    pub fn status(&self, text: impl Into<String>) {
        self.reporter.state(text);
    }
}

/// Runs all parts until each has ended: after the shutdown, or because one of them has failed.
pub(crate) async fn run_all(worker: &Worker, parts: Vec<Part>) -> Result<(), RunError> {
    let reports = Reports::new(parts.iter().map(|part| part.name.clone()));
    worker.beat_while_progressing(&reports);
    let mut running = Running::start(worker, &reports, parts);
    tokio::select! {
        result = running.end(worker, &reports) => result,
        never = reports.tell(worker) => match never {},
    }
}

/// The parts at work. To drop it cuts them all.
struct Running {
    tasks: JoinSet<Result<Ended, Failure>>,
    numbers: HashMap<Id, usize>,
}

impl Running {
    fn start(worker: &Worker, reports: &Reports, parts: Vec<Part>) -> Self {
        let mut tasks = JoinSet::new();
        let mut numbers = HashMap::new();
        for (number, part) in parts.into_iter().enumerate() {
            let reporter = reports.reporter(number);
            if part.is_ready_at_once {
                reporter.ready();
            }
            let context = Context {
                #[cfg(feature = "stream")]
                worker: worker.clone(),
                shutdown: worker.stream(),
                reporter,
            };
            let task = tasks.spawn(async move { (part.run)(context).await });
            numbers.insert(task.id(), number);
        }
        Self { tasks, numbers }
    }

    /// Waits for all of them. The first failure ends the others, in order, and is what is told.
    async fn end(&mut self, worker: &Worker, reports: &Reports) -> Result<(), RunError> {
        let mut failed = None;
        let mut cut = Vec::new();
        while let Some(joined) = self.tasks.join_next_with_id().await {
            let id = joined.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
            let Some(&number) = self.numbers.get(&id) else {
                continue;
            };
            let reporter = reports.reporter(number);
            let name = reporter.name();
            reporter.ended();
            let failure = match joined {
                Ok((_, Ok(Ended::Complete))) => {
                    info!(part = name, "ended");
                    continue;
                }
                Ok((_, Ok(Ended::Cut))) => {
                    warn!(part = name, "cut: the time ran out");
                    cut.push(name);
                    continue;
                }
                Ok((_, Err(cause))) => RunError::Failed { name, cause },
                Err(error) => RunError::Panicked {
                    name,
                    message: join_message(error),
                },
            };
            if failed.is_some() {
                warn!("{failure}");
                continue;
            }
            if !self.tasks.is_empty() && !worker.process().is_begun() {
                warn!("{failure}; the other parts end, too");
            }
            failed = Some(failure);
            worker.stop();
        }
        match failed {
            Some(failure) => Err(failure),
            None if cut.is_empty() => Ok(()),
            None => Err(RunError::Cut { names: cut }),
        }
    }
}

fn join_message(error: JoinError) -> String {
    match error.try_into_panic() {
        Ok(panic) => panic_message(&*panic),
        Err(_) => "it was cancelled".to_owned(),
    }
}

#[cfg(test)]
mod tests;
