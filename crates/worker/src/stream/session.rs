//! One connection: messages in, work, acknowledgements out, and an end in order.

use std::future::{Future, pending, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::StreamExt;
use soloist_core::time::Human;
use tokio::time::{Instant, sleep_until, timeout};
use tonic::{Status, Streaming};
use tracing::{info, warn};

use super::backlog::Backlog;
use super::consumer::Settings;
use super::failure::Failure;
use super::in_hand::InHand;
use super::state::{Progress, State};
use super::subscriber::{Drain, Link, Subscriber};
use crate::shutdown::Shutdown;

/// After the time for draining: what was handled should not be done twice for want of a word.
const LAST_WORD: Duration = Duration::from_millis(500);

/// Messages that are there and done at once are taken in one go: so many at most, and for about as long.
const GO: usize = 512;
const GO_TIME: Duration = Duration::from_millis(1);
/// The clock is looked at once for as many of them.
const LOOK: usize = 16;

/// All that a connection works with and leaves to the next one.
pub(super) struct Session<'a, S: Subscriber> {
    pub(super) address: &'a str,
    pub(super) settings: &'a Settings,
    pub(super) subscriber: &'a S,
    pub(super) shutdown: &'a Shutdown,
    pub(super) backlog: &'a mut Backlog<S::Receipt>,
    pub(super) progress: &'a Progress,
    pub(super) tell: &'a (dyn Fn(State) + Sync),
    /// When the last message came, or the stream was opened.
    pub(super) heard: Instant,
}

/// Why a connection has come to its end.
#[derive(Debug)]
pub(super) enum Closed<E> {
    /// The shutdown was gone through. Whether the server has confirmed the end.
    Drained { confirmed: bool },
    /// The shutdown's time ran out.
    Cut,
    /// The server ended the stream.
    Ended,
    /// The stream or a call failed.
    Failed(Failure),
    /// A message could not be handled.
    Handler(E),
}

/// What has come of the work.
enum Step<E> {
    /// Messages were begun or handled.
    Forward,
    /// A message could not be handled.
    Handler(E),
    /// There is nothing more to read.
    End(Option<Status>),
}

type Call<'a, T> = Pin<Box<dyn Future<Output = Result<T, Status>> + Send + 'a>>;

impl<'a, S: Subscriber> Session<'a, S> {
    /// Runs until the stream has ended, whatever the reason.
    pub(super) async fn run(
        &mut self,
        link: Link,
        mut stream: Streaming<S::Message>,
    ) -> Closed<S::Error> {
        let (subscriber, shutdown, settings) = (self.subscriber, self.shutdown, self.settings);
        let mut in_hand = InHand::new();
        let mut acknowledgement: Option<Call<'_, ()>> = None;
        let mut farewell: Option<Call<'_, Drain>> = None;
        // Set once nothing more is read.
        let mut closed = None;
        let mut is_draining = false;
        let mut is_connected = true;
        let mut begun = pin!(shutdown.begun());
        let mut over = pin!(shutdown.over());
        let mut timer = pin!(sleep_until(Instant::now()));
        let mut armed = None;
        loop {
            if let (true, Some(_)) = (in_hand.is_empty() && farewell.is_none(), &closed) {
                let nothing_to_say = self.backlog.len() == 0 || !is_connected;
                if nothing_to_say && acknowledgement.is_none() {
                    break;
                }
            }
            let due = match (is_connected, &closed) {
                (false, _) => None,
                (true, None) => self.backlog.due(),
                // The last ones do not wait for company.
                (true, Some(_)) => self.backlog.due().map(|_| Instant::now()),
            };
            if let (true, Some(due)) = (due != armed, due) {
                timer.as_mut().reset(due);
            }
            armed = due;
            let may_read = closed.is_none();
            tokio::select! {
                biased;
                () = &mut over => {
                    drop((in_hand, acknowledgement));
                    self.last_word(link, is_connected).await;
                    return Closed::Cut;
                }
                () = &mut begun, if !is_draining => {
                    is_draining = true;
                    (self.tell)(State::Draining);
                    if closed.is_none() {
                        let call = subscriber.drain(link.clone());
                        farewell = Some(Box::pin(limited(settings.call_limit, call)));
                    }
                }
                said = done(&mut acknowledgement) => {
                    acknowledgement = None;
                    match said {
                        Ok(()) => self.progress.some_acknowledged(self.backlog.arrived()),
                        Err(status) => {
                            self.backlog.failed();
                            is_connected = false;
                            let failure = self.failure("the acknowledgement", status);
                            if is_draining {
                                warn!("{}", failure.text);
                            }
                            closed.get_or_insert(Closed::Failed(failure));
                        }
                    }
                }
                said = done(&mut farewell) => {
                    farewell = None;
                    match said {
                        Ok(Drain::UntilEnd) => info!("{} knows that the stream ends", self.address),
                        Ok(Drain::StopReading) => {
                            closed.get_or_insert(Closed::Drained { confirmed: false });
                        }
                        Err(status) => {
                            warn!("{}", self.failure("the end", status).text);
                            closed.get_or_insert(Closed::Drained { confirmed: false });
                        }
                    }
                }
                () = &mut timer, if armed.is_some() => {
                    acknowledgement = Some(self.acknowledge(link.clone()));
                }
                step = poll_fn(|context| {
                    let handle = |message| subscriber.handle(message);
                    let stream = may_read.then_some(&mut stream);
                    self.poll_step(&mut in_hand, handle, stream, context)
                }) => match step {
                    Step::Forward => {}
                    Step::Handler(error) => {
                        // What came after it is not done before it.
                        in_hand.clear();
                        farewell = None;
                        closed = Some(Closed::Handler(error));
                    }
                    Step::End(None) if is_draining => {
                        closed = Some(Closed::Drained { confirmed: true });
                    }
                    Step::End(None) => closed = Some(Closed::Ended),
                    Step::End(Some(status)) => {
                        is_connected = false;
                        if acknowledgement.take().is_some() {
                            self.backlog.failed();
                        }
                        farewell = None;
                        let failure = self.failure("the stream", status);
                        closed = Some(Closed::Failed(failure));
                    }
                },
            }
        }
        closed.unwrap_or(Closed::Ended)
    }

