//! A consumer of a gRPC stream that counts every message once, whichever replica leads:
//! `soloist run --name totals --ready notify --health notify -- example-consumer http://127.0.0.1:50051 totals`.
//!
//! The other side is `feed-server --store feed.redb --rate 100` of `testbed/feed`.

use std::error::Error;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs, io};

use feed::proto::feed_client::FeedClient;
use feed::proto::{AckRequest, DrainRequest, Message, SubscribeRequest};
use soloist_worker::stream::{Consumer, Drain, Link, Subscriber, Target};
use soloist_worker::{Part, Worker};
use tokio::sync::Mutex;
use tonic::{Status, Streaming};

const AT_ONCE: NonZeroUsize = NonZeroUsize::new(16).expect("not 0");

#[tokio::main]
async fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let [server, file] = arguments.as_slice() else {
        return Err("usage: example-consumer URL FILE".into());
    };
    let worker = Worker::from_env()?;
    let role = worker.role();
    let role = role.ok_or("run this under soloist: the feed wants a token")?;
    let totals = Totals {
        file: file.into(),
        subscription: format!("{} {}", role.identity, role.token),
        counted: Mutex::new(Counted::read(file.as_ref())?),
    };
    let consumer = Consumer::new(Target::new(server)?).concurrency(AT_ONCE);
    Ok(worker.run([Part::stream("totals", consumer, totals)]).await)
}

/// What has been counted, and up to which message: one file, so that neither is ever without the other.
struct Totals {
    file: PathBuf,
    subscription: String,
    counted: Mutex<Counted>,
}

/// The bytes of one message, or of all up to it.
#[derive(Clone, Copy, Default)]
struct Counted {
    position: u64,
    bytes: u64,
}

impl Subscriber for Totals {
    type Message = Message;
    type Receipt = Counted;
    type Error = io::Error;

    async fn open(&self, link: Link, _: Option<&Counted>) -> Result<Streaming<Message>, Status> {
        let request = SubscribeRequest {
            subscription: self.subscription.clone(),
            after: self.counted.lock().await.position,
        };
        Ok(FeedClient::new(link).subscribe(request).await?.into_inner())
    }

    // Up to 16 at the same time, and in any order: nothing is kept here.
    async fn handle(&self, message: Message) -> io::Result<Counted> {
        Ok(Counted {
            position: message.position,
            bytes: message.payload.len() as u64,
        })
    }

    // One at a time, and in order: the effect and its position, in one step.
    async fn commit(&self, one: Counted) -> io::Result<Counted> {
        let mut counted = self.counted.lock().await;
        let next = Counted {
            position: one.position,
            bytes: counted.bytes + one.bytes,
        };
        next.write(&self.file)?;
        *counted = next;
        Ok(one)
    }

    async fn acknowledge(&self, link: Link, receipts: &[Counted]) -> Result<(), Status> {
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

impl Counted {
    fn read(file: &Path) -> io::Result<Self> {
        let text = match fs::read_to_string(file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            read => read?,
        };
        let numbers: Result<Vec<u64>, _> = text.split_whitespace().map(str::parse).collect();
        match numbers.as_deref() {
            Ok(&[position, bytes]) => Ok(Self { position, bytes }),
            _ => Err(io::Error::other(format!("no totals: {}", file.display()))),
        }
    }

    /// All of it or nothing. (To survive a loss of power, sync it as well before it is acknowledged.)
    fn write(self, file: &Path) -> io::Result<()> {
        let new = file.with_extension("new");
        fs::write(&new, format!("{} {}\n", self.position, self.bytes))?;
        fs::rename(new, file)
    }
}
