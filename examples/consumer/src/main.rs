//! A consumer of a gRPC stream that counts every message once, whichever replica leads:
//! `soloist run --name totals --ready notify --health notify -- example-consumer http://127.0.0.1:50051 totals`.
//!
//! The other side is `feed-server --store feed.redb --rate 100` of `testbed/feed`.

use std::error::Error;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{fs, io};

use feed::proto::feed_client::FeedClient;
use feed::proto::{AckRequest, DrainRequest, Message, SubscribeRequest};
use soloist_worker::stream::{Consumer, Drain, Link, Subscriber, Target};
use soloist_worker::{Part, Worker};
use tonic::{Status, Streaming};

const AT_ONCE: NonZeroUsize = NonZeroUsize::new(16).expect("not 0");

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let [server, path] = arguments().ok_or("usage: example-consumer URL FILE")?;
    let worker = Worker::from_env()?;
    let role = worker
        .role()
        .ok_or("run this under soloist: the feed wants a token")?;
    let totals = Totals::open(path.into(), format!("{} {}", role.identity, role.token))?;
    let consumer = Consumer::new(Target::new(&server)?).concurrency(AT_ONCE);
    Ok(worker.run([Part::stream("totals", consumer, totals)]).await)
}

fn arguments() -> Option<[String; 2]> {
    let all: Vec<String> = std::env::args().skip(1).collect();
    all.try_into().ok()
}

/// What has been counted, and up to which message: one file, so that neither is ever without the other.
struct Totals {
    path: PathBuf,
    subscription: String,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Default)]
struct State {
    position: u64,
    bytes: u64,
}

/// A message whose work is done.
struct Measured {
    position: u64,
    bytes: u64,
}

impl Subscriber for Totals {
    type Message = Message;
    type Receipt = Measured;
    type Error = io::Error;

    async fn open(&self, link: Link, _: Option<&Measured>) -> Result<Streaming<Message>, Status> {
        let request = SubscribeRequest {
            subscription: self.subscription.clone(),
            after: self.state().position,
        };
        Ok(FeedClient::new(link).subscribe(request).await?.into_inner())
    }

    // Up to 16 at the same time, and in any order: nothing is kept here.
    async fn handle(&self, message: Message) -> io::Result<Measured> {
        Ok(Measured {
            position: message.position,
            bytes: message.payload.len() as u64,
        })
    }

    // One at a time, and in order: the effect and its position, in one step.
    async fn commit(&self, measured: Measured) -> io::Result<Measured> {
        let mut state = self.state();
        let next = State {
            position: measured.position,
            bytes: state.bytes + measured.bytes,
        };
        next.write(&self.path)?;
        *state = next;
        Ok(measured)
    }

    async fn acknowledge(&self, link: Link, receipts: &[Measured]) -> Result<(), Status> {
        let position = receipts.last().map_or(0, |last| last.position);
        let request = AckRequest { position };
        FeedClient::new(link).ack(request).await.map(drop)
    }

    async fn drain(&self, link: Link) -> Result<Drain, Status> {
        let subscription = self.subscription.clone();
        let request = DrainRequest { subscription };
        FeedClient::new(link).drain(request).await?;
        Ok(Drain::UntilEnd)
    }
}

impl Totals {
    fn open(path: PathBuf, subscription: String) -> io::Result<Self> {
        let state = Mutex::new(State::read(&path)?);
        Ok(Self {
            path,
            subscription,
            state,
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn read(path: &Path) -> io::Result<Self> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error),
        };
        let mut words = text.split_whitespace().map(str::parse);
        match (words.next(), words.next()) {
            (Some(Ok(position)), Some(Ok(bytes))) => Ok(Self { position, bytes }),
            _ => Err(io::Error::other(format!(
                "{} holds no totals",
                path.display()
            ))),
        }
    }

    /// All of it or nothing. (To survive a loss of power, sync it as well before it is acknowledged.)
    fn write(self, path: &Path) -> io::Result<()> {
        let new = path.with_extension("new");
        fs::write(&new, format!("{} {}\n", self.position, self.bytes))?;
        fs::rename(new, path)
    }
}
