//! One line for each term, when it is over: how it began, how long it was, how it ended, and for how long nobody was seen to lead before it.

use std::fmt;
use std::time::Duration;

use soloist_core::election::{Answer, Claim, Elected, Loss};
use soloist_core::ids::{Identity, Version};
use soloist_core::record::Snapshot;
use soloist_core::time::{Human, Moment};
use soloist_elector::carrier::Arrival;
use tracing::info;

/// What has to be remembered for that line.
#[derive(Debug)]
pub(crate) struct TermSummary {
    identity: Option<Identity>,
    /// The last change of the record that another one made, as it was seen here.
    last_change: Option<(Version, Moment)>,
    term: Option<Term>,
}

#[derive(Debug)]
struct Term {
    elected: Elected,
    began: Moment,
    gap: Option<Duration>,
    up_after: Option<Duration>,
    children: u32,
    loss: Option<Loss>,
}

/// A duration that may not be known.
struct Known(Option<Duration>);

impl fmt::Display for Known {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(length) => Human(length).fmt(f),
            None => f.write_str("unknown"),
        }
    }
}

impl TermSummary {
    /// Without an identity there are no terms.
    pub(crate) const fn new(identity: Option<Identity>) -> Self {
        Self {
            identity,
            last_change: None,
            term: None,
        }
    }

    pub(crate) fn arrived(&mut self, now: Moment, arrival: &Arrival) {
        match arrival {
            Arrival::Change { snapshot, .. }
            | Arrival::Answer {
                answer: Answer::Read(snapshot),
                ..
            } => self.seen(now, snapshot),
            Arrival::Answer { .. } | Arrival::WatchEnded { .. } => {}
        }
    }

    fn seen(&mut self, now: Moment, snapshot: &Snapshot) {
        let holder = snapshot.record.as_ref().and_then(|r| r.holder.as_ref());
        let is_ours = holder.is_some() && holder == self.identity.as_ref();
        let is_new = (self.last_change).is_none_or(|(last, _)| last != snapshot.version);
        if !is_ours && is_new && snapshot.record.is_some() {
            self.last_change = Some((snapshot.version, now));
        }
    }

    pub(crate) fn elected(&mut self, now: Moment, elected: Elected) {
        if self.identity.is_none() {
            return;
        }
        let gap = match elected.claim {
            // Nobody has led before that we know of, or it was ours.
            Claim::FirstSight | Claim::Own | Claim::FormerSelf => None,
            Claim::Released | Claim::HolderGone | Claim::Expired | Claim::WaitedOut => {
                self.last_change.map(|(_, at)| now.since(at))
            }
        };
        self.term = Some(Term {
            elected,
            began: now,
            gap,
            up_after: None,
            children: 0,
            loss: None,
        });
    }

    pub(crate) const fn child_starts(&mut self) {
        if let Some(term) = &mut self.term {
            term.children += 1;
        }
    }

    pub(crate) fn child_is_up(&mut self, now: Moment) {
        if let Some(term) = &mut self.term {
            term.up_after.get_or_insert(now.since(term.began));
        }
    }

    pub(crate) fn lost(&mut self, loss: &Loss) {
        if let Some(term) = &mut self.term {
            term.loss = Some(loss.clone());
        }
    }

    /// All that was to be done about the lease is done.
    pub(crate) fn left(&mut self, now: Moment, released: bool) {
        let Some(over) = self.term.take() else {
            return;
        };
        let Elected {
            term, token, claim, ..
        } = over.elected;
        let (gap, child_up_after) = (Known(over.gap), Known(over.up_after));
        let (children, lasted) = (over.children, Human(over.lasted(now)));
        let ended = ended(over.loss.as_ref(), released);
        info!(
            %term, %token, began = ?claim, %gap, %child_up_after, children, %lasted, ended,
            "the term is over"
        );
    }
}

impl Term {
    /// Milliseconds say nothing of a long term.
    const fn lasted(&self, now: Moment) -> Duration {
        let length = now.since(self.began);
        match length.as_secs() {
            0..10 => length,
            seconds => Duration::from_secs(seconds),
        }
    }
}

fn ended(loss: Option<&Loss>, released: bool) -> String {
    let lease = match released {
        true => "released",
        false => "not released",
    };
    match loss {
        None | Some(Loss::Resigned) => lease.into(),
        Some(Loss::Taken(by)) => format!("lost (taken by {by}), {lease}"),
        Some(loss) => format!("lost ({loss:?}), {lease}"),
    }
}

#[cfg(test)]
mod tests {
    use soloist_core::ids::Token;
    use soloist_core::orders::Orders;
    use soloist_core::record::Record;

    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::since_boot(Duration::from_millis(millis))
    }

    fn elected(claim: Claim) -> Elected {
        Elected {
            term: soloist_core::ids::Term::new(2),
            token: Token::new(7),
            valid_until: Moment::NEVER,
            claim,
        }
    }

    fn named(name: &str) -> Option<Identity> {
        Identity::try_new(name).ok()
    }

    /// The record at this version, with this holder.
    fn seen(summary: &mut TermSummary, now: Moment, version: u64, holder: Option<&str>) {
        let record = Record {
            holder: holder.and_then(named),
            duration_seconds: Some(15),
            transitions: 1,
            signature: None,
            orders: Orders::default(),
        };
        summary.seen(now, &Snapshot::new(Version::new(version), Some(record)));
    }

    fn gap(summary: &TermSummary) -> Option<Duration> {
        summary.term.as_ref().unwrap().gap
    }

    #[test]
    fn the_gap_is_counted_from_the_last_change_by_another() {
        let mut summary = TermSummary::new(named("me"));
        seen(&mut summary, at(0), 1, Some("other"));
        seen(&mut summary, at(100), 2, None);
        // Seen once more, by a read: nothing has changed.
        seen(&mut summary, at(105), 2, None);
        // Our own write, which the watch tells before the answer comes.
        seen(&mut summary, at(109), 3, Some("me"));
        summary.elected(at(110), elected(Claim::Released));
        assert_eq!(gap(&summary), Some(Duration::from_millis(10)));
    }

    #[test]
    fn a_first_term_has_no_gap_that_is_known() {
        let mut summary = TermSummary::new(named("me"));
        summary.elected(at(5), elected(Claim::FirstSight));
        assert_eq!(gap(&summary), None);
        assert_eq!(Known(None).to_string(), "unknown");
    }

    #[test]
    fn the_end_says_what_was_lost_and_what_became_of_the_lease() {
        let taken = Loss::Taken(named("other").unwrap());
        for (loss, released, words) in [
            (Some(Loss::Resigned), true, "released"),
            (Some(Loss::Resigned), false, "not released"),
            (
                Some(Loss::RenewDeadline),
                true,
                "lost (RenewDeadline), released",
            ),
            (Some(taken), false, "lost (taken by other), not released"),
        ] {
            assert_eq!(ended(loss.as_ref(), released), words);
        }
    }
}
