//! `/events`: the page's server-sent events.
//!
//! `status` is what `/status` answers, `timeline` what has changed here. A reader is sent the newest when it has taken what came before:
//! nothing is kept for who is slow.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, Stream};
use hyper::body::{Bytes, Frame};
use soloist_elector::clock;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep, timeout_at};

use super::heartbeat::BEAT_EVERY;
use super::published::{Published, Snapshot};
use super::status;
use super::timeline::Timeline;

/// Without news a comment is sent, and the status again: so both sides learn of a connection that is dead.
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(10);
/// Between two events of a stream at least; what happens meanwhile is in the next.
const PAUSE: Duration = Duration::from_millis(50);

type Frames = Result<Frame<Bytes>, Infallible>;

/// One client's, for as long as it has its place.
struct Reader {
    published: Arc<Published>,
    snapshot: watch::Receiver<Snapshot>,
    timeline: watch::Receiver<Timeline>,
    /// What the loop's standing still has changed, which nobody publishes.
    told: (bool, bool),
    begun: bool,
    _place: OwnedSemaphorePermit,
}

pub(super) fn stream(
    published: &Arc<Published>,
    place: OwnedSemaphorePermit,
) -> impl Stream<Item = Frames> + Send + use<> {
    let reader = Reader {
        snapshot: published.snapshots(),
        timeline: published.timeline(),
        published: Arc::clone(published),
        told: (false, false),
        begun: false,
        _place: place,
    };
    stream::unfold(reader, |mut reader| async {
        let text = reader.next().await?;
        Some((Ok(Frame::data(text.into())), reader))
    })
}

impl Reader {
    /// `None` if nobody publishes any more.
    async fn next(&mut self) -> Option<String> {
        if !self.begun {
            self.begun = true;
            return Some(format!(
                "retry: 1000\n\n{}{}",
                self.timeline(),
                self.status()
            ));
        }
        sleep(PAUSE).await;
        let keep_alive = Instant::now() + KEEP_ALIVE_EVERY;
        loop {
            let look = keep_alive.min(Instant::now() + BEAT_EVERY);
            let waited = timeout_at(look, async {
                // Who waits so for a change has seen it.
                tokio::select! {
                    changed = self.timeline.changed() => changed.map(|()| true),
                    changed = self.snapshot.changed() => changed.map(|()| false),
                }
            });
            match waited.await {
                Ok(changed) => {
                    let timeline = match changed.ok()? || self.timeline.has_changed().ok()? {
                        true => self.timeline(),
                        false => String::new(),
                    };
                    return Some(timeline + &self.status());
                }
                Err(_) if self.health() != self.told => return Some(self.status()),
                Err(_) if Instant::now() >= keep_alive => {
                    return Some(format!(":\n\n{}", self.status()));
                }
                Err(_) => {}
            }
        }
    }

    fn timeline(&mut self) -> String {
        let now = clock::now();
        let changes = self.timeline.borrow_and_update();
        let changes = changes.json(&self.published.about, now);
        format!("event: timeline\ndata: {changes}\n\n")
    }

    fn status(&mut self) -> String {
        self.told = self.health();
        self.snapshot.mark_unchanged();
        // It ends with a line break of its own.
        format!("event: status\ndata: {}\n", status::json(&self.published))
    }

    fn health(&self) -> (bool, bool) {
        let published = &self.published;
        (published.is_alive().is_ok(), published.is_ready().is_ok())
    }
}
