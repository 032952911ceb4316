//! What stands between a stream and the requests that end it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;

use futures_util::task::AtomicWaker;
use soloist_worker::fence::StaleToken;
use tokio::sync::watch;
use tonic::Status;

/// Shared by a stream and those who may end it. The stream looks at it for every message, so there is no lock in it.
#[derive(Debug)]
pub(super) struct Control {
    /// The last position sent, or the one that the stream began after.
    sent: AtomicU64,
    /// Nothing after this position is sent.
    limit: AtomicU64,
    is_drained: AtomicBool,
    cut: OnceLock<Cut>,
    waker: AtomicWaker,
    over: watch::Sender<bool>,
}

/// Why a stream ends at once, whatever is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    Stale(StaleToken),
    Replaced,
    Stopped,
}

impl From<StaleToken> for Cut {
    fn from(stale: StaleToken) -> Self {
        Self::Stale(stale)
    }
}

impl From<Cut> for Status {
    fn from(cut: Cut) -> Self {
        match cut {
            Cut::Stale(stale) => stale.into(),
            Cut::Replaced => Self::aborted(
                "a later Subscribe with the same subscription takes the place of this one",
            ),
            Cut::Stopped => Self::unavailable(
                "the server stops; subscribe again after the last position that you have",
            ),
        }
    }
}

impl Control {
    pub(super) fn new(after: u64) -> Self {
        Self {
            sent: AtomicU64::new(after),
            limit: AtomicU64::new(u64::MAX),
            is_drained: AtomicBool::new(false),
            cut: OnceLock::new(),
            waker: AtomicWaker::new(),
            over: watch::Sender::new(false),
        }
    }

    /// Ends the stream at once. Only the first reason counts.
    pub(super) fn cut(&self, cut: Cut) {
        self.cut.get_or_init(|| cut);
        self.waker.wake();
    }

    /// The stream sends up to this position, unless it is beyond it already, and then waits for
    /// [`finish`](Self::finish).
    pub(super) fn limit(&self, position: u64) {
        self.limit.fetch_min(position, Ordering::AcqRel);
        self.waker.wake();
    }

    /// The stream ends when it has reached its limit.
    pub(super) fn finish(&self) {
        self.is_drained.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Waits until the stream has ended or its client has gone.
    pub(super) async fn over(&self) {
        // An error would mean that the sender is gone, and it is in `self`.
        let _ = self.over.subscribe().wait_for(|&is_over| is_over).await;
    }

    pub(super) fn last_sent(&self) -> u64 {
        self.sent.load(Ordering::Acquire)
    }

    pub(super) fn reason(&self) -> Option<Cut> {
        self.cut.get().copied()
    }

    // For the stream:

    pub(super) fn may_send(&self, position: u64) -> bool {
        position <= self.limit.load(Ordering::Acquire)
    }

    pub(super) fn is_drained(&self) -> bool {
        self.is_drained.load(Ordering::Acquire)
    }

    pub(super) fn note_sent(&self, position: u64) {
        self.sent.store(position, Ordering::Release);
    }

    pub(super) fn note_over(&self) {
        self.over.send_replace(true);
    }

    pub(super) fn wake_up(&self, waker: &Waker) {
        self.waker.register(waker);
    }
}
