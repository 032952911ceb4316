//! Receipts on their way to the server.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// What has been handled and is not acknowledged, in order. Outlives connections.
#[derive(Debug)]
pub(crate) struct Backlog<R> {
    waiting: Vec<R>,
    /// For the next batch: an allocation of this size is a system call, and its pages are zeroed again each time.
    spare: Vec<R>,
    under_way: Option<Arc<Vec<R>>>,
    /// The last one that was acknowledged.
    acknowledged: Option<R>,
    /// No more than this is kept: then no more is read.
    most: usize,
    interval: Duration,
    last_sent: Option<Instant>,
    due: Option<Instant>,
}

impl<R> Backlog<R> {
    pub(crate) fn new(most: usize, interval: Duration) -> Self {
        Self {
            waiting: Vec::new(),
            spare: Vec::new(),
            under_way: None,
            acknowledged: None,
            most,
            interval,
            last_sent: None,
            due: None,
        }
    }

    pub(crate) fn push(&mut self, receipt: R) {
        self.push_unscheduled(receipt);
        self.schedule();
    }

    /// One of several; [`schedule`](Self::schedule) after the last.
    #[inline]
    pub(crate) fn push_unscheduled(&mut self, receipt: R) {
        self.waiting.push(receipt);
    }

    /// Sees to it that what waits is sent.
    pub(crate) fn schedule(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        if self.waiting.len() >= self.batch() {
            self.due = self.last_sent;
        }
        if self.due.is_none() {
            let soonest = self.last_sent.map(|last| last + self.interval);
            let now = Instant::now();
            self.due = Some(soonest.map_or(now, |soonest| soonest.max(now)));
        }
    }

    /// So many are sent without waiting for the interval's end: half of what may be kept.
    fn batch(&self) -> usize {
        self.most.div_ceil(2)
    }

    /// How many are not acknowledged.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len() + self.under_way.as_ref().map_or(0, |batch| batch.len())
    }

    pub(crate) fn has_room(&self, in_hand: usize) -> bool {
        in_hand < self.room()
    }

    /// For how many more there is room.
    pub(crate) fn room(&self) -> usize {
        self.most.saturating_sub(self.len())
    }

    /// When the next batch should be sent. `None` while one is under way, or nothing waits.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
            .filter(|_| self.under_way.is_none() && !self.waiting.is_empty())
    }

    /// All that waits, to be sent now.
    pub(crate) fn send(&mut self) -> Arc<Vec<R>> {
        debug_assert!(self.under_way.is_none(), "one batch at a time");
        let next = std::mem::take(&mut self.spare);
        let batch = Arc::new(std::mem::replace(&mut self.waiting, next));
        self.under_way = Some(batch.clone());
        self.last_sent = Some(Instant::now());
        self.due = None;
        batch
    }

    /// The batch has arrived. How many they were. Nobody else may hold it any more.
    pub(crate) fn arrived(&mut self) -> usize {
        let batch = self.under_way.take().and_then(Arc::into_inner);
        let mut batch = batch.unwrap_or_default();
        let many = batch.len();
        self.acknowledged = batch.pop().or(self.acknowledged.take());
        batch.clear();
        self.spare = batch;
        many
    }

    /// The last message that is complete, with all before it: acknowledged or not.
    #[cfg_attr(
        not(feature = "stream"),
        expect(dead_code, reason = "sources open nothing")
    )]
    pub(crate) fn last(&self) -> Option<&R> {
        let under_way = || self.under_way.as_ref().and_then(|batch| batch.last());
        let waiting = self.waiting.last();
        waiting.or_else(under_way).or(self.acknowledged.as_ref())
    }

    /// The batch may not have arrived; it waits again, before all others. Nobody else may hold it any more.
    pub(crate) fn failed(&mut self) {
        let Some(batch) = self.under_way.take() else {
            return;
        };
        let mut batch = Arc::into_inner(batch).unwrap_or_default();
        batch.append(&mut self.waiting);
        self.waiting = batch;
        if !self.waiting.is_empty() {
            self.due = Some(Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::advance;

    const INTERVAL: Duration = Duration::from_millis(100);

    fn is_due(backlog: &Backlog<u32>) -> bool {
        backlog.due().is_some_and(|due| due <= Instant::now())
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_receipt_goes_at_once_and_the_next_ones_together() {
        let mut backlog = Backlog::new(100, INTERVAL);
        assert_eq!(backlog.due(), None);
        backlog.push(1);
        assert!(is_due(&backlog));
        assert_eq!(*backlog.send(), [1]);
        backlog.push(2);
        assert_eq!(backlog.due(), None, "one batch at a time");
        assert_eq!(backlog.arrived(), 1);
        backlog.push(3);
        assert!(!is_due(&backlog));
        advance(INTERVAL).await;
        assert!(is_due(&backlog));
        assert_eq!(*backlog.send(), [2, 3]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_receipt_is_known_wherever_it_is() {
        let mut backlog = Backlog::new(100, INTERVAL);
        assert_eq!(backlog.last(), None);
        backlog.push(1);
        assert_eq!(backlog.last(), Some(&1));
        drop(backlog.send());
        assert_eq!(backlog.last(), Some(&1));
        backlog.push(2);
        assert_eq!(backlog.last(), Some(&2));
        backlog.failed();
        drop(backlog.send());
        backlog.arrived();
        assert_eq!(backlog.last(), Some(&2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_batch_does_not_wait() {
        let mut backlog = Backlog::new(4, INTERVAL);
        backlog.push(1);
        backlog.send();
        backlog.arrived();
        backlog.push(2);
        assert!(!is_due(&backlog));
        backlog.push(3);
        assert!(is_due(&backlog));
        assert!(backlog.has_room(1) && !backlog.has_room(2));
    }

    #[tokio::test(start_paused = true)]
    async fn what_failed_comes_again_first_and_in_order() {
        let mut backlog = Backlog::new(100, INTERVAL);
        backlog.push(1);
        backlog.push(2);
        drop(backlog.send());
        backlog.push(3);
        assert_eq!(backlog.len(), 3);
        backlog.failed();
        assert!(is_due(&backlog));
        assert_eq!(*backlog.send(), [1, 2, 3]);
        assert_eq!(backlog.arrived(), 3);
        assert_eq!((backlog.len(), backlog.due()), (0, None));
    }
}
