//! One stream of messages: work, acknowledgements, and an end in order.

use std::future::{Future, poll_fn};
use std::ops::ControlFlow;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::{FutureExt, Stream, StreamExt};
use soloist_core::ids::Token;
use tokio::task::yield_now;
use tokio::time::{Instant, Sleep, sleep_until, timeout};
use tracing::{info, warn};

use super::backlog::Backlog;
use super::slot::WorkError;
use super::state::{Progress, State};
use super::work::Work;
use super::{Call, Drain, Peer, Settings};
use crate::panics::panic_message;
use crate::shutdown::Shutdown;

/// After the time for draining: what was handled should not be done twice for want of an acknowledgement.
const FINAL_ACKNOWLEDGEMENT: Duration = Duration::from_millis(500);

/// Messages that are there and done at once are taken in one burst: so many at most, and for about as long.
const BURST: usize = 512;
const BURST_TIME: Duration = Duration::from_millis(1);
/// The clock is read once for as many of them.
const CLOCK_EVERY: usize = 16;

/// Why a call has no result.
#[derive(Debug)]
pub(crate) enum CallError<C> {
    Failed(C),
    TimedOut(Duration),
    Panicked(String),
}

/// Why a stream has come to its end.
#[derive(Debug)]
pub(crate) enum Closed<E, C> {
    /// The shutdown was gone through. Whether the server has confirmed the end.
    Drained { confirmed: bool },
    /// The shutdown's time ran out.
    Cut,
    /// The server ended the stream.
    Ended,
    /// A later leader is at work.
    Fenced { highest: Token },
    /// The stream or a call failed.
    Failed { call: Call, error: CallError<C> },
    /// A message could not be handled.
    Unhandled(E),
    /// The handler panicked.
    Panicked(String),
}

impl<E, C> Closed<E, C> {
    /// Whether the user's work has failed, which no end of the time may hide.
    fn is_unhandled(&self) -> bool {
        matches!(self, Self::Unhandled(_) | Self::Panicked(_))
    }
}

type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
type Answer<'a, T, P> = Boxed<'a, Result<T, CallError<<P as Peer>::CallError>>>;
type ClosedOf<P> = Closed<<P as Peer>::Error, <P as Peer>::CallError>;
type Flow<P> = ControlFlow<ClosedOf<P>>;

/// One stream, from its first message on.
pub(crate) struct Session<'a, P: Peer> {
    peer: &'a P,
    settings: Settings,
    shutdown: &'a Shutdown,
    backlog: &'a mut Backlog<P::Receipt>,
    progress: &'a Progress,
    tell: &'a (dyn Fn(State) + Sync),
    phase: Phase<'a, P>,
    acknowledgement: Option<Answer<'a, (), P>>,
    is_stopping: bool,
    begun: Boxed<'a, ()>,
    over: Boxed<'a, ()>,
    timer: Pin<Box<Sleep>>,
    /// What the timer is set to, while it is waited for.
    due: Option<Instant>,
    last_message: Instant,
}

/// How far a stream is.
enum Phase<'a, P: Peer> {
    /// Messages are read.
    Reading,
    /// The shutdown has begun. The other side is being told or has been, and sends the rest.
    Draining {
        farewell: Option<Answer<'a, Drain, P>>,
    },
    /// Nothing more is read. What is in hand is finished, and acknowledged if that can be.
    Closing {
        why: ClosedOf<P>,
        can_acknowledge: bool,
    },
}

enum Event<P: Peer> {
    TimeOver,
    ShutdownBegun,
    Acknowledged(Result<(), CallError<P::CallError>>),
    Farewell(Result<Drain, CallError<P::CallError>>),
    AcknowledgementDue,
    /// Messages were begun or completed.
    Worked,
    Unhandled(WorkError<P::Error>),
    /// There is nothing more to read.
    End(Option<P::CallError>),
}

impl<'a, P: Peer> Session<'a, P> {
    pub(crate) fn new(
        peer: &'a P,
        settings: Settings,
        shutdown: &'a Shutdown,
        backlog: &'a mut Backlog<P::Receipt>,
        progress: &'a Progress,
        tell: &'a (dyn Fn(State) + Sync),
    ) -> Self {
        let now = Instant::now();
        Self {
            peer,
            settings,
            shutdown,
            backlog,
            progress,
            tell,
            phase: Phase::Reading,
            acknowledgement: None,
            is_stopping: false,
            begun: Box::pin(shutdown.begun()),
            over: Box::pin(shutdown.over()),
            timer: Box::pin(sleep_until(now)),
            due: None,
            last_message: now,
        }
    }

