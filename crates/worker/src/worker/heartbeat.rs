//! The watchdog's heartbeats: for as long as all that was named goes on.

use std::fmt;
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

use tracing::warn;

use super::Worker;
use crate::reports::Reports;

/// What must hold for a heartbeat.
#[derive(Default)]
pub(super) struct Heart {
    conditions: Vec<Box<dyn Fn() -> bool + Send>>,
}

impl Heart {
    /// All of them are asked: some note what they see.
    fn is_well(&self) -> bool {
        let conditions = self.conditions.iter();
        conditions.fold(true, |is_well, condition| condition() & is_well)
    }
}

impl fmt::Debug for Heart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} conditions", self.conditions.len())
    }
}

impl Worker {
    /// How often [`beat`](Self::beat) is expected; `None` if nobody watches.
    #[must_use]
    pub fn watchdog(&self) -> Option<Duration> {
        self.inner.environment.watchdog
    }

    /// Says that we are alive: for `--health notify`.
    pub fn beat(&self) {
        self.inner.notices.alive();
    }

    /// Beats as often as needed for as long as `is_well` says so, and so does every other condition: those given before, and the
    /// progress of what is [run](Self::run) or consumed. Without a watchdog it does nothing.
    ///
    /// Let it look at the work itself: that this task still runs proves little.
    pub fn beat_while(&self, is_well: impl Fn() -> bool + Send + 'static) {
        let Some(limit) = self.watchdog() else { return };
        let is_first = {
            let mut heart = self.heart();
            heart.conditions.push(Box::new(is_well));
            heart.conditions.len() == 1
        };
        if is_first {
            tokio::spawn(self.clone().keep_beating(limit / 3));
        }
    }

    pub(crate) fn beat_while_progressing(&self, reports: &Reports) {
        if let Some(limit) = self.watchdog() {
            let reports = reports.clone();
            self.beat_while(move || reports.are_well(limit));
        }
    }

    async fn keep_beating(self, interval: Duration) {
        let mut ticks = tokio::time::interval(interval);
        let mut was_well = true;
        loop {
            ticks.tick().await;
            let is_well = self.heart().is_well();
            if is_well {
                self.beat();
            } else if was_well {
                warn!("the work does not go on: no more heartbeats to the watchdog");
            }
            was_well = is_well;
        }
    }

    fn heart(&self) -> MutexGuard<'_, Heart> {
        self.inner
            .heart
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use tokio::net::UnixDatagram;
    use tokio::sync::mpsc;

    use crate::environment::Environment;
    use crate::worker::Worker;
    use crate::worker::tests::worker;

    #[tokio::test]
    async fn beats_come_only_while_every_condition_holds() {
        let worker = worker(&[("WATCHDOG_USEC", "30000")]);
        let (looked, mut looks) = mpsc::unbounded_channel();
        worker.beat_while(|| false);
        worker.beat_while(move || looked.send(()).is_ok());
        looks.recv().await.unwrap();
        assert!(!worker.heart().is_well());
    }

    #[tokio::test]
    async fn beats_come_while_all_is_well_and_then_no_more() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let listener = UnixDatagram::bind(&path).unwrap();
        let mut environment = Environment::read(|_| None, 1).unwrap();
        environment.watchdog = Some(Duration::from_millis(30));
        environment.notify_socket = Some(path.into());
        let (looked, mut looks) = mpsc::unbounded_channel();
        let count = AtomicUsize::new(0);
        Worker::new(environment).beat_while(move || {
            looked.send(()).unwrap();
            count.fetch_add(1, Ordering::Relaxed) < 2
        });
        for _ in 0..5 {
            looks.recv().await.unwrap();
        }
        let mut beats = Vec::new();
        let mut message = [0; 64];
        while let Ok(length) = listener.try_recv(&mut message) {
            beats.push(String::from_utf8_lossy(&message[..length]).into_owned());
        }
        assert_eq!(beats, ["WATCHDOG=1", "WATCHDOG=1"]);
    }
}
