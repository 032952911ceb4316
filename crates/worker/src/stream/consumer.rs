//! Connects, opens, hands out, and begins anew when it breaks.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use soloist_core::backoff::Backoff;
use soloist_core::ids::Token;
use soloist_core::time::Human;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tonic::{Status, Streaming};
use tracing::{info, warn};

use super::backlog::Backlog;
use super::failure::{Failure, Verdict};
use super::session::{Closed, Session};
use super::state::{End, Progress, State, Summary};
use super::subscriber::{Link, Subscriber};
use super::target::{Keepalive, Target};
use crate::environment::Role;
use crate::metadata::{Signature, highest};
use crate::shutdown::Shutdown;

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
pub(super) struct Settings {
    pub(super) concurrency: usize,
    pub(super) call_limit: Duration,
    pub(super) judge: fn(&Status) -> Verdict,
    window: usize,
    acknowledge_every: Duration,
    backoff: Backoff,
    jitter: f64,
    may_finish: bool,
}

/// Why a consumer has given up.
#[derive(Debug, thiserror::Error)]
pub enum ConsumerError<E: std::fmt::Display> {
    /// A later leader is at work. This one must stop.
    #[error(
        "the term is over: {address} has seen the token {highest} of a later leader{}", ours.map_or_else(String::new, |ours| format!(", ours is {ours}"))
    )]
    Fenced {
        /// The server.
        address: String,
        /// Our token.
        ours: Option<Token>,
        /// The token that the server has seen.
        highest: Token,
    },
    /// The server will not have us, or cannot be understood: trying again would not help.
    #[error("{text}")]
    Final {
        /// What happened, for people.
        text: String,
        /// What the server said, if it said something.
        status: Option<Box<Status>>,
    },
    /// A message could not be handled.
    #[error("a message could not be handled: {0}")]
    Handler(E),
}

impl Consumer {
    /// One message at a time, waits of 1, 2, 4 … 30 s after failures; see below for what can be changed.
    #[must_use]
    pub fn new(target: Target) -> Self {
        Self {
            target,
            settings: Settings {
                concurrency: 1,
                call_limit: Duration::from_secs(10),
                judge: Verdict::of,
                window: 100_000,
                acknowledge_every: Duration::from_millis(100),
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

    /// So many messages are handled at the same time; they are acknowledged in the order in which they came. 1 unless said
    /// otherwise.
    #[must_use]
    pub fn concurrency(mut self, many: NonZeroUsize) -> Self {
        self.settings.concurrency = many.get();
        self.settings.window = self.settings.window.max(many.get());
        self
    }

    /// So many messages at most are in hand or wait to be acknowledged; then none is read. 100,000 unless said otherwise, and
    /// never less than are handled at the same time.
    #[must_use]
    pub fn window(mut self, many: NonZeroUsize) -> Self {
        self.settings.window = many.get().max(self.settings.concurrency);
        self
    }

    /// Acknowledgements are gathered for so long, or until half the window is full. 100 ms unless said otherwise.
    #[must_use]
    pub fn acknowledge_every(mut self, interval: Duration) -> Self {
        self.settings.acknowledge_every = interval;
        self
    }

    /// An acknowledgement or a farewell that takes longer has failed. 10 s unless said otherwise.
    #[must_use]
    pub fn call_limit(mut self, limit: Duration) -> Self {
        self.settings.call_limit = limit;
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

    /// Which failures are worth another try, instead of [`Verdict::of`]. A certificate that is not trusted and the refusal of
    /// our token are final in any case.
    #[must_use]
    pub fn judge(mut self, judge: fn(&Status) -> Verdict) -> Self {
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
        let settings = &self.settings;
        let mut backlog = Backlog::new(settings.window, settings.acknowledge_every);
        let mut failures = 0;
        let mut is_known = false;
        let mut keepalive = self.target.first_keepalive();
        let end = loop {
            self.tell(State::Connecting);
            let opened = tokio::select! {
                biased;
                () = shutdown.begun() => break End::Idle,
                opened = self.open(subscriber, keepalive) => opened,
            };
            let handled = self.progress.handled();
            let mut quiet = Duration::ZERO;
            let closed = match opened {
                Err(failure) if !is_known => {
                    Closed::Failed(failure.at_first_sight(self.target.address()))
                }
                Err(failure) => Closed::Failed(failure),
                Ok((link, stream)) => {
                    info!("the stream of {} is open", self.target.address());
                    is_known = true;
                    self.tell(State::Streaming);
                    let mut session = Session {
                        address: self.target.address(),
                        settings,
                        subscriber,
                        shutdown,
                        backlog: &mut backlog,
                        progress: &self.progress,
                        tell: &|state| self.tell(state),
                        heard: Instant::now(),
                    };
                    let closed = session.run(link, stream).await;
                    quiet = session.heard.elapsed();
                    closed
                }
            };
            let failure = match closed {
                Closed::Drained { confirmed: true } => break End::Confirmed,
                Closed::Drained { confirmed: false } => break End::Drained,
                Closed::Cut => break End::Cut,
                Closed::Ended if settings.may_finish => break End::Finished,
                Closed::Ended => Failure::ended(self.target.address()),
                Closed::Failed(failure) => failure,
                Closed::Handler(error) => {
                    self.tell(State::Ended);
                    return Err(ConsumerError::Handler(error));
                }
            };
            if let Some(error) = self.give_up(&failure) {
                self.tell(State::Ended);
                return Err(error);
            }
            if shutdown.is_begun() {
                warn!("{}", failure.text);
                break End::Drained;
            }
            if self.progress.handled() > handled {
                failures = 0;
            }
            let delay = self.delay(failures);
            failures += 1;
            let mut reason = failure.text.clone();
            if failure.is_broken() && keepalive.has_annoyed(quiet) {
                keepalive = keepalive.calmer();
                let often = Human(keepalive.interval);
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
                () = sleep(delay) => {}
                () = shutdown.begun() => break End::Idle,
            }
        };
        self.tell(State::Ended);
        let summary = Summary {
            received: self.progress.received(),
            handled: self.progress.handled(),
            acknowledged: self.progress.acknowledged(),
            end,
        };
        info!("{summary}");
        Ok(summary)
    }

    async fn open<S: Subscriber>(
        &self,
        subscriber: &S,
        keepalive: Keepalive,
    ) -> Result<(Link, Streaming<S::Message>), Failure> {
        let address = self.target.address();
        let channel = self.target.connect(keepalive).await?;
        let link = Link::new(channel, self.signature.clone());
        match subscriber.open(link.clone()).await {
            Ok(stream) => Ok((link, stream)),
            Err(status) => {
                let judge = self.settings.judge;
                Err(Failure::status(address, "the stream", status, judge))
            }
        }
    }

    fn give_up<E: std::fmt::Display>(&self, failure: &Failure) -> Option<ConsumerError<E>> {
        let status = failure.status.as_ref();
        if let Some(highest) = status.and_then(highest) {
            return Some(ConsumerError::Fenced {
                address: self.target.address().to_owned(),
                ours: self.token,
                highest,
            });
        }
        (failure.verdict == Verdict::Final).then(|| ConsumerError::Final {
            text: failure.text.clone(),
            status: status.cloned().map(Box::new),
        })
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
