//! Connects, opens, hands out, and begins anew when it breaks.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use soloist_core::backoff::Backoff;
use soloist_core::ids::Token;
use soloist_core::time::Human;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{info, warn};

use super::failure::{Failure, FailureKind, Verdict};
use super::subscriber::Subscriber;
use super::target::Target;
use crate::delivery;
use crate::delivery::{End, Progress, State, Summary};
use crate::environment::Role;
use crate::metadata::Signature;
use crate::panics::panic_message;
use crate::shutdown::Shutdown;

mod attempt;
mod error;

use attempt::{Attempt, History};
pub use error::ConsumerError;

/// Consumes one server-streaming method for as long as its shutdown has not begun.
#[derive(Debug)]
pub struct Consumer {
    target: Target,
    settings: Settings,
    signature: Signature,
    token: Option<Token>,
    states: watch::Sender<State>,
    progress: Arc<Progress>,
}

#[derive(Clone, Copy, Debug)]
struct Settings {
    delivery: delivery::Settings,
    open_limit: Option<Duration>,
    judge: fn(&Failure) -> Verdict,
    backoff: Backoff,
    jitter: f64,
    may_finish: bool,
}

enum Wait {
    Over,
    Stopped,
}

impl Consumer {
    /// One message at a time, waits of 1, 2, 4 … 30 s after failures; see below for what can be changed.
    #[must_use]
    pub fn new(target: Target) -> Self {
        Self {
            target,
            settings: Settings {
                delivery: delivery::Settings::DEFAULT,
                open_limit: None,
                judge: Verdict::of,
                backoff: Backoff::STANDARD,
                jitter: 0.0,
                may_finish: false,
            },
            signature: Signature::default(),
            token: None,
            states: watch::Sender::new(State::Connecting),
            progress: Arc::default(),
        }
    }

    /// In whose name requests are made; [`Worker::consume`](crate::Worker::consume) sets it.
    #[must_use]
    pub fn role(mut self, role: Option<&Role>) -> Self {
        self.signature = Signature::new(role);
        self.token = role.map(|role| role.token);
        self
    }

    /// So many messages are handled at the same time; they are committed and acknowledged in the order in which they came. 1
    /// unless said otherwise. See [`Subscriber::handle`] for what a handler must not do then.
    #[must_use]
    pub fn concurrency(mut self, many: NonZeroUsize) -> Self {
        self.settings.delivery = self.settings.delivery.with_concurrency(many.get());
        self
    }

    /// So many messages at most are in hand or wait to be acknowledged; then none is read. 100,000 unless said otherwise, and
    /// never less than are handled at the same time.
    #[must_use]
    pub fn window(mut self, many: NonZeroUsize) -> Self {
        self.settings.delivery = self.settings.delivery.with_window(many.get());
        self
    }

    /// Acknowledgements are gathered for so long, or until half the window is full. 100 ms unless said otherwise.
    #[must_use]
    pub fn acknowledge_every(mut self, interval: Duration) -> Self {
        self.settings.delivery.acknowledge_every = interval;
        self
    }

    /// An acknowledgement that takes longer has failed, and a server that takes longer to answer the call of the stream is told in the
    /// log and in [`State::Unanswered`]. 10 s unless said otherwise. A farewell may take as long as the shutdown.
    #[must_use]
    pub fn call_limit(mut self, limit: Duration) -> Self {
        self.settings.delivery.call_limit = limit;
        self
    }

    /// A server that has not answered the call of the stream for so long is left, and tried again later. No limit unless said
    /// otherwise: many servers send their headers only with the first message, and that may take its time.
    #[must_use]
    pub fn open_limit(mut self, limit: Duration) -> Self {
        self.settings.open_limit = Some(limit);
        self
    }

