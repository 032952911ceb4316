//! What has changed on this replica, and when: the last changes, for the page.

use std::collections::VecDeque;

use serde_json::{Value, json};
use soloist_core::ids::{Identity, Term};
use soloist_core::replica::StateName;
use soloist_core::time::Moment;

use super::published::{About, Contact, Snapshot};
use super::status;

/// Older ones are forgotten.
const MOST: usize = 200;

/// The oldest first.
#[derive(Debug, Default)]
pub(super) struct Timeline(VecDeque<Change>);

/// From then on it was so.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Change {
    at: Moment,
    state: StateName,
    leader: Option<Identity>,
    term: Option<Term>,
    contact: Contact,
    restarts: u64,
}

impl Timeline {
    /// Whether it is another picture than the last; a renewal is none.
    pub(super) fn record(&mut self, at: Moment, snapshot: &Snapshot) -> bool {
        let change = Change {
            at,
            state: snapshot.state,
            leader: snapshot.leader.clone(),
            term: snapshot.lease.map(|lease| lease.term),
            contact: snapshot.contact,
            restarts: snapshot.restarts,
        };
        let last = self.0.back();
        if last.is_some_and(|last| change == Change { at, ..last.clone() }) {
            return false;
        }
        if self.0.len() >= MOST {
            self.0.pop_front();
        }
        self.0.push_back(change);
        true
    }

    pub(super) fn json(&self, about: &About, now: Moment) -> Value {
        let changes = self.0.iter().map(|change| {
            let mut value = json!({
                "seconds_ago": now.since(change.at).as_secs_f64(),
                "state": status::state(about, change.state),
                "child": { "state": status::child(change.state), "restarts": change.restarts },
            });
            if about.elects {
                value["leader"] = json!(change.leader.as_ref().map(Identity::as_str));
                value["term"] = json!(change.term.map(Term::get));
                value["store_answers"] = json!(change.contact == Contact::Heard);
            }
            value
        });
        changes.collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn snapshot(restarts: u64) -> Snapshot {
        Snapshot {
            restarts,
            ..Snapshot::first()
        }
    }

    #[test]
    fn what_has_not_changed_is_not_recorded() {
        let mut timeline = Timeline::default();
        assert!(timeline.record(Moment::since_boot(Duration::from_secs(1)), &snapshot(0)));
        assert!(!timeline.record(Moment::since_boot(Duration::from_secs(2)), &snapshot(0)));
        assert!(timeline.record(Moment::since_boot(Duration::from_secs(3)), &snapshot(1)));
        assert_eq!(timeline.0.len(), 2);
    }

    #[test]
    fn the_oldest_changes_are_forgotten() {
        let mut timeline = Timeline::default();
        for number in 0..1000 {
            timeline.record(
                Moment::since_boot(Duration::from_secs(number)),
                &snapshot(number),
            );
        }
        assert_eq!(timeline.0.len(), MOST);
        assert_eq!(timeline.0[0].restarts, 800);
    }
}
