//! Who has led, as it was seen from here.

use std::collections::VecDeque;
use std::time::Duration;

use soloist_core::ids::Identity;
use soloist_core::record::Record;
use soloist_core::time::Moment;

/// Older ones are forgotten.
const MOST: usize = 200;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Who {
    Leader(String),
    /// The lease is released, empty, or has run out.
    Nobody,
    /// The store does not answer.
    Unknown,
}

/// From then on it was so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) who: Who,
    pub(super) term: u64,
    pub(super) from: Moment,
    pub(super) to: Moment,
}

impl Span {
    pub(super) const fn length(&self) -> Duration {
        self.to.since(self.from)
    }
}

/// The oldest first, without holes between them.
#[derive(Debug, Default)]
pub(super) struct History {
    spans: VecDeque<Span>,
    seen: Option<Seen>,
}

/// The record that was seen last, and when it runs out if nothing comes after it.
#[derive(Debug)]
struct Seen {
    who: Who,
    term: u64,
    until: Moment,
}

impl History {
    pub(super) fn saw(&mut self, now: Moment, record: &Record) {
        let who = match &record.holder {
            Some(holder) => Who::Leader(Identity::to_string(holder)),
            None => Who::Nobody,
        };
        // Whoever holds it is believed for as long as the record says. Without a word it is for ever.
        let seconds = record.duration_seconds.and_then(|s| u64::try_from(s).ok());
        let until = seconds.map_or(Moment::NEVER, |s| now + Duration::from_secs(s));
        if self.seen.is_some() {
            self.pass(now, true);
        }
        let term = record.transitions;
        self.seen = Some(Seen {
            who: who.clone(),
            term,
            until,
        });
        self.is(now, who, term);
    }

    /// Time has passed; whether the store still answers.
    pub(super) fn pass(&mut self, now: Moment, answers: bool) {
        let Some(seen) = &self.seen else {
            return;
        };
        let (term, until) = (seen.term, seen.until);
        let who = seen.who.clone();
        let has_run_out = matches!(who, Who::Leader(_)) && now > until;
        match (answers, has_run_out) {
            (false, _) => self.is(now, Who::Unknown, term),
            (true, true) => {
                self.is(until, who, term);
                self.is_since(until, now, Who::Nobody, term);
            }
            (true, false) => self.is(now, who, term),
        }
    }

    fn is(&mut self, now: Moment, who: Who, term: u64) {
        self.is_since(now, now, who, term);
    }

    /// It is so now. If it was otherwise before, it has been so since then.
    fn is_since(&mut self, since: Moment, now: Moment, who: Who, term: u64) {
        let mut from = since;
        if let Some(last) = self.spans.back_mut() {
            if last.to > now {
                return;
            }
            if last.who == who && (last.term == term || !matches!(who, Who::Leader(_))) {
                last.to = now;
                return;
            }
            from = since.max(last.to);
            last.to = from;
        }
        if self.spans.len() >= MOST {
            self.spans.pop_front();
        }
        self.spans.push_back(Span {
            who,
            term,
            from,
            to: now,
        });
    }

    pub(super) fn spans(&self) -> impl DoubleEndedIterator<Item = &Span> {
        self.spans.iter()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use soloist_core::orders::Orders;

    use super::*;

    pub(crate) fn at(millis: u64) -> Moment {
        Moment::since_boot(Duration::from_millis(millis))
    }

    pub(crate) fn record(holder: Option<&str>, term: u64) -> Record {
        Record {
            holder: holder.and_then(|name| Identity::try_new(name).ok()),
            duration_seconds: Some(15),
            transitions: term,
            signature: None,
            orders: Orders::default(),
        }
    }

    fn told(history: &History) -> Vec<(Who, u128)> {
        let spans = history.spans();
        spans
            .map(|span| (span.who.clone(), span.length().as_millis()))
            .collect()
    }

    #[test]
    fn a_release_and_a_takeover_leave_a_gap_between_two_leaders() {
        let mut history = History::default();
        history.saw(at(0), &record(Some("a"), 1));
        history.saw(at(5_000), &record(Some("a"), 1));
        history.saw(at(9_000), &record(None, 1));
        history.saw(at(9_020), &record(Some("b"), 2));
        history.pass(at(10_000), true);
        let leader = |name: &str| Who::Leader(name.into());
        let expected = [(leader("a"), 9_000), (Who::Nobody, 20), (leader("b"), 980)];
        assert_eq!(told(&history), expected);
    }

    #[test]
    fn a_leader_that_renews_no_more_is_one_until_its_lease_is_over() {
        let mut history = History::default();
        history.saw(at(0), &record(Some("a"), 1));
        history.pass(at(14_000), true);
        history.pass(at(16_000), true);
        history.saw(at(17_000), &record(Some("b"), 2));
        let leader = |name: &str| Who::Leader(name.into());
        let expected = [
            (leader("a"), 15_000),
            (Who::Nobody, 2_000),
            (leader("b"), 0),
        ];
        assert_eq!(told(&history), expected);
    }

    #[test]
    fn while_the_store_does_not_answer_nobody_knows() {
        let mut history = History::default();
        history.saw(at(0), &record(Some("a"), 1));
        history.pass(at(1_000), false);
        history.pass(at(3_000), false);
        history.saw(at(4_000), &record(Some("a"), 1));
        let leader = |name: &str| Who::Leader(name.into());
        let expected = [
            (leader("a"), 1_000),
            (Who::Unknown, 3_000),
            (leader("a"), 0),
        ];
        assert_eq!(told(&history), expected);
    }
}
