//! Positions that have not been seen, as ranges.

use std::collections::BTreeMap;

/// First position → last position, and the line in which the range was noticed.
#[derive(Debug, Default)]
pub(super) struct Missing(BTreeMap<u64, (u64, u64)>);

impl Missing {
    pub(super) fn add(&mut self, first: u64, last: u64, line: u64) {
        self.0.insert(first, (last, line));
    }

    /// Whether the position was missing. Now it is not.
    pub(super) fn remove(&mut self, position: u64) -> bool {
        let Some((&first, &(last, line))) = self.0.range(..=position).next_back() else {
            return false;
        };
        if position > last {
            return false;
        }
        self.0.remove(&first);
        if first < position {
            self.add(first, position - 1, line);
        }
        if position < last {
            self.add(position + 1, last, line);
        }
        true
    }

    /// First, last and line of all that is missing, in order.
    pub(super) fn ranges(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        let ranges = self.0.iter();
        ranges.map(|(&first, &(last, line))| (first, last, line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_split_where_a_position_turns_up() {
        let mut missing = Missing::default();
        missing.add(3, 6, 1);
        assert!(missing.remove(4));
        assert!(!missing.remove(4) && !missing.remove(2) && !missing.remove(7));
        assert_eq!(missing.ranges().collect::<Vec<_>>(), [(3, 3, 1), (5, 6, 1)]);
        assert!(missing.remove(3) && missing.remove(6) && missing.remove(5));
        assert_eq!(missing.ranges().count(), 0);
    }
}
