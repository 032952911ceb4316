//! What a connection is doing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Written by the connection's parts, read by its deadlines.
#[derive(Debug)]
pub(super) struct Activity {
    is_http2: AtomicBool,
    is_heard: AtomicBool,
    calls: Mutex<Calls>,
    changed: Notify,
}

#[derive(Debug)]
struct Calls {
    in_flight: usize,
    idle_since: Instant,
    /// The first bytes of a request's head have come, and not yet all of it.
    head_since: Option<Instant>,
    /// The peer does not take what was written.
    is_blocked: bool,
    /// Nobody is woken for what nobody waits for.
    is_watched: bool,
}

impl Activity {
    pub(super) fn new() -> Self {
        Self {
            is_http2: AtomicBool::new(false),
            is_heard: AtomicBool::new(false),
            calls: Mutex::new(Calls {
                in_flight: 0,
                idle_since: Instant::now(),
                head_since: None,
                is_blocked: false,
                is_watched: false,
            }),
            changed: Notify::new(),
        }
    }

    pub(super) fn speaks_http2(&self) {
        self.is_http2.store(true, Ordering::Relaxed);
        self.change(|calls| calls.head_since = None);
    }

    pub(super) fn is_http2(&self) -> bool {
        self.is_http2.load(Ordering::Relaxed)
    }

    /// Bytes have come.
    pub(super) fn heard(&self) {
        self.is_heard.store(true, Ordering::Relaxed);
        if self.is_http2() {
            return;
        }
        let mut calls = self.calls();
        if calls.in_flight == 0 && calls.head_since.is_none() {
            calls.head_since = Some(Instant::now());
        }
    }

    /// Whether bytes have come since the last time that this was asked.
    pub(super) fn was_heard(&self) -> bool {
        self.is_heard.swap(false, Ordering::Relaxed)
    }

    pub(super) fn block(&self, is_blocked: bool) {
        self.change(|calls| {
            calls.is_blocked = is_blocked;
            calls.idle_since = Instant::now();
        });
    }

    /// `None` with a request in flight, or an answer that is not written in full.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let mut calls = self.calls();
        calls.is_watched = true;
        (calls.in_flight == 0 && !calls.is_blocked).then_some(calls.idle_since)
    }

    /// Waits for another answer of [`idle_since`](Self::idle_since) or [`is_http2`](Self::is_http2).
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Waits until a request's head has been under way for so long.
    pub(super) async fn head_is_late(&self, limit: Duration) {
        loop {
            // No later than one that begins now: nobody needs to be woken for each request.
            let since = self.calls().head_since;
            sleep_until(since.unwrap_or_else(Instant::now) + limit).await;
            if since.is_some() && self.calls().head_since == since {
                return;
            }
        }
    }

    fn change(&self, change: impl FnOnce(&mut Calls)) {
        let mut calls = self.calls();
        change(&mut calls);
        if calls.is_watched {
            self.changed.notify_one();
        }
    }

    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request, from its head to the end of its response's body.
#[derive(Debug)]
pub(super) struct InFlight {
    activity: Arc<Activity>,
    _counted: TaskTrackerToken,
}

impl InFlight {
    pub(super) fn new(activity: Arc<Activity>, counted: TaskTrackerToken) -> Self {
        activity.change(|calls| {
            calls.in_flight += 1;
            calls.head_since = None;
        });
        Self {
            activity,
            _counted: counted,
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.activity.change(|calls| {
            calls.in_flight -= 1;
            calls.idle_since = Instant::now();
        });
    }
}
