//! The orders in a record, each as one line of text that a person can write.
//!
//! | | |
//! |---|---|
//! | handover | `term=4`, `term=4 to=web-1` |
//! | pause | `keep`, `stop`, `keep until=2026-01-31T18:00:00Z`; `true` is `keep` |

use jiff::Timestamp;
use soloist_core::ids::{Identity, Term};
use soloist_core::orders::{Handover, Pause, WallTime};

/// As it is written into the store.
pub(crate) fn handover_to_text(handover: &Handover) -> String {
    let Handover { term, to } = handover;
    match to {
        Some(to) => format!("term={term} to={to}"),
        None => format!("term={term}"),
    }
}

/// Reads a handover; what is wrong with it as a sentence's end.
pub(crate) fn parse_handover(text: &str) -> Result<Handover, String> {
    let expected = || {
        format!(
            "{text:?} is no order for a handover; write term=N or term=N to=REPLICA, with the term of the present leader"
        )
    };
    let mut words = text.split_ascii_whitespace();
    let term = words.next().and_then(|word| word.strip_prefix("term="));
    let term = term.and_then(|number| number.parse().ok());
    let term = Term::new(term.ok_or_else(expected)?);
    let to = match words.next() {
        None => None,
        Some(word) => {
            let heir = word.strip_prefix("to=").and_then(Identity::found);
            Some(heir.ok_or_else(expected)?)
        }
    };
    match words.next() {
        None => Ok(Handover { term, to }),
        Some(_) => Err(expected()),
    }
}

/// As it is written into the store.
pub(crate) fn pause_to_text(pause: &Pause) -> String {
    let kind = if pause.stop { "stop" } else { "keep" };
    match pause.until.and_then(timestamp) {
        Some(until) => format!("{kind} until={until}"),
        None => kind.into(),
    }
}

/// Reads a pause; what is wrong with it as a sentence's end.
pub(crate) fn parse_pause(text: &str) -> Result<Pause, String> {
    let expected = || {
        format!(
            "{text:?} is no order for a pause; write keep or stop, and until=2026-01-31T18:00:00Z if it is to end by itself"
        )
    };
    let mut words = text.split_ascii_whitespace();
    let stop = match words.next() {
        Some("keep" | "true") => false,
        Some("stop") => true,
        Some(_) | None => return Err(expected()),
    };
    let until = match words.next() {
        None => None,
        Some(word) => {
            let at = word.strip_prefix("until=").ok_or_else(expected)?;
            let at: Timestamp = at.parse().map_err(|_| expected())?;
            Some(WallTime::from_unix_seconds(
                u64::try_from(at.as_second()).unwrap_or(0),
            ))
        }
    };
    match words.next() {
        None => Ok(Pause { stop, until }),
        Some(_) => Err(expected()),
    }
}

/// As people read it; `None` if it is later than any calendar goes.
#[must_use]
pub fn timestamp(at: WallTime) -> Option<Timestamp> {
    Timestamp::from_second(i64::try_from(at.unix_seconds()).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_survive_being_written_and_read() {
        for to in [None, Identity::found("web-1")] {
            let handover = Handover {
                term: Term::new(7),
                to,
            };
            let text = handover_to_text(&handover);
            assert_eq!(parse_handover(&text), Ok(handover));
        }
        for stop in [false, true] {
            for until in [None, Some(WallTime::from_unix_seconds(1_769_882_400))] {
                let pause = Pause { stop, until };
                assert_eq!(parse_pause(&pause_to_text(&pause)), Ok(pause));
            }
        }
    }

    #[test]
    fn what_people_write_by_hand_is_understood() {
        let until = |text: &str| parse_pause(text).map(|p| p.until.map(WallTime::unix_seconds));
        assert_eq!(until("true"), Ok(None));
        assert_eq!(
            until("stop until=2026-01-31T18:00:00Z"),
            Ok(Some(1_769_882_400))
        );
        assert_eq!(
            until("keep until=2026-01-31T19:00:00+01:00"),
            Ok(Some(1_769_882_400))
        );
    }

    #[test]
    fn what_is_no_order_is_refused_with_the_form() {
        for text in [
            "",
            "now",
            "4",
            "term=",
            "term=x",
            "term=4 web-1",
            "term=4 to=",
            "term=4 to=a b",
        ] {
            let error = parse_handover(text).unwrap_err();
            assert!(
                error.contains("write term=N or term=N to=REPLICA"),
                "{error}"
            );
        }
        for text in [
            "",
            "yes",
            "false",
            "stop now",
            "keep until=tomorrow",
            "stop until=2026-01-31T18:00:00Z x",
        ] {
            let error = parse_pause(text).unwrap_err();
            assert!(error.contains("write keep or stop"), "{error}");
        }
    }
}
