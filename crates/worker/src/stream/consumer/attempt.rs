//! One connection, from its beginning to its end.

use std::error::Error;
use std::fmt::Display;
use std::time::Duration;

use soloist_core::ids::Token;
use soloist_core::time::Human;
use tokio::time::sleep;
use tonic::{Status, Streaming};
use tracing::{info, warn};

use super::{Consumer, ConsumerError};
use crate::delivery::{Backlog, Call, CallError, Closed, End, Session, State, caught};
use crate::metadata::highest;
use crate::shutdown::Shutdown;
use crate::stream::failure::Failure;
use crate::stream::peer::{self, GrpcPeer};
use crate::stream::subscriber::{Link, Subscriber};
use crate::stream::target::Keepalive;

/// What a connection leaves to the next one.
pub(super) struct History<R> {
    backlog: Backlog<R>,
    /// In a row.
    pub(super) failures: u32,
    was_open: bool,
    pub(super) keepalive: Keepalive,
    /// How long the last connection had been quiet when it ended.
    pub(super) quiet: Duration,
}

impl<R> History<R> {
    pub(super) fn new(consumer: &Consumer) -> Self {
        Self {
            backlog: consumer.settings.delivery.backlog(),
            failures: 0,
            was_open: false,
            keepalive: consumer.target.first_keepalive(),
            quiet: Duration::ZERO,
        }
    }
}

pub(super) enum Attempt {
    Ended(End),
    Failed(Failure),
}

enum OpenError {
    Failed(Failure),
    Panicked(String),
}

type ClosedOf<S> = Closed<<S as Subscriber>::Error, Status>;

impl Consumer {
    /// Connects, opens the stream and hands out what comes.
    pub(super) async fn attempt<S: Subscriber>(
        &self,
        shutdown: &Shutdown,
        subscriber: &S,
        history: &mut History<S::Receipt>,
    ) -> Result<Attempt, ConsumerError<S::Error>> {
        self.tell(State::Connecting);
        let address = self.target.address();
        history.quiet = Duration::ZERO;
        let opened = tokio::select! {
            biased;
            () = shutdown.begun() => return Ok(Attempt::Ended(End::Idle)),
            opened = self.open(subscriber, history) => opened,
        };
        let (link, stream) = match opened {
            Ok(opened) => opened,
            Err(OpenError::Failed(failure)) => {
                if let Some(highest) = failure.status().and_then(highest) {
                    return Err(self.fenced(highest));
                }
                let failure = failure.after(history.was_open, address);
                return Ok(Attempt::Failed(failure));
            }
            Err(OpenError::Panicked(message)) => {
                let method = "open";
                return Err(ConsumerError::Panicked { method, message });
            }
        };
        info!("the stream of {address} is open");
        self.tell(State::Streaming);
        let peer = GrpcPeer {
            address,
            subscriber,
            link,
        };
        let closed = self.deliver(shutdown, &peer, stream, history).await;
        self.conclude(closed, history)
    }

    /// Hands out what comes until the stream has ended, and notes for the next connection what this one has proven.
    async fn deliver<S: Subscriber>(
        &self,
        shutdown: &Shutdown,
        peer: &GrpcPeer<'_, S>,
        stream: Streaming<S::Message>,
        history: &mut History<S::Receipt>,
    ) -> ClosedOf<S> {
        let before = self.progress.summary(End::Idle);
        let tell = |state| self.tell(state);
        let mut session = Session::new(
            peer,
            self.settings.delivery,
            shutdown,
            &mut history.backlog,
            &self.progress,
            &tell,
        );
        let closed = session.run(stream).await;
        history.quiet = session.quiet();
        drop(session);
        // Messages that are handled again and again because none can be acknowledged are no progress.
        let has_progressed = match closed {
            Closed::Failed {
                call: Call::Acknowledge,
                ..
            } => self.progress.acknowledged() > before.acknowledged,
            _ => self.progress.handled() > before.handled,
        };
        if has_progressed {
            history.failures = 0;
        }
        // A server may send headers and refuse all the same: only then nothing has been proven yet.
        let is_refused = matches!(
            closed,
            Closed::Failed {
                call: Call::Next,
                error: CallError::Failed(ref status),
            } if status.source().is_none()
        );
        history.was_open |= self.progress.received() > before.received || !is_refused;
        closed
    }

