//! Which cluster answers, and up to which revision it has come.
//!
//! A restore from a backup may bring another cluster id, or lower revisions. Lower revisions show the election by themselves that the store was set back.
//! Another cluster's revisions say nothing: they may be higher, although nobody there has heard of who leads here. So it is waited
//! out before it is believed, as long as a record of the former one has promised.

use std::time::Duration;

use soloist_core::time::{Human, Moment};
use tracing::warn;

use super::messages::ResponseHeader;

/// What is known of the cluster.
#[derive(Debug, Default)]
pub(super) struct Cluster {
    id: Option<u64>,
    /// The highest that a linearizable answer has shown.
    revision: i64,
    /// The longest that a record of this cluster has promised its holder.
    promised: Duration,
    /// Another cluster has answered, and nobody of the known one since.
    other: Option<(u64, Moment)>,
}

impl Cluster {
    /// To be asked before a request is sent: no answer to it can be older.
    pub(super) const fn revision(&self) -> i64 {
        self.revision
    }

    /// A record of it promises this to its holder.
    pub(super) fn show(&mut self, promise: Duration) {
        self.promised = self.promised.max(promise);
    }

    /// Whether it is the known one, for what shows no linearizable revision.
    pub(super) fn is(&self, id: u64) -> bool {
        self.id.is_none_or(|known| known == id)
    }

    /// Takes in what an answer says of the cluster, to a request that was sent when `at_least` had been reached.
    ///
    /// # Errors
    /// When it is not to be believed, or not yet.
    pub(super) fn hear(
        &mut self,
        header: ResponseHeader,
        at_least: i64,
        now: Moment,
    ) -> Result<(), String> {
        let ResponseHeader {
            cluster_id,
            revision,
            ..
        } = header;
        match self.id {
            Some(known) if known != cluster_id => {
                self.hear_another(known, cluster_id, now)?;
                self.revision = revision;
                self.promised = Duration::ZERO;
            }
            _ => {
                if revision < at_least {
                    warn!(
                        "etcd was set back to a backup: it is at revision {revision}, and had been at {at_least}"
                    );
                    self.revision = revision;
                }
                self.revision = self.revision.max(revision);
            }
        }
        self.id = Some(cluster_id);
        self.other = None;
        Ok(())
    }

    fn hear_another(&mut self, known: u64, id: u64, now: Moment) -> Result<(), String> {
        let until = match self.other {
            Some((other, until)) if other == id => until,
            _ => now + self.promised,
        };
        self.other = Some((id, until));
        if now >= until {
            warn!("etcd is another cluster from now on: {id:x} instead of {known:x}");
            return Ok(());
        }
        Err(format!(
            "it belongs to the cluster {id:x}, not to {known:x} that answered before: either the endpoints are of two clusters, or it was made \
             anew from a backup. Whoever led in the former one is waited out, for {}",
            Human(until.since(now))
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(cluster_id: u64, revision: i64) -> ResponseHeader {
        ResponseHeader {
            cluster_id,
            revision,
            ..ResponseHeader::default()
        }
    }

    fn at(seconds: u64) -> Moment {
        Moment::since_boot(Duration::from_secs(seconds))
    }

    const PROMISED: Duration = Duration::from_secs(15);

    #[test]
    fn another_cluster_is_believed_when_the_former_ones_promise_is_over() {
        let mut cluster = Cluster::default();
        cluster.show(PROMISED);
        cluster.show(Duration::from_secs(2));
        cluster.hear(header(1, 9), 0, at(0)).unwrap();
        let told = cluster.hear(header(2, 900), 9, at(10));
        assert!(told.unwrap_err().contains("for 15s"));
        assert!(cluster.hear(header(2, 901), 9, at(24)).is_err());
        assert!(cluster.is(1) && !cluster.is(2));
        cluster.hear(header(2, 902), 9, at(25)).unwrap();
        assert!(cluster.is(2) && cluster.revision() == 902);
    }

    #[test]
    fn a_member_of_another_cluster_among_ours_is_never_believed() {
        let mut cluster = Cluster::default();
        cluster.show(PROMISED);
        for second in [0, 10, 20, 30, 40] {
            cluster.hear(header(1, 9), 9, at(second)).unwrap();
            assert!(cluster.hear(header(2, 900), 9, at(second + 5)).is_err());
        }
    }

    #[test]
    fn a_revision_that_shrank_is_told_and_believed() {
        let mut cluster = Cluster::default();
        cluster.hear(header(1, 9), 0, at(0)).unwrap();
        cluster.hear(header(1, 5), 9, at(1)).unwrap();
        assert_eq!(cluster.revision(), 5);
    }

    #[test]
    fn an_answer_that_was_overtaken_by_another_is_no_step_back() {
        let mut cluster = Cluster::default();
        cluster.hear(header(1, 9), 0, at(0)).unwrap();
        cluster.hear(header(1, 8), 7, at(0)).unwrap();
        assert_eq!(cluster.revision(), 9);
    }
}
