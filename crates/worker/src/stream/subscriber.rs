//! What the user brings: how the stream is opened, and what is done with its messages.

use std::future::Future;

use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use crate::delivery::Drain;
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

    /// Calls the method. Called once for every connection.
    ///
    /// `after` is the last message that is complete with all before it, in this run of the consumer. `None` before there is one: then
    /// go on after the position that you have kept, if you keep one. What the server believes to be acknowledged may be less than
    /// what is complete.
    fn open(
        &self,
        link: Link,
        after: Option<&Self::Receipt>,
    ) -> impl Future<Output = Result<Streaming<Self::Message>, Status>> + Send;

    /// Does the work of one message. When the future is dropped, the time is over and the message is not acknowledged.
    ///
    /// With a [concurrency](super::Consumer::concurrency) above 1, later messages may be done before earlier ones, and all of it may
    /// be done again if the child dies. So do not keep the message's position here: "handled up to 3" would lose 1 and 2, which
    /// are still in hand. What must happen once, and in order, belongs to [`commit`](Self::commit).
    ///
    /// All calls are polled by one task: spawn what shall use other processors. A panic ends the consumer as an error does.
    fn handle(
        &self,
        message: Self::Message,
    ) -> impl Future<Output = Result<Self::Receipt, Self::Error>> + Send;

    /// Makes the result of a message last, together with its position: in one line, one row, one transaction.
    ///
    /// Called after [`handle`](Self::handle), one message at a time and in the order in which they came, whatever the concurrency: all
    /// before this one are complete. So the last position that is kept here is one to go on after. What the receipt need not
    /// carry any longer, leave out of the one that is given back: it waits for the acknowledgement.
    ///
    /// Does nothing unless you say what to do.
    fn commit(
        &self,
        receipt: Self::Receipt,
    ) -> impl Future<Output = Result<Self::Receipt, Self::Error>> + Send {
        async { Ok(receipt) }
    }

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
