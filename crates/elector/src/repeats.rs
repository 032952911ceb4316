//! What is true again and again is told now and then.

use std::time::Duration;

use soloist_core::time::Moment;

/// Which lines have been told, and when.
#[derive(Debug, Default)]
pub struct Repeats {
    told: Vec<(String, Moment)>,
}

impl Repeats {
    /// The same line is told this often at most.
    pub const EVERY: Duration = Duration::from_secs(30);
    /// Different lines that are remembered.
    const MOST: usize = 8;

    /// Whether to tell this line now.
    pub fn are_due(&mut self, now: Moment, line: &str) -> bool {
        self.told.retain(|(_, at)| now.since(*at) < Self::EVERY);
        if self.told.iter().any(|(told, _)| told == line) {
            return false;
        }
        if self.told.len() == Self::MOST {
            self.told.remove(0);
        }
        self.told.push((line.to_owned(), now));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_told_at_once_and_then_now_and_then() {
        let at = |seconds| Moment::since_boot(Duration::from_secs(seconds));
        let mut repeats = Repeats::default();
        assert!(repeats.are_due(at(0), "a"));
        assert!(!repeats.are_due(at(29), "a"));
        assert!(repeats.are_due(at(29), "b"));
        assert!(repeats.are_due(at(30), "a"));
        assert!(!repeats.are_due(at(31), "b"));
    }
}