    /// Since the last message came, or the stream was opened.
    #[cfg_attr(not(feature = "stream"), expect(dead_code, reason = "for keepalives"))]
    pub(crate) fn quiet(&self) -> Duration {
        self.last_message.elapsed()
    }

    /// Runs until the stream has ended, whatever the reason.
    pub(crate) async fn run<R>(&mut self, mut incoming: R) -> ClosedOf<P>
    where
        R: Stream<Item = Result<P::Message, P::CallError>> + Unpin + Send,
    {
        let peer = self.peer;
        let handle = |message| peer.handle(message);
        let commit = |receipt| peer.commit(receipt);
        let mut work = Work::new(handle, commit);
        let mut last_yield = Instant::now();
        loop {
            if work.is_empty()
                && let Some(why) = self.finished()
            {
                return why;
            }
            let event = poll_fn(|context| {
                if let Poll::Ready(event) = self.poll_control(context) {
                    return Poll::Ready(event);
                }
                self.poll_work(&mut work, &mut incoming, context)
            });
            let flow = match event.await {
                Event::TimeOver => {
                    drop(work);
                    return self.cut().await;
                }
                Event::Worked => {
                    // A stream that never runs dry must not keep the thread, nor what shares its task, from everything else.
                    if last_yield.elapsed() > BURST_TIME {
                        yield_now().await;
                        last_yield = Instant::now();
                    }
                    ControlFlow::Continue(())
                }
                Event::Unhandled(error) => {
                    // What came after it is not done before it.
                    work.clear();
                    self.on_unhandled(error);
                    ControlFlow::Continue(())
                }
                Event::ShutdownBegun => {
                    self.on_shutdown();
                    ControlFlow::Continue(())
                }
                Event::AcknowledgementDue => {
                    self.acknowledgement = Some(self.acknowledge());
                    ControlFlow::Continue(())
                }
                Event::Acknowledged(answer) => self.on_acknowledged(answer),
                Event::Farewell(answer) => self.on_farewell(answer),
                Event::End(error) => self.on_end(error),
            };
            if let ControlFlow::Break(closed) = flow {
                return closed;
            }
        }
    }

    /// Why it has ended, once nothing is left to be said.
    fn finished(&mut self) -> Option<ClosedOf<P>> {
        let Phase::Closing {
            can_acknowledge, ..
        } = self.phase
        else {
            return None;
        };
        if self.acknowledgement.is_some() || (can_acknowledge && self.backlog.len() > 0) {
            return None;
        }
        match std::mem::replace(&mut self.phase, Phase::Reading) {
            Phase::Closing { why, .. } => Some(why),
            Phase::Reading | Phase::Draining { .. } => None,
        }
    }

    /// All that is not a message, the most urgent first.
    fn poll_control(&mut self, context: &mut Context<'_>) -> Poll<Event<P>> {
        if self.over.as_mut().poll(context).is_ready() {
            return Poll::Ready(Event::TimeOver);
        }
        if !self.is_stopping && self.begun.as_mut().poll(context).is_ready() {
            return Poll::Ready(Event::ShutdownBegun);
        }
        if let Some(call) = &mut self.acknowledgement
            && let Poll::Ready(answer) = call.as_mut().poll(context)
        {
            self.acknowledgement = None;
            return Poll::Ready(Event::Acknowledged(answer));
        }
        if let Phase::Draining { farewell } = &mut self.phase
            && let Some(call) = farewell
            && let Poll::Ready(answer) = call.as_mut().poll(context)
        {
            *farewell = None;
            return Poll::Ready(Event::Farewell(answer));
        }
        let due = self.acknowledgement_due();
        if let (true, Some(due)) = (due != self.due, due) {
            self.timer.as_mut().reset(due);
        }
        self.due = due;
        if due.is_some() && self.timer.as_mut().poll(context).is_ready() {
            return Poll::Ready(Event::AcknowledgementDue);
        }
        Poll::Pending
    }

