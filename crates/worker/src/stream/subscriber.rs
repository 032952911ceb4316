//! What the user brings: how the stream is opened, and what is done with its messages.

use std::future::Future;

use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use crate::metadata::Signature;

/// A connection whose requests bear the term's token. Any generated client takes it: `FeedClient::new(link)`.
pub type Link = InterceptedService<Channel, Signature>;

/// One server-streaming method, and what belongs to it. See [`Consumer`](super::Consumer).
pub trait Subscriber: Sync {
    /// What the stream carries.
    type Message: Send;
    /// What is left of a message that was handled, for its acknowledgement: its position or id.
    type Receipt: Send + Sync;
    /// Why a message could not be handled. The consumer ends with it: what can be mended by trying again, try again in
    /// [`handle`](Self::handle).
    type Error: std::fmt::Display + Send;

    /// Calls the method. Called once for every connection: go on from what has been handled, not from what has been
    /// acknowledged.
    fn open(
        &self,
        link: Link,
    ) -> impl Future<Output = Result<Streaming<Self::Message>, Status>> + Send;

    /// Does the work of one message. When the future is dropped, the time is over and the message is not acknowledged.
    ///
    /// All calls are polled by one task: spawn what shall use other processors.
    fn handle(
        &self,
        message: Self::Message,
    ) -> impl Future<Output = Result<Self::Receipt, Self::Error>> + Send;

    /// Tells the server what has been handled, in the order in which it came. What failed comes again with the next
    /// batch, over the next connection if need be.
    ///
    /// Does nothing unless you say what to do.
    fn acknowledge(
        &self,
        _link: Link,
        _receipts: &[Self::Receipt],
    ) -> impl Future<Output = Result<(), Status>> + Send {
        async { Ok(()) }
    }

    /// Tells the server that this stream is to end.
    ///
    /// Unless you say how, the server is not told: what is in hand is handled, and nothing more is read.
    fn drain(&self, _link: Link) -> impl Future<Output = Result<Drain, Status>> + Send {
        async { Ok(Drain::StopReading) }
    }
}

/// How a stream ends after [`Subscriber::drain`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drain {
    /// The server was told. It sends what is under way and ends the stream, which confirms the end.
    UntilEnd,
    /// There is nothing to wait for.
    StopReading,
}