    /// The waits between tries. They begin anew after a message that was handled.
    #[must_use]
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.settings.backoff = backoff;
        self
    }

    /// Shortens each wait by chance, by up to this part of it (0 to 1), so that many clients of a server that was gone do not
    /// all come back at once. One leader has no crowd: 0 unless said otherwise.
    #[must_use]
    pub fn jitter(mut self, part: f64) -> Self {
        self.settings.jitter = part.clamp(0.0, 1.0);
        self
    }

    /// Which failures are worth another try, instead of [`Verdict::of`]. The refusal of our token is not among them: it ends the
    /// consumer in any case.
    #[must_use]
    pub fn judge(mut self, judge: fn(&Failure) -> Verdict) -> Self {
        self.settings.judge = judge;
        self
    }

    /// Ends when the server ends the stream with `OK`, instead of opening it again.
    #[must_use]
    pub fn until_end(mut self) -> Self {
        self.settings.may_finish = true;
        self
    }

    /// What the consumer is doing, as it changes.
    #[must_use]
    pub fn states(&self) -> watch::Receiver<State> {
        self.states.subscribe()
    }

    /// How far it is.
    #[must_use]
    pub fn progress(&self) -> Arc<Progress> {
        self.progress.clone()
    }

    /// Consumes until the shutdown has been gone through: no new work, the server is told, what remains is handled and
    /// acknowledged, the server confirms the end, the connection is closed.
    ///
    /// # Errors
    /// When trying again would not help, or a message cannot be handled.
    pub async fn run<S: Subscriber>(
        &self,
        shutdown: &Shutdown,
        subscriber: &S,
    ) -> Result<Summary, ConsumerError<S::Error>> {
        let ended = self.run_attempts(shutdown, subscriber).await;
        self.tell(State::Ended);
        let summary = self.progress.summary(ended?);
        info!("{summary}");
        Ok(summary)
    }

    async fn run_attempts<S: Subscriber>(
        &self,
        shutdown: &Shutdown,
        subscriber: &S,
    ) -> Result<End, ConsumerError<S::Error>> {
        let mut history = History::new(self);
        loop {
            let failure = match self.attempt(shutdown, subscriber, &mut history).await? {
                Attempt::Ended(end) => return Ok(end),
                Attempt::Failed(failure) => failure,
            };
            let judged = catch_unwind(AssertUnwindSafe(|| (self.settings.judge)(&failure)));
            let verdict = judged.map_err(|panic| ConsumerError::Panicked {
                method: "judge",
                message: panic_message(&*panic),
            })?;
            if verdict == Verdict::Final {
                return Err(ConsumerError::Final {
                    text: failure.text().to_owned(),
                    status: failure.status().cloned().map(Box::new),
                });
            }
            if shutdown.is_begun() {
                warn!("{}", failure.text());
                return Ok(End::Drained);
            }
            if let Wait::Stopped = self.wait(shutdown, &failure, &mut history).await {
                return Ok(End::Idle);
            }
        }
    }

    /// Says what has failed, and waits for the next attempt.
    async fn wait<R>(
        &self,
        shutdown: &Shutdown,
        failure: &Failure,
        history: &mut History<R>,
    ) -> Wait {
        let delay = self.delay(history.failures);
        history.failures += 1;
        let failures = history.failures;
        let mut reason = failure.text().to_owned();
        let is_broken = failure.kind() == FailureKind::Broken;
        if is_broken && history.keepalive.pinged_too_often(history.quiet) {
            history.keepalive = history.keepalive.with_half_as_many();
            let often = Human(history.keepalive.interval);
            let hint = format!("; in case it was pinged too often: every {often} from now on");
            reason.push_str(&hint);
        }
        warn!(failures, "{reason}; trying again in {}", Human(delay));
        self.tell(State::Waiting {
            failures,
            delay,
            reason,
        });
        tokio::select! {
            () = sleep(delay) => Wait::Over,
            () = shutdown.begun() => Wait::Stopped,
        }
    }

    fn delay(&self, failures: u32) -> Duration {
        let delay = self.settings.backoff.delay(failures);
        delay.mul_f64(1.0 - self.settings.jitter * chance())
    }

    fn tell(&self, state: State) {
        self.states.send_replace(state);
    }
}

/// Somewhere between 0 and 1. The standard library's hash keys are random, and that is enough for a wait.
fn chance() -> f64 {
    let bits = RandomState::new().build_hasher().finish();
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn consumer() -> Consumer {
        Consumer::new(Target::new("http://feed:1").unwrap())
    }

    #[test]
    fn waits_double_up_to_thirty_seconds() {
        let consumer = consumer();
        let waits: Vec<_> = (0..7).map(|n| consumer.delay(n).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 30, 30]);
    }

    #[test]
    fn jitter_shortens_a_wait_and_never_to_less_than_it_may() {
        let consumer = consumer().jitter(0.5);
        let waits: Vec<_> = (0..100).map(|_| consumer.delay(2)).collect();
        let (shortest, longest) = (waits.iter().min().unwrap(), waits.iter().max().unwrap());
        assert!(*shortest >= Duration::from_secs(2) && *longest <= Duration::from_secs(4));
        assert!(longest > shortest);
    }
}