    fn acknowledgement_due(&self) -> Option<Instant> {
        let due = self.backlog.due()?;
        match self.phase {
            Phase::Reading | Phase::Draining { .. } => Some(due),
            // The last ones do not wait for company.
            Phase::Closing {
                can_acknowledge, ..
            } => can_acknowledge.then(|| due.min(self.last_message)),
        }
    }

    /// Goes on with what is in hand, and begins with what is there to read.
    fn poll_work<H, F, K, G, R>(
        &mut self,
        work: &mut Work<H, F, K, G, P::Receipt, P::Error>,
        incoming: &mut R,
        context: &mut Context<'_>,
    ) -> Poll<Event<P>>
    where
        H: Fn(P::Message) -> F,
        F: Future<Output = Result<P::Receipt, P::Error>>,
        K: Fn(P::Receipt) -> G,
        G: Future<Output = Result<P::Receipt, P::Error>>,
        R: Stream<Item = Result<P::Message, P::CallError>> + Unpin,
    {
        let mut worked = Poll::Pending;
        if !work.is_empty() {
            while let Poll::Ready(complete) = work.poll_complete(context) {
                if let Err(error) = self.note(complete) {
                    return Poll::Ready(Event::Unhandled(error));
                }
                worked = Poll::Ready(Event::Worked);
            }
        }
        if matches!(self.phase, Phase::Closing { .. }) {
            return worked;
        }
        let begun = Instant::now();
        for count in 0..BURST {
            if !self.has_room(work.len()) {
                break;
            }
            let message = match incoming.poll_next_unpin(context) {
                Poll::Pending => break,
                Poll::Ready(Some(Ok(message))) => message,
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Event::End(Some(error))),
                Poll::Ready(None) => return Poll::Ready(Event::End(None)),
            };
            worked = Poll::Ready(Event::Worked);
            self.last_message = begun;
            self.progress.one_received();
            if let Poll::Ready(complete) = work.begin(message, context)
                && let Err(error) = self.note(complete)
            {
                return Poll::Ready(Event::Unhandled(error));
            }
            let is_long = count % CLOCK_EVERY == 0 && begun.elapsed() > BURST_TIME;
            if is_long || (!self.is_stopping && self.shutdown.is_begun()) {
                break;
            }
        }
        worked
    }

    fn has_room(&self, in_hand: usize) -> bool {
        in_hand < self.settings.concurrency && self.backlog.has_room(in_hand)
    }

    fn note(
        &mut self,
        complete: Result<P::Receipt, WorkError<P::Error>>,
    ) -> Result<(), WorkError<P::Error>> {
        self.backlog.push(complete?);
        self.progress.one_handled();
        Ok(())
    }

    fn on_shutdown(&mut self) {
        self.is_stopping = true;
        (self.tell)(State::Draining);
        if let Phase::Reading = self.phase {
            // Its limit is the shutdown's: the rest is read meanwhile.
            let call = caught(self.peer.drain());
            self.phase = Phase::Draining {
                farewell: Some(Box::pin(call)),
            };
        }
    }

    fn on_acknowledged(&mut self, answer: Result<(), CallError<P::CallError>>) -> Flow<P> {
        let error = match answer {
            Ok(()) => {
                self.progress.some_acknowledged(self.backlog.arrived());
                return ControlFlow::Continue(());
            }
            Err(error) => error,
        };
        self.backlog.failed();
        fenced::<P>(&error)?;
        if self.is_stopping {
            warn!("{}", self.peer.describe(Call::Acknowledge, &error));
        }
        self.close(Call::Acknowledge, error, false);
        ControlFlow::Continue(())
    }

    fn on_farewell(&mut self, answer: Result<Drain, CallError<P::CallError>>) -> Flow<P> {
        match answer {
            Ok(Drain::UntilEnd) => {
                info!("the stream's end is known to the other side");
                return ControlFlow::Continue(());
            }
            Ok(Drain::StopReading) => {}
            Err(CallError::Panicked(message)) => {
                let error = CallError::Panicked(message);
                self.close(Call::Drain, error, true);
                return ControlFlow::Continue(());
            }
            Err(error) => {
                fenced::<P>(&error)?;
                warn!("{}", self.peer.describe(Call::Drain, &error));
            }
        }
        self.phase = Phase::Closing {
            why: Closed::Drained { confirmed: false },
            can_acknowledge: true,
        };
        ControlFlow::Continue(())
    }

    fn on_end(&mut self, error: Option<P::CallError>) -> Flow<P> {
        let Some(error) = error else {
            let why = match self.is_stopping {
                true => Closed::Drained { confirmed: true },
                false => Closed::Ended,
            };
            self.phase = Phase::Closing {
                why,
                can_acknowledge: true,
            };
            return ControlFlow::Continue(());
        };
        let error = CallError::Failed(error);
        fenced::<P>(&error)?;
        let can_acknowledge = self.peer.outlives_stream();
        if !can_acknowledge && self.acknowledgement.take().is_some() {
            self.backlog.failed();
        }
        self.close(Call::Next, error, can_acknowledge);
        ControlFlow::Continue(())
    }

    fn on_unhandled(&mut self, error: WorkError<P::Error>) {
        let can_acknowledge = match self.phase {
            Phase::Reading | Phase::Draining { .. } => true,
            Phase::Closing {
                can_acknowledge, ..
            } => can_acknowledge,
        };
        let why = match error {
            WorkError::Failed(error) => Closed::Unhandled(error),
            WorkError::Panicked(message) => Closed::Panicked(message),
        };
        self.phase = Phase::Closing {
            why,
            can_acknowledge,
        };
    }

    /// Reads no more. What was the reason first stays the reason.
    fn close(&mut self, call: Call, error: CallError<P::CallError>, can_acknowledge: bool) {
        match &mut self.phase {
            Phase::Closing {
                can_acknowledge: could,
                ..
            } => *could &= can_acknowledge,
            Phase::Reading | Phase::Draining { .. } => {
                self.phase = Phase::Closing {
                    why: Closed::Failed { call, error },
                    can_acknowledge,
                };
            }
        }
    }

    fn acknowledge(&mut self) -> Answer<'a, (), P> {
        let batch = self.backlog.send();
        let (peer, limit) = (self.peer, self.settings.call_limit);
        Box::pin(async move {
            let call = caught(async move { peer.acknowledge(&batch).await });
            let answer = timeout(limit, call).await;
            answer.unwrap_or(Err(CallError::TimedOut(limit)))
        })
    }

    /// The time is over: what was handled is acknowledged, and nothing else.
    async fn cut(&mut self) -> ClosedOf<P> {
        self.acknowledgement = None;
        self.backlog.failed();
        let (why, can_acknowledge) = match std::mem::replace(&mut self.phase, Phase::Reading) {
            Phase::Closing {
                why,
                can_acknowledge,
            } if why.is_unhandled() => (why, can_acknowledge),
            Phase::Closing {
                can_acknowledge, ..
            } => (Closed::Cut, can_acknowledge),
            Phase::Reading | Phase::Draining { .. } => (Closed::Cut, true),
        };
        if !can_acknowledge || self.backlog.len() == 0 {
            return why;
        }
        let call = self.acknowledge();
        match timeout(FINAL_ACKNOWLEDGEMENT, call).await {
            Ok(Ok(())) => self.progress.some_acknowledged(self.backlog.arrived()),
            Ok(Err(error)) => {
                if let ControlFlow::Break(closed) = fenced::<P>(&error) {
                    return closed;
                }
                self.backlog.failed();
            }
            Err(_) => self.backlog.failed(),
        }
        why
    }
}

/// A later leader is at work: whatever is in hand, the end is now.
fn fenced<P: Peer>(error: &CallError<P::CallError>) -> Flow<P> {
    match error {
        CallError::Failed(error) => match P::fenced_by(error) {
            Some(highest) => ControlFlow::Break(Closed::Fenced { highest }),
            None => ControlFlow::Continue(()),
        },
        CallError::TimedOut(_) | CallError::Panicked(_) => ControlFlow::Continue(()),
    }
}

/// A call whose panic is an error.
pub(crate) async fn caught<T, C>(
    call: impl Future<Output = Result<T, C>>,
) -> Result<T, CallError<C>> {
    match AssertUnwindSafe(call).catch_unwind().await {
        Ok(answer) => answer.map_err(CallError::Failed),
        Err(panic) => Err(CallError::Panicked(panic_message(&*panic))),
    }
}
