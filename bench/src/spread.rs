//! Median, 95th percentile and worst of what was measured.

use serde_json::{Value, json};

#[derive(Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) p95: f64,
    pub(crate) worst: f64,
}

impl Spread {
    /// In milliseconds.
    pub(crate) fn of(nanoseconds: impl Iterator<Item = i128>) -> Self {
        Self::of_values(nanoseconds.map(|time| time as f64 / 1e6))
    }

    pub(crate) fn of_values(values: impl Iterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = values.collect();
        sorted.sort_by(f64::total_cmp);
        // The nearest rank: a value that was measured.
        let at = |part: f64| {
            let rank = (part * sorted.len() as f64).ceil() as usize;
            sorted
                .get(rank.saturating_sub(1))
                .copied()
                .unwrap_or(f64::NAN)
        };
        Self {
            median: at(0.5),
            p95: at(0.95),
            worst: at(1.0),
        }
    }

    pub(crate) fn row(&self, what: &str, count: usize) -> String {
        let Self { median, p95, worst } = self;
        format!("{what:<18} {count:>3} {median:>8.1} {p95:>8.1} {worst:>8.1}")
    }

    pub(crate) fn json(&self) -> Value {
        json!({"median": self.median, "p95": self.p95, "worst": self.worst})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_values_that_were_measured() {
        let spread = Spread::of((1..=20).rev().map(|millis| millis * 1_000_000));
        let expected = Spread {
            median: 10.0,
            p95: 19.0,
            worst: 20.0,
        };
        assert_eq!(spread, expected);
    }
}
