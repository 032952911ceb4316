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

use crate::reports::{Reporter, Reports};
#[cfg(feature = "server")]
use crate::server::Server;
use crate::shutdown::Shutdown;
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
            reporter.watch_progress(consumer.progress());
            let consumed = worker
                .consume_in(&shutdown, consumer, &subscriber, &reporter)
                .await?;
            match consumed.is_complete() {
                true => Ok(Ended::Complete),
                false => Ok(Ended::Cut),
            }
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
            match drained.is_complete() {
                true => Ok(Ended::Complete),
                false => Ok(Ended::Cut),
            }
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
    if let Some(limit) = worker.watchdog() {
        let reports = reports.clone();
        worker.beat_while(move || reports.are_well(limit));
    }
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
                    message: panic_message(error),
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

fn panic_message(error: JoinError) -> String {
    let Ok(panic) = error.try_into_panic() else {
        return "it was cancelled".to_owned();
    };
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "without a message".to_owned())
}

#[cfg(test)]
mod tests {
    use std::process::ExitCode;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::net::UnixDatagram;
    use tokio::time::{Instant, timeout};

    use super::*;
    use crate::environment::Environment;

    const LIMIT: Duration = Duration::from_secs(10);

    /// A worker, and what it says.
    struct Stage {
        worker: Worker,
        listener: UnixDatagram,
        _folder: tempfile::TempDir,
    }

    impl Stage {
        fn new(watchdog: Option<Duration>) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("notify");
            let listener = UnixDatagram::bind(&path).unwrap();
            let mut environment = Environment::read(|_| None, 1).unwrap();
            environment.watchdog = watchdog;
            environment.notify_socket = Some(path.into());
            Self {
                worker: Worker::new(environment),
                listener,
                _folder: folder,
            }
        }

        async fn hear(&self) -> String {
            let mut message = [0; 4096];
            let heard = timeout(LIMIT, self.listener.recv(&mut message)).await;
            let length = heard.expect("a notice in time").unwrap();
            String::from_utf8_lossy(&message[..length]).into_owned()
        }

        async fn hear_until(&self, wanted: &str) -> Vec<String> {
            let mut heard = Vec::new();
            while heard.last().is_none_or(|last: &String| last != wanted) {
                heard.push(self.hear().await);
            }
            heard
        }