    /// Goes on with what is in hand, and begins with what is there to read.
    fn poll_step<F: Future<Output = Result<S::Receipt, S::Error>>>(
        &mut self,
        in_hand: &mut InHand<F>,
        handle: impl Fn(S::Message) -> F,
        mut stream: Option<&mut Streaming<S::Message>>,
        context: &mut Context<'_>,
    ) -> Poll<Step<S::Error>> {
        let mut step = Poll::Pending;
        while let Poll::Ready(handled) = in_hand.poll_next(context) {
            if let Err(error) = self.note(handled) {
                return Poll::Ready(Step::Handler(error));
            }
            step = Poll::Ready(Step::Forward);
        }
        let begun = Instant::now();
        for count in 0..GO {
            let Some(stream) = stream.as_mut().filter(|_| self.has_room(in_hand.len())) else {
                break;
            };
            let message = match stream.poll_next_unpin(context) {
                Poll::Pending => break,
                Poll::Ready(Some(Ok(message))) => message,
                Poll::Ready(Some(Err(status))) => return Poll::Ready(Step::End(Some(status))),
                Poll::Ready(None) => return Poll::Ready(Step::End(None)),
            };
            step = Poll::Ready(Step::Forward);
            self.heard = begun;
            self.progress.one_received();
            if let Poll::Ready(handled) = in_hand.begin(|| handle(message), context)
                && let Err(error) = self.note(handled)
            {
                return Poll::Ready(Step::Handler(error));
            }
            let is_long = count % LOOK == 0 && begun.elapsed() > GO_TIME;
            if is_long || self.shutdown.is_begun() {
                break;
            }
        }
        step
    }

    fn has_room(&self, in_hand: usize) -> bool {
        in_hand < self.settings.concurrency && self.backlog.has_room(in_hand)
    }

    fn note(&mut self, handled: Result<S::Receipt, S::Error>) -> Result<(), S::Error> {
        self.backlog.push(handled?);
        self.progress.one_handled();
        Ok(())
    }

    fn failure(&self, what: &str, status: Status) -> Failure {
        Failure::status(self.address, what, status, self.settings.judge)
    }

    fn acknowledge(&mut self, link: Link) -> Call<'a, ()> {
        let batch = self.backlog.send();
        let (subscriber, limit) = (self.subscriber, self.settings.call_limit);
        Box::pin(limited(limit, async move {
            subscriber.acknowledge(link, &batch).await
        }))
    }

    async fn last_word(&mut self, link: Link, is_connected: bool) {
        self.backlog.failed();
        if !is_connected || self.backlog.len() == 0 {
            return;
        }
        let word = self.acknowledge(link);
        match timeout(LAST_WORD, word).await {
            Ok(Ok(())) => self.progress.some_acknowledged(self.backlog.arrived()),
            Ok(Err(_)) | Err(_) => self.backlog.failed(),
        }
    }
}

/// The end of a call, if there is one under way.
async fn done<T>(call: &mut Option<Call<'_, T>>) -> Result<T, Status> {
    match call {
        Some(call) => call.await,
        None => pending().await,
    }
}

async fn limited<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    timeout(limit, call).await.unwrap_or_else(|_| {
        let limit = Human(limit);
        Err(Status::deadline_exceeded(format!(
            "no answer within {limit}"
        )))
    })
}
