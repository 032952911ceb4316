//! The worker's part: reads the feed and writes the output.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use prost::bytes::Bytes;
use soloist_worker::Role;
use soloist_worker::stream::{Drain, Link, Subscriber};
use tonic::{Status, Streaming};

use crate::output::{Output, OutputError};
use crate::proto::feed_client::FeedClient;
use crate::proto::{AckRequest, DrainRequest, Message, SubscribeRequest};

/// Writes every message once. Effect and position are one line of the output, and the feed is opened after the last line:
/// what the server believes to be acknowledged decides nothing. The work on messages may go on side by side; lines are written in order.
#[derive(Debug)]
pub struct Writer {
    output: Arc<Mutex<Output>>,
    subscription: String,
    work: Duration,
    is_uneven: bool,
}

impl Writer {
    /// Opens the output in the name of a term.
    ///
    /// # Errors
    /// When another process holds it, a later term has written to it, or it cannot be read or written.
    pub fn open(path: &Path, role: &Role) -> Result<Self, OutputError> {
        let output = Output::open(path, role.token, role.term)?;
        Ok(Self {
            output: Arc::new(Mutex::new(output)),
            subscription: format!("{} {}", role.identity, role.token),
            work: Duration::ZERO,
            is_uneven: false,
        })
    }

    /// Every message takes this long, as if there were something to do.
    #[must_use]
    pub fn work(mut self, length: Duration) -> Self {
        self.work = length;
        self
    }

    /// Only every second message takes long: with a concurrency above 1 they are done out of order.
    #[must_use]
    pub fn uneven(mut self, is_uneven: bool) -> Self {
        self.is_uneven = is_uneven;
        self
    }

    /// The last position in the output.
    #[must_use]
    pub fn last(&self) -> u64 {
        lock(&self.output).last()
    }

    fn subscription(&self) -> String {
        self.subscription.clone()
    }
}

fn lock(output: &Mutex<Output>) -> MutexGuard<'_, Output> {
    // An append that panicked is as one that failed.
    output.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A message on its way into the output.
#[derive(Debug)]
pub struct Done {
    position: u64,
    /// Empty once it is written.
    payload: Bytes,
}

impl Subscriber for Writer {
    type Message = Message;
    type Receipt = Done;
    type Error = OutputError;

    async fn open(&self, link: Link, _: Option<&Done>) -> Result<Streaming<Message>, Status> {
        let request = SubscribeRequest {
            subscription: self.subscription(),
            after: self.last(),
        };
        let opened = FeedClient::new(link).subscribe(request).await?;
        Ok(opened.into_inner())
    }

    async fn handle(&self, message: Message) -> Result<Done, OutputError> {
        let is_short = self.is_uneven && message.position.is_multiple_of(2);
        if !self.work.is_zero() && !is_short {
            tokio::time::sleep(self.work).await;
        }
        Ok(Done {
            position: message.position,
            payload: message.payload,
        })
    }

    async fn commit(&self, done: Done) -> Result<Done, OutputError> {
        lock(&self.output).append(done.position, &done.payload)?;
        Ok(Done {
            payload: Bytes::new(),
            ..done
        })
    }

    async fn acknowledge(&self, link: Link, receipts: &[Done]) -> Result<(), Status> {
        let Some(&Done { position, .. }) = receipts.last() else {
            return Ok(());
        };
        // What the server forgets must survive a loss of power here. The disk may take its time.
        let syncer = lock(&self.output).syncer();
        let synced = tokio::task::spawn_blocking(move || syncer?.sync()).await;
        match synced {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(Status::data_loss(error.to_string())),
            Err(error) => return Err(Status::aborted(error.to_string())),
        }
        let request = AckRequest { position };
        FeedClient::new(link).ack(request).await.map(drop)
    }

    async fn drain(&self, link: Link) -> Result<Drain, Status> {
        let subscription = self.subscription();
        FeedClient::new(link)
            .drain(DrainRequest { subscription })
            .await?;
        Ok(Drain::UntilEnd)
    }
}