    /// What the stream's end is to the consumer.
    fn conclude<E: Display, R>(
        &self,
        closed: Closed<E, Status>,
        history: &History<R>,
    ) -> Result<Attempt, ConsumerError<E>> {
        let address = self.target.address();
        let (call, error) = match closed {
            Closed::Drained { confirmed: true } => return Ok(Attempt::Ended(End::Confirmed)),
            Closed::Drained { confirmed: false } => return Ok(Attempt::Ended(End::Drained)),
            Closed::Cut => return Ok(Attempt::Ended(End::Cut)),
            Closed::Ended if self.settings.may_finish => {
                return Ok(Attempt::Ended(End::Finished));
            }
            Closed::Ended => {
                let failure = Failure::ended(address).after(true, address);
                return Ok(Attempt::Failed(failure));
            }
            Closed::Fenced { highest } => return Err(self.fenced(highest)),
            Closed::Unhandled(error) => return Err(ConsumerError::Handler(error)),
            Closed::Panicked(message) => {
                let method = "handle or commit";
                return Err(ConsumerError::Panicked { method, message });
            }
            Closed::Failed { call, error } => (call, error),
        };
        let status = match error {
            CallError::Failed(status) => status,
            CallError::TimedOut(limit) => peer::timed_out(limit),
            CallError::Panicked(message) => {
                let method = peer::method(call);
                return Err(ConsumerError::Panicked { method, message });
            }
        };
        let failure = peer::failure(address, call, status);
        Ok(Attempt::Failed(failure.after(history.was_open, address)))
    }

    async fn open<S: Subscriber>(
        &self,
        subscriber: &S,
        history: &History<S::Receipt>,
    ) -> Result<(Link, Streaming<S::Message>), OpenError> {
        let address = self.target.address();
        let connected = self.target.connect(history.keepalive).await;
        let channel = connected.map_err(OpenError::Failed)?;
        let link = Link::new(channel, self.signature.clone());
        let call = caught(|| subscriber.open(link.clone(), history.backlog.last()));
        let answer = tokio::select! {
            biased;
            answer = call => answer,
            waited = self.tell_unanswered() => {
                return Err(OpenError::Failed(Failure::unanswered(address, waited)));
            }
        };
        match answer {
            Ok(stream) => Ok((link, stream)),
            Err(CallError::Failed(status)) => {
                let failure = Failure::from_status(address, "the stream", status);
                Err(OpenError::Failed(failure))
            }
            Err(CallError::TimedOut(limit)) => {
                Err(OpenError::Failed(Failure::unanswered(address, limit)))
            }
            Err(CallError::Panicked(message)) => Err(OpenError::Panicked(message)),
        }
    }

    /// Says that the server is there and does not answer, and ends when that has taken too long.
    async fn tell_unanswered(&self) -> Duration {
        let address = self.target.address();
        let told_after = self.settings.delivery.call_limit;
        let limit = self.settings.open_limit;
        if limit.is_none_or(|limit| limit > told_after) {
            sleep(told_after).await;
            let waited = Human(told_after);
            warn!(
                "there is a connection to {address}, but no answer to the call for {waited}; is the server stuck, or does it send its headers only with the first message?"
            );
            self.tell(State::Unanswered { waited: told_after });
            match limit {
                Some(limit) => sleep(limit - told_after).await,
                None => std::future::pending().await,
            }
        } else if let Some(limit) = limit {
            sleep(limit).await;
        }
        limit.unwrap_or(told_after)
    }

    fn fenced<E: Display>(&self, highest: Token) -> ConsumerError<E> {
        ConsumerError::Fenced {
            address: self.target.address().to_owned(),
            ours: self.token,
            highest,
        }
    }
}
