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
    watched: bool,
}

impl Follow {
    pub(super) fn new(lease: &Lease) -> Self {
        Self {
            carrier: lease.carrier(),
            requests: 0,
            watched: false,
        }
    }

    /// The next state; the first is the one that is there now.
    pub(super) async fn next(&mut self) -> Option<Record> {
        loop {
            if !self.watched {
                self.requests += 1;
                let op = OpId::new(self.requests);
                self.carrier.carry(StoreCommand::Read { op });
            }
            match self.carrier.next().await {
                Arrival::Answer {
                    answer: Answer::Read(snapshot),
                    ..
                } => {
                    self.watched = true;
                    let watch = WatchId::new(self.requests);
                    let after = snapshot.version;
                    self.carrier.carry(StoreCommand::Watch { watch, after });
                    return snapshot.record;
                }
                Arrival::Change { snapshot, .. } => return snapshot.record,
                Arrival::Answer { .. } | Arrival::WatchEnded { .. } => {
                    self.watched = false;
                    sleep(PAUSE).await;
                }
            }
        }
    }
}
