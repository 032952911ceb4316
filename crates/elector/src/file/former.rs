//! The lock file of former versions, `NAME.lock`: they locked it (`flock`) for every access and counted versions in it. It
//! becomes the folder of the same name. Former versions cannot open that and say so, so none of them is ever beside this one.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// What was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counter {
    /// Zero in a new lock file.
    pub(super) version: u64,
    /// Of the content at this version; `None` if there was no record.
    pub(super) fingerprint: Option<u64>,
}

impl Counter {
    const TITLE: &'static str = "soloist lease counter, do not edit";

    /// `None` if the file is not one of soloist's.
    pub(super) fn load(file: &File) -> io::Result<Option<Self>> {
        let mut content = [0; 128];
        let mut length = 0;
        loop {
            match file.read_at(&mut content[length..], length as u64)? {
                0 => break,
                count => length += count,
            }
        }
        if length == 0 {
            return Ok(Some(Self {
                version: 0,
                fingerprint: None,
            }));
        }
        Ok(std::str::from_utf8(&content[..length])
            .ok()
            .and_then(Self::parse))
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        if lines.next()? != Self::TITLE {
            return None;
        }
        let version = lines.next()?.strip_prefix("version ")?.parse().ok()?;
        let fingerprint = match lines.next()?.strip_prefix("record ")? {
            "----------------" => None,
            hex => Some(u64::from_str_radix(hex, 16).ok()?),
        };
        Some(Self {
            version,
            fingerprint,
        })
    }
}

/// Whether this process has it now. It is let go when the file is closed.
pub(super) fn try_lock(file: &File) -> io::Result<bool> {
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loaded(content: &str) -> Option<Counter> {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(content.as_bytes(), 0).unwrap();
        Counter::load(&file).unwrap()
    }

    #[test]
    fn a_counter_of_a_former_version_is_read() {
        let title = Counter::TITLE;
        for (content, version, fingerprint) in [
            (String::new(), 0, None),
            (
                format!("{title}\nversion 00000000000000000007\nrecord 00000000000000ff\n"),
                7,
                Some(255),
            ),
            (
                format!("{title}\nversion 18446744073709551615\nrecord ----------------\n"),
                u64::MAX,
                None,
            ),
        ] {
            let counter = Counter {
                version,
                fingerprint,
            };
            assert_eq!(loaded(&content), Some(counter));
        }
    }

    #[test]
    fn what_is_not_a_counter_is_none() {
        for content in [
            "1\n",
            "soloist lease counter, do not edit\nversion x\n",
            &"x".repeat(500),
        ] {
            assert_eq!(loaded(content), None);
        }
    }
}
