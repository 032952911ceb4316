//! What a group asked in some time, from lines of the API server's audit log.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use testbed::Request;

/// soloist asks for watches of 290 s, and the server ends them then.
const WATCH_EXPIRES: Duration = Duration::from_secs(285);
const WATCH_EXPIRED: Duration = Duration::from_secs(300);

/// Renewals are seconds apart from other writes.
const APART: Duration = Duration::from_secs(1);

/// How often each verb was used, and apart from that what a group asks also without a handover.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    verbs: BTreeMap<String, u64>,
    pub(super) renewals: u64,
    /// Watches that the server ended because their time was over, each followed by a new one.
    pub(super) expired_watches: u64,
}

impl Tally {
    /// `writes` is how many updates at least are not renewals: the release, and a takeover for each child.
    pub(super) fn of(lines: &[Request], writes: usize) -> Self {
        let mut tally = Self::default();
        let mut updates = 0;
        let mut last = None;
        for line in lines {
            if expired(line) {
                tally.expired_watches += 1;
            }
            if ends_watch(line) {
                continue;
            }
            if may_be_renewal(line) {
                updates += 1;
                let alone = last.is_none_or(|last| lasted(last, line.received) >= APART);
                last = Some(line.received);
                if updates > writes && alone {
                    tally.renewals += 1;
                    continue;
                }
            }
            *tally.verbs.entry(name(line)).or_default() += 1;
        }
        if let Some(watches) = tally.verbs.get_mut("watch") {
            *watches = watches.saturating_sub(tally.expired_watches);
        }
        tally
    }

    pub(super) fn sum<'a>(tallies: impl Iterator<Item = &'a Self>) -> Self {
        tallies.fold(Self::default(), |mut sum, tally| {
            for (verb, count) in &tally.verbs {
                *sum.verbs.entry(verb.clone()).or_default() += count;
            }
            sum.renewals += tally.renewals;
            sum.expired_watches += tally.expired_watches;
            sum
        })
    }

    pub(super) fn total(&self) -> u64 {
        self.verbs.values().sum()
    }

    /// In words, for one of `times`.
    pub(super) fn mean(&self, times: usize) -> String {
        let of_each = |count: u64| count as f64 / times as f64;
        let verbs: Vec<_> = self
            .verbs
            .iter()
            .map(|(verb, &count)| format!("{:.1} {verb}", of_each(count)))
            .collect();
        format!("{:>8.1}   ({})", of_each(self.total()), verbs.join(", "))
    }

    /// For one of `times`.
    pub(super) fn json(&self, times: usize) -> Value {
        let verbs = self.verbs.iter();
        verbs
            .map(|(verb, &count)| (verb.clone(), json!(count as f64 / times as f64)))
            .collect()
    }
}

/// How many watches are open at the end of the log.
pub(super) fn open_watches(log: &[Request]) -> usize {
    let begun = log.iter().filter(|line| begins_watch(line)).count();
    begun.saturating_sub(log.iter().filter(|line| ends_watch(line)).count())
}

/// An update that succeeded.
pub(super) fn may_be_renewal(line: &Request) -> bool {
    line.verb == "update" && line.code < 400
}

fn begins_watch(line: &Request) -> bool {
    line.verb == "watch" && line.stage == "ResponseStarted"
}

/// A watch that is refused has only this line, and has not begun.
fn ends_watch(line: &Request) -> bool {
    line.verb == "watch" && line.stage == "ResponseComplete" && line.code < 400
}

fn expired(line: &Request) -> bool {
    let lasted = lasted(line.received, line.time);
    ends_watch(line) && (WATCH_EXPIRES..WATCH_EXPIRED).contains(&lasted)
}

fn lasted(from: Timestamp, to: Timestamp) -> Duration {
    to.duration_since(from).unsigned_abs()
}

fn name(line: &Request) -> String {
    match line.code {
        0..400 => line.verb.clone(),
        code => format!("{} {code}", line.verb),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(verb: &str, stage: &str, code: u16, lasted: i64) -> Request {
        Request {
            user: "replica-0".into(),
            verb: verb.into(),
            resource: "leases".into(),
            subresource: String::new(),
            namespace: "bench".into(),
            name: "bench".into(),
            code,
            stage: stage.into(),
            user_agent: String::new(),
            received: Timestamp::UNIX_EPOCH,
            time: Timestamp::new(lasted, 0).expect("a time"),
        }
    }

    fn verbs(tally: &Tally) -> Vec<(&str, u64)> {
        let verbs = tally.verbs.iter();
        verbs.map(|(verb, count)| (verb.as_str(), *count)).collect()
    }

    #[test]
    fn later_updates_than_those_of_the_handover_are_renewals() {
        let updates = [(200, 0), (409, 0), (200, 0), (409, 5), (200, 5), (200, 10)];
        let tally = Tally::of(&updates.map(|(code, at)| update(code, at)), 2);
        assert_eq!(verbs(&tally), [("update", 2), ("update 409", 2)]);
        assert_eq!(tally.renewals, 2);
    }

    #[test]
    fn a_further_update_at_once_is_none() {
        let tally = Tally::of(&[0, 0, 0].map(|at| update(200, at)), 2);
        assert_eq!(verbs(&tally), [("update", 3)]);
        assert_eq!(tally.renewals, 0);
    }

    fn update(code: u16, at: i64) -> Request {
        let at = Timestamp::new(at, 0).expect("a time");
        Request {
            received: at,
            time: at,
            ..line("update", "ResponseComplete", code, 0)
        }
    }

    #[test]
    fn a_watch_counts_when_it_begins_or_is_refused() {
        let lines = [
            line("watch", "ResponseStarted", 200, 0),
            line("watch", "ResponseComplete", 200, 100),
            line("watch", "ResponseComplete", 410, 0),
        ];
        assert_eq!(
            verbs(&Tally::of(&lines, 0)),
            [("watch", 1), ("watch 410", 1)]
        );
        assert_eq!(open_watches(&lines), 0);
        assert_eq!(open_watches(&lines[..1]), 1);
    }

    #[test]
    fn a_watch_whose_time_is_over_and_its_successor_are_not_counted() {
        let lines = [
            line("watch", "ResponseComplete", 200, 290),
            line("watch", "ResponseStarted", 200, 0),
            line("watch", "ResponseStarted", 200, 0),
        ];
        let tally = Tally::of(&lines, 0);
        assert_eq!((tally.total(), tally.expired_watches), (1, 1));
    }
}
