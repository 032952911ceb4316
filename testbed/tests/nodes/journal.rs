//! What the children have written down.

use std::{fs, path::Path, time::Duration};

/// A line of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub at: Duration,
    pub what: String,
    /// The Pod.
    pub identity: String,
    pub token: u64,
}

impl Event {
    pub(crate) fn is_start(&self) -> bool {
        self.what == "start"
    }

    pub(crate) fn is_start_after(&self, first: &Self) -> bool {
        self.is_start() && self.token > first.token
    }
}

pub(crate) fn read(folder: &Path) -> Vec<Event> {
    let text = fs::read_to_string(folder.join("journal")).unwrap_or_default();
    text.lines().filter_map(parse).collect()
}

fn parse(line: &str) -> Option<Event> {
    let mut words = line.split(' ');
    let (millis, what) = (words.next()?.parse().ok()?, words.next()?);
    let field = |name: &str| {
        line.split(' ')
            .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    };
    Some(Event {
        at: Duration::from_millis(millis),
        what: what.to_owned(),
        identity: field("identity")?.to_owned(),
        token: field("token")?.parse().ok()?,
    })
}

/// Who found the lock taken: a second child.
pub(crate) fn overlaps(folder: &Path) -> String {
    fs::read_to_string(folder.join("overlap")).unwrap_or_default()
}
