//! What a connection is doing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;
use tokio_util::task::task_tracker::TaskTrackerToken;

/// Written by the connection's parts, read by its drain.
#[derive(Debug)]
pub(super) struct Activity {
    http2: AtomicBool,
    calls: Mutex<Calls>,
}

#[derive(Debug)]
struct Calls {
    in_flight: usize,
    idle_since: Instant,
}

impl Activity {
    pub(super) fn new() -> Self {
        let calls = Calls {
            in_flight: 0,
            idle_since: Instant::now(),
        };
        Self {
            http2: AtomicBool::new(false),
            calls: Mutex::new(calls),
        }
    }

    pub(super) fn speaks_http2(&self) {
        self.http2.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_http2(&self) -> bool {
        self.http2.load(Ordering::Relaxed)
    }

    /// `None` with a request in flight.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let calls = self.calls();
        (calls.in_flight == 0).then_some(calls.idle_since)
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
        activity.calls().in_flight += 1;
        Self {
            activity,
            _counted: counted,
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut calls = self.activity.calls();
        calls.in_flight -= 1;
        calls.idle_since = Instant::now();
    }
}
