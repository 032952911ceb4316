//! What the Events on the Lease tell: how often the leader has changed of late, why, and for how long nobody led.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::cluster::{Cluster, Failure, text};
use crate::announce::Why;

/// The server forgets them after an hour, unless told otherwise.
const MOST: usize = 1000;

/// The last terms, in order.
#[derive(Debug, Default)]
pub(super) struct History {
    terms: Vec<Term>,
    crashes: usize,
}

#[derive(Debug)]
struct Term {
    began: Timestamp,
    leader: String,
    /// `None`: nobody has told, or it goes on.
    ended: Option<(Timestamp, Option<Why>)>,
    released: Option<Timestamp>,
}

/// What became of the terms that are over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum End {
    Told(Why),
    /// By an elector that does not say why.
    Untold,
    /// Another term began, and nobody had said that this one was over.
    Silent,
}

/// A time without a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap {
    pub(super) long: Duration,
    pub(super) after_release: bool,
}

impl History {
    pub(super) async fn read(cluster: &Cluster) -> Result<Self, Failure> {
        let (namespace, name) = (cluster.namespace(), cluster.lease());
        let path = format!(
            "/apis/events.k8s.io/v1/namespaces/{namespace}/events?limit={MOST}&fieldSelector=regarding.kind%3DLease%2Cregarding.name%3D{name}"
        );
        let events = cluster.get(&path).await?;
        Ok(Self::of(
            events["items"].as_array().map_or(&[], Vec::as_slice),
        ))
    }

    fn of(events: &[Value]) -> Self {
        let mut events: Vec<Event<'_>> = events.iter().filter_map(Event::of).collect();
        events.sort_by_key(|event| event.at);
        let mut history = Self::default();
        for event in events {
            history.add(&event);
        }
        history
    }

    fn add(&mut self, event: &Event<'_>) {
        let last = self.terms.last_mut();
        let of_last = last.filter(|term| term.leader == event.who);
        match (event.what, of_last) {
            (What::Began, _) => self.terms.push(Term {
                began: event.at,
                leader: event.who.to_owned(),
                ended: None,
                released: None,
            }),
            (What::Ended, Some(term)) => term.ended = Some((event.at, Why::of(event.note))),
            (What::Released, Some(term)) => term.released = Some(event.at),
            (What::Crashed, _) => self.crashes += 1,
            // The beginning of that term is forgotten, or the next has begun before it could tell.
            (What::Ended | What::Released, None) => {}
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.terms.is_empty()
    }

    pub(super) const fn crashes(&self) -> usize {
        self.crashes
    }

    /// How many terms have begun since then.
    pub(super) fn begun_since(&self, since: Timestamp) -> usize {
        let begun = self.terms.iter().filter(|term| term.began >= since);
        begun.count()
    }

    /// How the terms have ended that others followed, or that are over.
    pub(super) fn ends(&self) -> BTreeMap<End, usize> {
        let mut ends = BTreeMap::new();
        for (at, term) in self.terms.iter().enumerate() {
            let end = match term.ended {
                Some((_, Some(why))) => End::Told(why),
                Some((_, None)) => End::Untold,
                None if at + 1 < self.terms.len() => End::Silent,
                None => continue,
            };
            *ends.entry(end).or_insert(0) += 1;
        }
        ends
    }

    /// Between an end that was told and the next beginning. The clocks are those of two machines.
    pub(super) fn gaps(&self) -> impl Iterator<Item = Gap> {
        let pairs = self.terms.iter().zip(self.terms.iter().skip(1));
        pairs.filter_map(|(term, next)| {
            let over = term.released.or(term.ended.map(|(at, _)| at))?;
            let long = next.began.duration_since(over);
            Some(Gap {
                long: Duration::try_from(long).unwrap_or_default(),
                after_release: term.released.is_some(),
            })
        })
    }
}

struct Event<'a> {
    at: Timestamp,
    who: &'a str,
    what: What,
    note: &'a str,
}

#[derive(Clone, Copy)]
enum What {
    Began,
    Ended,
    Released,
    Crashed,
}

impl<'a> Event<'a> {
    /// soloist's, or client-go's; `None` for others.
    fn of(event: &'a Value) -> Option<Self> {
        let note = text(event, "/note");
        let client_go = |end: &str| note.strip_suffix(end);
        let (who, what) = match text(event, "/reason") {
            "BecameLeader" => (text(event, "/reportingInstance"), What::Began),
            "StoppedLeading" => (text(event, "/reportingInstance"), What::Ended),
            "HandedOver" => (text(event, "/reportingInstance"), What::Released),
            "ChildCrashed" => (text(event, "/reportingInstance"), What::Crashed),
            "LeaderElection" => match client_go(" became leader") {
                Some(who) => (who, What::Began),
                None => (client_go(" stopped leading")?, What::Ended),
            },
            _ => return None,
        };
        let times = ["/eventTime", "/deprecatedLastTimestamp"];
        let at = times
            .into_iter()
            .find_map(|field| text(event, field).parse().ok())?;
        Some(Self {
            at,
            who,
            what,
            note,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(second: u32, who: &str, reason: &str, note: &str) -> Value {
        json!({
            "eventTime": format!("2026-01-01T00:00:{second:02}.500000Z"), "reportingInstance": who,
            "reason": reason, "note": note,
        })
    }

    #[test]
    fn terms_follow_from_events_in_any_order() {
        let history = History::of(&[
            event(1, "a", "BecameLeader", "a leads in term 1 (token 1)"),
            event(20, "b", "BecameLeader", "b leads in term 2 (token 2)"),
            event(
                11,
                "a",
                "StoppedLeading",
                "a has lost the lease: it could not be renewed in time",
            ),
            event(
                21,
                "b",
                "ChildCrashed",
                "the child of b has ended by itself, with code 1",
            ),
            event(
                22,
                "b",
                "StoppedLeading",
                "b stops leading: its child has ended or cannot go on here; x",
            ),
            event(23, "b", "HandedOver", "b has released the lease"),
            event(24, "a", "BecameLeader", "a leads in term 3 (token 3)"),
            event(40, "c", "BecameLeader", "c leads in term 4 (token 4)"),
            json!({"reason": "LeaderElection", "note": "d became leader", "deprecatedLastTimestamp": "2026-01-01T00:00:50Z"}),
            json!({"reason": "LeaderElection", "note": "d stopped leading", "deprecatedLastTimestamp": "2026-01-01T00:00:55Z"}),
            json!({"reason": "Scheduled", "note": "x", "eventTime": "2026-01-01T00:00:50.000000Z"}),
        ]);
        let expected = [
            (End::Told(Why::TooLate), 1),
            (End::Told(Why::Child), 1),
            (End::Untold, 1),
            (End::Silent, 2),
        ];
        assert_eq!(history.ends(), BTreeMap::from(expected));
        let gap = |seconds, after_release| Gap {
            long: Duration::from_secs(seconds),
            after_release,
        };
        let gaps: Vec<Gap> = history.gaps().collect();
        assert_eq!(gaps, [gap(9, false), gap(1, true)]);
        assert_eq!(history.crashes(), 1);
        let since = "2026-01-01T00:00:22Z".parse().unwrap();
        assert_eq!(history.begun_since(since), 3);
    }
}
