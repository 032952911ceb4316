//! The server of a gRPC stream, as one that delivers messages.

use std::future::Future;

use soloist_core::ids::Token;
use soloist_core::time::Human;
use tonic::Status;

use super::failure::Failure;
use super::subscriber::{Link, Subscriber};
use crate::delivery::{Call, CallError, Drain, Peer};
use crate::metadata::highest;

/// One connection, and what the user does with it.
pub(super) struct GrpcPeer<'a, S> {
    pub(super) address: &'a str,
    pub(super) subscriber: &'a S,
    pub(super) link: Link,
}

impl<S: Subscriber> Peer for GrpcPeer<'_, S> {
    type Message = S::Message;
    type Receipt = S::Receipt;
    type Error = S::Error;
    type CallError = Status;

    fn handle(
        &self,
        message: S::Message,
    ) -> impl Future<Output = Result<S::Receipt, S::Error>> + Send {
        self.subscriber.handle(message)
    }

    fn commit(
        &self,
        receipt: S::Receipt,
    ) -> impl Future<Output = Result<S::Receipt, S::Error>> + Send {
        self.subscriber.commit(receipt)
    }

    fn acknowledge(
        &self,
        receipts: &[S::Receipt],
    ) -> impl Future<Output = Result<(), Status>> + Send {
        self.subscriber.acknowledge(self.link.clone(), receipts)
    }

    fn drain(&self) -> impl Future<Output = Result<Drain, Status>> + Send {
        self.subscriber.drain(self.link.clone())
    }

    fn fenced_by(error: &Status) -> Option<Token> {
        highest(error)
    }

    fn can_be_refused(&self) -> bool {
        true
    }

    fn outlives_stream(&self) -> bool {
        false
    }

    fn describe(&self, call: Call, error: &CallError<Status>) -> String {
        match error {
            CallError::Failed(status) => failure(self.address, call, status.clone())
                .text()
                .to_owned(),
            CallError::TimedOut(limit) => {
                let status = timed_out(*limit);
                failure(self.address, call, status).text().to_owned()
            }
            CallError::Panicked(message) => format!("{} panicked: {message}", method(call)),
        }
    }
}

pub(super) fn failure(address: &str, call: Call, status: Status) -> Failure {
    let what = match call {
        Call::Next => "the stream",
        Call::Acknowledge => "the acknowledgement",
        Call::Drain => "the end",
    };
    Failure::from_status(address, what, status)
}

pub(super) fn timed_out(limit: std::time::Duration) -> Status {
    Status::deadline_exceeded(format!("no answer within {}", Human(limit)))
}

/// The user's method behind a call.
pub(super) fn method(call: Call) -> &'static str {
    match call {
        Call::Next => "the stream",
        Call::Acknowledge => "acknowledge",
        Call::Drain => "drain",
    }
}
