//! What happens, one line each, whoever writes.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) struct Journal(File);

impl Journal {
    pub(crate) fn of(folder: &str) -> Self {
        let path = Path::new(folder).join("journal");
        let file = File::options().append(true).create(true).open(path);
        Self(file.expect("a journal"))
    }

    /// One write, so that lines never mix.
    pub(crate) fn write(&self, what: &str, more: &str) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let millis = now.expect("a time after 1970").as_millis();
        let variable = |name: &str| std::env::var(name).unwrap_or_default();
        let line = format!(
            "{millis} {what} pid={} identity={} term={} token={}{more}\n",
            std::process::id(),
            variable("SOLOIST_IDENTITY"),
            variable("SOLOIST_TERM"),
            variable("SOLOIST_TOKEN"),
        );
        (&self.0).write_all(line.as_bytes()).expect("a line");
    }
}
