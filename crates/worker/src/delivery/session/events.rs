//! What becomes of a session with each event.

use std::ops::ControlFlow;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use super::{Answer, ClosedOf, Flow, Phase, Session};
use crate::delivery::closed::{CallError, Closed, caught};
use crate::delivery::slot::WorkError;
use crate::delivery::state::State;
use crate::delivery::{Call, Drain, Peer};

/// After the time for draining: what was handled should not be done twice for want of an acknowledgement.
const FINAL_ACKNOWLEDGEMENT: Duration = Duration::from_millis(500);

impl<'a, P: Peer> Session<'a, P> {
    pub(super) fn on_shutdown(&mut self) {
        self.is_stopping = true;
        (self.tell)(State::Draining);
        if let Phase::Reading = self.phase {
            // Its limit is the shutdown's: the rest is read meanwhile.
            let peer = self.peer;
            let call = caught(|| peer.drain());
            self.phase = Phase::Draining {
                farewell: Some(Box::pin(call)),
            };
        }
    }

    pub(super) fn on_acknowledged(
        &mut self,
        answer: Result<(), CallError<P::CallError>>,
    ) -> Flow<P> {
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

    pub(super) fn on_farewell(
        &mut self,
        answer: Result<Drain, CallError<P::CallError>>,
    ) -> Flow<P> {
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

    pub(super) fn on_end(&mut self, end: Result<(), CallError<P::CallError>>) -> Flow<P> {
        self.ended = Some(Instant::now());
        if let Err(error) = &end {
            fenced::<P>(error)?;
        }
        if let Phase::Closing { .. } = self.phase {
            return ControlFlow::Continue(());
        }
        let Err(error) = end else {
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
        let can_acknowledge = self.peer.outlives_stream();
        if !can_acknowledge && self.acknowledgement.take().is_some() {
            self.backlog.failed();
        }
        self.close(Call::Next, error, can_acknowledge);
        ControlFlow::Continue(())
    }

    pub(super) fn on_unhandled(&mut self, error: WorkError<P::Error>) {
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

    pub(super) fn acknowledge(&mut self) -> Answer<'a, (), P> {
        let batch = self.backlog.send();
        let (peer, limit) = (self.peer, self.settings.call_limit);
        Box::pin(async move {
            let call = caught(|| async move { peer.acknowledge(&batch).await });
            let answer = timeout(limit, call).await;
            answer.unwrap_or(Err(CallError::TimedOut(limit)))
        })
    }

    /// The time is over: what was handled is acknowledged, and nothing else.
    pub(super) async fn cut(&mut self) -> ClosedOf<P> {
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
