//! The end: what is cleaned up, and the exit code.

use std::fmt::{self, Display};
use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::sync::{MutexGuard, PoisonError};

use tracing::error;

use super::Worker;
use crate::outcome::Outcome;

pub(super) struct Cleanup {
    name: String,
    work: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl fmt::Debug for Cleanup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Worker {
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

    fn cleanups(&self) -> MutexGuard<'_, Vec<Cleanup>> {
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
        self.inner.has_finished.store(is_clean, Ordering::Relaxed);
        match is_clean {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::process::ExitCode;
    use std::time::Duration;

    use tokio::sync::mpsc;
    use tokio::time::Instant;

    use crate::worker::tests::worker;

    fn code(code: ExitCode) -> String {
        format!("{code:?}")
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
}
