//! One connection: messages in, work, acknowledgements out, and an end in order.

use std::future::{Future, pending};
use std::pin::{Pin, pin};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesOrdered;
use soloist_core::time::Human;
use tokio::time::{Instant, sleep_until, timeout};
use tonic::{Status, Streaming};
use tracing::{info, warn};

use super::backlog::Backlog;
use super::consumer::Settings;
use super::failure::Failure;
use super::state::{Progress, State};
use super::subscriber::{Drain, Link, Subscriber};
use crate::shutdown::Shutdown;

/// After the time for draining: what was handled should not be done twice for want of a word.
const LAST_WORD: Duration = Duration::from_millis(500);

/// All that a connection works with and leaves to the next one.
pub(super) struct Session<'a, S: Subscriber> {
    pub(super) address: &'a str,
    pub(super) settings: &'a Settings,
    pub(super) subscriber: &'a S,
    pub(super) shutdown: &'a Shutdown,
    pub(super) backlog: &'a mut Backlog<S::Receipt>,
    pub(super) progress: &'a Progress,
    pub(super) tell: &'a (dyn Fn(State) + Sync),
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

type Call<'a, T> = Pin<Box<dyn Future<Output = Result<T, Status>> + Send + 'a>>;

impl<'a, S: Subscriber> Session<'a, S> {
    /// Runs until the stream has ended, whatever the reason.
    pub(super) async fn run(
        &mut self,
        link: Link,
        mut stream: Streaming<S::Message>,
    ) -> Closed<S::Error> {
        let (subscriber, shutdown, settings) = (self.subscriber, self.shutdown, self.settings);
        let mut in_hand = FuturesOrdered::new();
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
            let has_room =
                in_hand.len() < settings.concurrency && self.backlog.has_room(in_hand.len());
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
                Some(handled) = in_hand.next(), if !in_hand.is_empty() => match handled {
                    Ok(receipt) => {
                        self.progress.one_handled();
                        self.backlog.push(receipt);
                    }
                    Err(error) => {
                        // What came after it is not done before it.
                        in_hand.clear();
                        farewell = None;
                        closed = Some(Closed::Handler(error));
                    }
                },
                message = stream.message(), if closed.is_none() && has_room => match message {
                    Ok(Some(message)) => {
                        self.progress.one_received();
                        in_hand.push_back(subscriber.handle(message));
                    }
                    Ok(None) if is_draining => closed = Some(Closed::Drained { confirmed: true }),
                    Ok(None) => closed = Some(Closed::Ended),
                    Err(status) => {
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
