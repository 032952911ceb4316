//! What becomes of the lease, as it happens.

use std::time::Duration;

use soloist_core::election::{Answer, StoreCommand};
use soloist_core::ids::{OpId, WatchId};
use soloist_core::record::Record;
use soloist_elector::StoreCarrier;
use soloist_elector::carrier::Arrival;
use tokio::time::sleep;

use super::lease::Lease;

/// After a failure.
const PAUSE: Duration = Duration::from_millis(200);

/// Shows the record's states: each, as long as the watch holds.
pub(super) struct Follow {
    carrier: StoreCarrier,
    requests: u64,
    /// A read is under way, or a watch.
    busy: bool,
    /// The last request was.
    answered: bool,
}

impl Follow {
    pub(super) fn new(lease: &Lease) -> Self {
        Self {
            carrier: lease.carrier(),
            requests: 0,
            busy: false,
            answered: true,
        }
    }

    /// Whether the store still answers, as far as it was asked.
    pub(super) const fn is_answered(&self) -> bool {
        self.answered
    }

    /// The next state, or that there is none any more; the first is what is there now. May be cancelled: nothing is lost.
    pub(super) async fn next(&mut self) -> Option<Record> {
        loop {
            if !self.busy {
                self.busy = true;
                self.requests += 1;
                let op = OpId::new(self.requests);
                self.carrier.carry(StoreCommand::Read { op });
            }
            match self.carrier.next().await {
                Arrival::Answer {
                    answer: Answer::Read(snapshot),
                    ..
                } => {
                    let watch = WatchId::new(self.requests);
                    let after = snapshot.version;
                    self.carrier.carry(StoreCommand::Watch { watch, after });
                    self.answered = true;
                    return snapshot.record;
                }
                Arrival::Change { snapshot, .. } => return snapshot.record,
                // A file that is written twice in a moment shows the second state only.
                Arrival::WatchEnded { .. } => {
                    self.busy = false;
                    sleep(PAUSE / 20).await;
                }
                Arrival::Answer { .. } => {
                    self.busy = false;
                    self.answered = false;
                    sleep(PAUSE).await;
                }
            }
        }
    }
}
