//! What a store has been seen to hold, so that a write can send back what is not ours.

use std::collections::VecDeque;

use soloist_core::ids::Version;

/// The election writes on the newest that it was told; a few more, because the watch may be ahead.
const MOST: usize = 8;

/// The last states that were seen.
#[derive(Debug)]
pub(crate) struct Seen<T> {
    /// Least recently seen first: after a restore of the store the newest version is a low one.
    states: VecDeque<(Version, T)>,
    /// The newest read: the record's version, and a later one of the whole store at which it still was the newest.
    read: Option<(Version, Version)>,
}

impl<T> Default for Seen<T> {
    fn default() -> Self {
        Self {
            states: VecDeque::new(),
            read: None,
        }
    }
}

impl<T: Clone> Seen<T> {
    pub(crate) fn remember(&mut self, version: Version, state: T) {
        self.states.retain(|(seen, _)| *seen != version);
        self.states.push_back((version, state));
        while self.states.len() > MOST {
            self.states.pop_front();
        }
    }

    pub(crate) fn at(&self, version: Version) -> Option<T> {
        let found = self.states.iter().find(|(seen, _)| *seen == version);
        found.map(|(_, state)| state.clone())
    }

    /// A read showed the record at `version`, when the whole store was at `store`.
    pub(crate) fn was_read(&mut self, version: Version, store: Version) {
        self.read = Some((version, store));
    }

    /// A lease that nobody touches keeps its version while the store's grows, until the store has forgotten so old a
    /// version. If a later one is known to have brought nothing, a watch begins there.
    pub(crate) fn newest_known(&self, after: Version) -> Version {
        match self.read {
            Some((version, store)) if version == after => store.max(after),
            _ => after,
        }
    }

    #[cfg(feature = "etcd")]
    pub(crate) fn states(&self) -> impl Iterator<Item = &T> {
        self.states.iter().map(|(_, state)| state)
    }
}
