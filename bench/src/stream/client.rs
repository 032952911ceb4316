//! One reading of the feed, in a process of its own: its memory is the client's alone.

use std::convert::Infallible;
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::{Args, ValueEnum};
use feed::proto::feed_client::FeedClient;
use feed::proto::{AckRequest, DrainRequest, Message, SubscribeRequest};
use serde::{Deserialize, Serialize};
use soloist_worker::stream::{Consumer, Drain, Link, Subscriber, Target};
use soloist_worker::{Role, Shutdown, Term, Token, metadata};
use tokio::time::{interval, sleep};
use tonic::transport::Endpoint;
use tonic::{Request, Status, Streaming};

use super::counter::{Counter, resident};

const TOKEN: u32 = 1;
const NAME: &str = "bench";
const MANY: NonZeroUsize = NonZeroUsize::new(16).expect("not 0");
const NARROW: NonZeroUsize = NonZeroUsize::new(10_000).expect("not 0");
/// What the slow handler takes.
const WORK: Duration = Duration::from_millis(1);
/// How long it is watched, and how often.
const SLOW: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(100);
const DRAIN: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
pub(crate) struct Plan {
    way: Way,
    address: String,
    after: u64,
    messages: u64,
}

/// How the feed is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Way {
    /// tonic and a loop
    Bare,
    /// The consumer
    One,
    /// The consumer, several messages at a time
    Many,
    /// The consumer with a window of a tenth of the default
    Narrow,
    /// The consumer, with a look at its memory
    Watched,
    /// The consumer with a slow handler
    Slow,
}

#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct Report {
    pub(super) messages: u64,
    pub(super) last: u64,
    pub(super) seconds: f64,
    pub(super) cpu_seconds: f64,
    pub(super) rss_kib: Vec<u64>,
}

impl Report {
    /// Messages a second.
    pub(super) fn rate(&self) -> f64 {
        self.messages as f64 / self.seconds
    }

    /// Nanoseconds of the processors for each message.
    pub(super) fn cost(&self) -> f64 {
        self.cpu_seconds * 1e9 / self.messages as f64
    }
}

/// The words that ask for a reading.
pub(super) fn words(way: Way, address: &str, after: u64, messages: u64) -> [OsString; 5] {
    let way = way.to_possible_value();
    let way = way.map_or_else(String::new, |value| value.get_name().to_owned());
    [
        "client",
        &way,
        address,
        &after.to_string(),
        &messages.to_string(),
    ]
    .map(OsString::from)
}

