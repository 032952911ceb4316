//! One stream of messages: work, acknowledgements, and an end in order.

use std::future::{Future, poll_fn};
use std::ops::ControlFlow;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::Stream;
use tokio::task::yield_now;
use tokio::time::{Instant, Sleep, sleep_until};

use super::backlog::Backlog;
use super::closed::{CallError, Closed};
use super::incoming::Incoming;
use super::slot::WorkError;
use super::state::{Progress, State};
use super::work::Work;
use super::{Drain, Peer, Settings};
use crate::shutdown::Shutdown;

mod burst;
mod events;

/// For about so long the session works without a look at anything but messages.
const BURST_TIME: Duration = Duration::from_millis(1);

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
    ended: Option<Instant>,
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
    End(Result<(), CallError<P::CallError>>),
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
            ended: None,
        }
    }

    /// For how long no message had come when the stream ended.
    #[cfg_attr(not(feature = "stream"), expect(dead_code, reason = "for keepalives"))]
    pub(crate) fn quiet(&self) -> Duration {
        let ended = self.ended.unwrap_or_else(Instant::now);
        ended - self.last_message
    }

    /// Runs until the stream has ended, whatever the reason.
    pub(crate) async fn run<R, C>(&mut self, stream: R) -> ClosedOf<P>
    where
        R: Stream<Item = Result<P::Message, C>> + Unpin + Send,
        C: Into<CallError<P::CallError>>,
    {
        let peer = self.peer;
        let handle = |message| peer.handle(message);
        let commit = |receipt| peer.commit(receipt);
        let mut work = Work::new(handle, commit);
        let mut incoming = Incoming::new(stream);
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
                Event::End(end) => self.on_end(end),
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
}
