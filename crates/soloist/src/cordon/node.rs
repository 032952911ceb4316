//! The watch of one node: one request in five minutes.

use std::pin::Pin;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use kube::api::{WatchEvent, WatchParams};
use kube::core::Request;
use serde_json::Value;
use tokio::time::{Instant, sleep_until, timeout};

use crate::announce::{Asking, Refusal};

/// After a watch that failed.
const AGAIN: Duration = Duration::from_secs(5);
/// After one that was refused: somebody may give us the right.
const REFUSED: Duration = Duration::from_secs(600);
/// A server that keeps a watch sends a bookmark about every minute.
const IDLE: Duration = Duration::from_secs(90);
const WATCH_SECONDS: u32 = 290;

type Events = Pin<Box<dyn Stream<Item = Result<WatchEvent<Value>, kube::Error>> + Send>>;

/// What is told of the node.
#[derive(Debug)]
pub(super) enum Seen {
    /// As it is now.
    Node(Value),
    /// There is none of that name any more.
    Gone,
    /// It may not be watched; it is tried again later.
    Forbidden(String),
}

/// One node, from what is there now on, for ever.
pub(super) struct NodeWatch {
    asking: Asking,
    node: String,
    events: Option<(Events, Instant)>,
    not_before: Instant,
}

impl NodeWatch {
    pub(super) fn new(asking: Asking, node: String) -> Self {
        Self {
            asking,
            node,
            events: None,
            not_before: Instant::now(),
        }
    }

    /// May be cancelled.
    pub(super) async fn next(&mut self) -> Seen {
        loop {
            let Some((events, opened)) = &mut self.events else {
                sleep_until(self.not_before).await;
                match open(&self.asking, &self.node).await {
                    Ok(events) => self.events = Some((events, Instant::now())),
                    Err(Refusal::Forbidden(message)) => {
                        self.not_before = Instant::now() + REFUSED;
                        return Seen::Forbidden(message);
                    }
                    Err(_) => self.not_before = Instant::now() + AGAIN,
                }
                continue;
            };
            match timeout(IDLE, events.next()).await {
                Ok(Some(Ok(WatchEvent::Added(node) | WatchEvent::Modified(node)))) => {
                    return Seen::Node(node);
                }
                Ok(Some(Ok(WatchEvent::Deleted(_)))) => return Seen::Gone,
                Ok(Some(Ok(WatchEvent::Bookmark(_)))) => {}
                ended => {
                    // Its timeout, as a rule.
                    let in_order = matches!(ended, Ok(None)) && opened.elapsed() > AGAIN;
                    let pause = if in_order { Duration::ZERO } else { AGAIN };
                    self.not_before = Instant::now() + pause;
                    self.events = None;
                }
            }
        }
    }
}

async fn open(asking: &Asking, node: &str) -> Result<Events, Refusal> {
    let params = WatchParams::default()
        .fields(&format!("metadata.name={node}"))
        .timeout(WATCH_SECONDS);
    // From whatever is in the server's cache: it begins with the node as it is.
    let request = Request::new("/api/v1/nodes").watch(&params, "0");
    let request = request.map_err(|error| Refusal::Failed(error.to_string()))?;
    let opening = async {
        let client = asking.store().client().await?;
        client.request_events::<Value>(request).await
    };
    match timeout(IDLE, opening).await {
        Ok(Ok(events)) => Ok(events.boxed()),
        Ok(Err(error)) => Err(Refusal::of(error)),
        Err(_) => Err(Refusal::Failed("no answer".into())),
    }
}