        fn run(&self, parts: Vec<Part>) -> tokio::task::JoinHandle<String> {
            let worker = self.worker.clone();
            tokio::spawn(async move { format!("{:?}", worker.run(parts).await) })
        }
    }

    fn code(code: ExitCode) -> String {
        format!("{code:?}")
    }

    fn waits(name: &str) -> Part {
        Part::task(name, async |task| {
            task.shutdown().begun().await;
            Ok::<_, Failure>(())
        })
    }

    #[tokio::test]
    async fn a_child_is_ready_when_all_its_parts_are() {
        let stage = Stage::new(None);
        let (go, may) = tokio::sync::oneshot::channel::<()>();
        let slow = Part::task("slow", async |task| {
            may.await?;
            task.ready();
            task.status("at work");
            task.shutdown().begun().await;
            Ok::<_, Failure>(())
        });
        let ran = stage.run(vec![waits("quick"), slow.ready_when_told()]);
        let before = stage
            .hear_until("STATUS=quick: running, slow: running")
            .await;
        assert!(
            !before.iter().any(|said| said.contains("READY")),
            "{before:?}"
        );
        go.send(()).unwrap();
        stage.hear_until("READY=1").await;
        stage
            .hear_until("STATUS=quick: running, slow: at work")
            .await;
        stage.worker.process().begin();
        assert_eq!(ran.await.unwrap(), code(ExitCode::SUCCESS));
    }

    #[tokio::test]
    async fn a_part_that_fails_ends_the_others_in_order() {
        let stage = Stage::new(None);
        let tidied = Arc::new(AtomicBool::new(false));
        let seen = tidied.clone();
        let other = Part::task("other", async move |task| {
            task.shutdown().begun().await;
            seen.store(true, Ordering::Relaxed);
            Ok::<_, Failure>(())
        });
        let fails = Part::task("fails", async |_| Err::<(), _>("the disk is full"));
        let ran = stage.run(vec![other, fails]);
        assert_eq!(ran.await.unwrap(), code(ExitCode::FAILURE));
        assert!(tidied.load(Ordering::Relaxed), "it was not let end");
        stage
            .hear_until("STATUS=failed: fails: the disk is full")
            .await;
    }

    #[tokio::test]
    async fn a_part_that_panics_is_told_by_its_name_and_ends_the_others() {
        let stage = Stage::new(None);
        let panics = Part::task("panics", async |task| {
            assert!(task.shutdown().is_begun(), "too early");
            Ok::<_, Failure>(())
        });
        let ran = stage.run(vec![waits("other"), panics]);
        assert_eq!(ran.await.unwrap(), code(ExitCode::FAILURE));
        stage
            .hear_until("STATUS=failed: panics panicked: too early")
            .await;
    }

    #[tokio::test]
    async fn a_part_that_ends_by_itself_leaves_the_others_at_work() {
        let stage = Stage::new(None);
        let once = Part::task("once", async |_| Ok::<_, Failure>(()));
        let ran = stage.run(vec![once, waits("other")]);
        stage.hear_until("STATUS=once: ended, other: running").await;
        assert!(!stage.worker.process().is_begun());
        stage.worker.process().begin();
        assert_eq!(ran.await.unwrap(), code(ExitCode::SUCCESS));
    }

    #[tokio::test]
    async fn the_status_tells_what_still_drains() {
        let stage = Stage::new(None);
        let (end, may) = tokio::sync::oneshot::channel::<()>();
        let slow = Part::task("slow", async move |_| Ok::<_, Failure>(may.await?));
        let ran = stage.run(vec![slow, waits("quick")]);
        stage.hear_until("READY=1").await;
        stage.worker.process().begin();
        stage
            .hear_until("STATUS=slow: draining, quick: ended")
            .await;
        end.send(()).unwrap();
        assert_eq!(ran.await.unwrap(), code(ExitCode::SUCCESS));
    }

    #[tokio::test(start_paused = true)]
    async fn parts_drain_side_by_side_and_one_that_is_cut_shows_in_the_exit_code() {
        let environment = Environment::read(|_| None, 1).unwrap();
        let worker = Worker::new(environment);
        let hangs = |name: &str| {
            Part::task(name, async |_| {
                std::future::pending::<Result<(), Failure>>().await
            })
        };
        worker.process().begin();
        let begun = Instant::now();
        let ended = worker.run([hangs("one"), hangs("two")]).await;
        assert_eq!(code(ended), code(ExitCode::FAILURE));
        assert_eq!(begun.elapsed(), worker.stream().budget());
    }

    #[tokio::test]
    async fn the_heart_beats_while_no_part_is_stuck() {
        let limit = Duration::from_millis(60);
        let stage = Stage::new(Some(limit));
        let (stick, stuck) = tokio::sync::oneshot::channel::<()>();
        let (told, mut is_stuck) = tokio::sync::mpsc::channel(1);
        let part = Part::task("reader", async move |task| {
            task.wait_for(stuck).await;
            told.send(()).await?;
            std::future::pending::<Result<(), Failure>>().await
        });
        let ran = stage.run(vec![part]);
        // Idle for longer than the limit, and well.
        for _ in 0..6 {
            stage.hear_until("WATCHDOG=1").await;
        }
        stick.send(()).unwrap();
        is_stuck.recv().await.unwrap();
        let since = Instant::now();
        let mut last = since;
        let mut message = [0; 4096];
        while timeout(limit * 3, stage.listener.recv(&mut message))
            .await
            .is_ok()
        {
            last = Instant::now();
            assert!(last - since < LIMIT, "the heart of a stuck child beats on");
        }
        assert!(last - since < LIMIT);
        ran.abort();
    }
}
