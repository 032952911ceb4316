//! What a child says of itself (`STATUS=…`), for the log: each change, but not more of them than people can read.

use std::time::Duration;

use soloist_core::time::Moment;
use tracing::info;

/// Between two lines. What is said meanwhile is forgotten but for the last.
const PAUSE: Duration = Duration::from_secs(1);

/// Longer ones are cut.
const MOST_CHARACTERS: usize = 200;

/// The statuses of one child.
#[derive(Debug, Default)]
pub(crate) struct StatusLine {
    told: Option<(Moment, String)>,
    waiting: Option<String>,
}

impl StatusLine {
    /// The child says this; what is to be told now.
    pub(crate) fn hear(&mut self, now: Moment, status: &str) -> Option<String> {
        self.waiting = Some(cut(status));
        if self
            .told
            .as_ref()
            .is_some_and(|(_, told)| self.waiting.as_ref() == Some(told))
        {
            self.waiting = None;
        }
        self.tell(now)
    }

    /// When something is to be told that waits.
    pub(crate) fn next(&self) -> Option<Moment> {
        self.waiting.as_ref().map(|_| self.may_tell_at())
    }

    /// What is to be told now.
    pub(crate) fn tell(&mut self, now: Moment) -> Option<String> {
        if now < self.may_tell_at() {
            return None;
        }
        let status = self.waiting.take()?;
        self.told = Some((now, status.clone()));
        Some(status)
    }

    fn may_tell_at(&self) -> Moment {
        let told_at = self.told.as_ref().map(|(at, _)| *at + PAUSE);
        told_at.unwrap_or(Moment::since_boot(Duration::ZERO))
    }
}

impl Drop for StatusLine {
    fn drop(&mut self) {
        if let Some(status) = self.waiting.take() {
            write(&status);
        }
    }
}

/// Into the log.
pub(crate) fn write(status: &str) {
    info!(status, "the child says");
}

fn cut(status: &str) -> String {
    match status.char_indices().nth(MOST_CHARACTERS) {
        Some((end, _)) => format!("{}…", &status[..end]),
        None => status.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::since_boot(Duration::from_millis(10_000 + millis))
    }

    #[test]
    fn the_same_is_told_once() {
        let mut line = StatusLine::default();
        assert_eq!(line.hear(at(0), "a").as_deref(), Some("a"));
        assert_eq!(line.hear(at(5000), "a"), None);
        assert_eq!(line.next(), None);
        assert_eq!(line.hear(at(5001), "b").as_deref(), Some("b"));
    }

    #[test]
    fn of_many_in_a_second_the_last_is_told_when_it_is_over() {
        let mut line = StatusLine::default();
        assert_eq!(line.hear(at(0), "0").as_deref(), Some("0"));
        for n in 1..1000 {
            assert_eq!(line.hear(at(n), &n.to_string()), None);
        }
        assert_eq!(line.next(), Some(at(1000)));
        assert_eq!(line.tell(at(1000)).as_deref(), Some("999"));
        assert_eq!(line.next(), None);
    }

    #[test]
    fn back_to_what_was_told_is_no_change() {
        let mut line = StatusLine::default();
        assert!(line.hear(at(0), "a").is_some());
        assert_eq!(line.hear(at(1), "b"), None);
        assert_eq!(line.hear(at(2), "a"), None);
        assert_eq!(line.next(), None);
    }

    #[test]
    fn a_long_one_is_cut_between_characters() {
        let mut line = StatusLine::default();
        let told = line.hear(at(0), &"ä".repeat(4000)).unwrap();
        assert_eq!(told.chars().count(), MOST_CHARACTERS + 1);
        assert!(told.ends_with("ä…"));
    }
}