/// Reads, and writes the report as one line.
pub(super) async fn run(plan: Plan) -> anyhow::Result<()> {
    let report = match plan.way {
        Way::Bare => bare(&plan).await?,
        Way::One => consume::<COUNTS>(&plan, consumer(&plan)?).await?,
        Way::Many => consume::<COUNTS>(&plan, consumer(&plan)?.concurrency(MANY)).await?,
        Way::Narrow => consume::<COUNTS>(&plan, consumer(&plan)?.window(NARROW)).await?,
        Way::Watched => consume::<LOOKS>(&plan, consumer(&plan)?).await?,
        Way::Slow => consume_slowly(&plan).await?,
    };
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

async fn bare(plan: &Plan) -> anyhow::Result<Report> {
    let endpoint = Endpoint::from_shared(format!("http://{}", plan.address))?;
    let mut request = Request::new(subscribe(plan.after));
    request.metadata_mut().insert(metadata::TOKEN, TOKEN.into());
    let mut client = FeedClient::new(endpoint.connect().await?);
    let mut stream = client.subscribe(request).await?.into_inner();
    let counter = Counter::new(plan.after, plan.messages);
    while let Some(message) = stream.message().await? {
        if counter.count(&message) == plan.messages {
            break;
        }
    }
    Ok(counter.report(Vec::new()))
}

async fn consume<const WHAT: u8>(plan: &Plan, consumer: Consumer) -> anyhow::Result<Report> {
    let shutdown = Shutdown::new(DRAIN);
    let reader = Reader::<WHAT>::new(plan, Some(&shutdown));
    let summary = consumer.run(&shutdown, &reader).await?;
    ensure!(
        summary.acknowledged == summary.handled && summary.handled >= plan.messages,
        "the consumer has left something: {summary}"
    );
    Ok(reader.report())
}

async fn consume_slowly(plan: &Plan) -> anyhow::Result<Report> {
    let shutdown = Shutdown::new(DRAIN);
    let reader = Reader::<WAITS>::new(plan, None);
    let consumer = consumer(plan)?;
    let progress = consumer.progress();
    let mut looks = interval(LOOK);
    let watch = async {
        loop {
            looks.tick().await;
            if progress.handled() > 0 {
                reader.look();
            }
        }
    };
    // Dropped where it stands: to drain slowly would take long and tell nothing.
    tokio::select! {
        ended = consumer.run(&shutdown, &reader) => {
            let _ = ended?;
        }
        () = watch => {}
        () = sleep(SLOW) => {}
    }
    ensure!(progress.handled() > 0, "the feed is silent");
    Ok(reader.report())
}

fn consumer(plan: &Plan) -> anyhow::Result<Consumer> {
    let role = Role {
        name: NAME.to_owned(),
        identity: NAME.to_owned(),
        term: Term::new(1),
        token: Token::new(TOKEN.into()),
    };
    let target = Target::new(&format!("http://{}", plan.address)).context("the feed's address")?;
    Ok(Consumer::new(target).role(Some(&role)))
}

fn subscribe(after: u64) -> SubscribeRequest {
    SubscribeRequest {
        subscription: NAME.to_owned(),
        after,
    }
}

/// What the handler does besides counting, as the bare loop does. Decided when it is compiled: what a reading does not need would be the
/// handler's cost, and count as the consumer's.
const COUNTS: u8 = 0;
const LOOKS: u8 = 1;
const WAITS: u8 = 2;

/// The feed's writer without the writing.
#[derive(Debug)]
struct Reader<'a, const WHAT: u8> {
    plan: &'a Plan,
    counter: Counter,
    /// Begun at the goal.
    shutdown: Option<&'a Shutdown>,
    looks: Vec<u64>,
    rss_kib: Mutex<Vec<u64>>,
}

impl<'a, const WHAT: u8> Reader<'a, WHAT> {
    fn new(plan: &'a Plan, shutdown: Option<&'a Shutdown>) -> Self {
        let goal = plan.messages;
        Self {
            plan,
            counter: Counter::new(plan.after, goal),
            shutdown,
            looks: vec![goal / 10, goal / 2, goal],
            rss_kib: Mutex::default(),
        }
    }

    fn look(&self) {
        if let Ok(rss) = resident() {
            let mut all = self.rss_kib.lock().unwrap_or_else(PoisonError::into_inner);
            all.push(rss);
        }
    }

    fn report(self) -> Report {
        let rss = self.rss_kib.into_inner();
        let rss = rss.unwrap_or_else(PoisonError::into_inner);
        self.counter.report(rss)
    }
}

impl<const WHAT: u8> Subscriber for Reader<'_, WHAT> {
    type Message = Message;
    type Receipt = u64;
    type Error = Infallible;

    async fn open(&self, link: Link, _: Option<&u64>) -> Result<Streaming<Message>, Status> {
        let request = subscribe(self.counter.last());
        Ok(FeedClient::new(link).subscribe(request).await?.into_inner())
    }

    async fn handle(&self, message: Message) -> Result<u64, Infallible> {
        if WHAT == WAITS {
            // Boxed: the others would carry it along.
            Box::pin(sleep(WORK)).await;
        }
        let count = self.counter.count(&message);
        if WHAT == LOOKS && self.looks.contains(&count) {
            self.look();
        }
        if let (true, Some(shutdown)) = (count == self.plan.messages, self.shutdown) {
            shutdown.begin();
        }
        Ok(message.position)
    }

    async fn acknowledge(&self, link: Link, receipts: &[u64]) -> Result<(), Status> {
        let Some(&position) = receipts.last() else {
            return Ok(());
        };
        let request = AckRequest { position };
        FeedClient::new(link).ack(request).await.map(drop)
    }

    async fn drain(&self, link: Link) -> Result<Drain, Status> {
        let subscription = NAME.to_owned();
        let request = DrainRequest { subscription };
        FeedClient::new(link).drain(request).await?;
        Ok(Drain::UntilEnd)
    }
}
