//! The counter of versions, kept in the lock file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{SystemTime, UNIX_EPOCH};

/// The wall clock's milliseconds: should somebody delete the counter too, tokens still grow.
pub(super) fn first_version() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    let millis = since_epoch.map_or(1, |d| d.as_millis()).max(1);
    u64::try_from(millis).unwrap_or(1)
}

/// FNV-1a: it has to tell apart edits by hand, not attacks.
pub(super) fn fingerprint(content: &[u8]) -> u64 {
    content.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counter {
    /// Zero in a new lock file.
    pub(super) version: u64,
    /// Of the content at this version; `None` if there was no record.
    pub(super) fingerprint: Option<u64>,
}

impl Counter {
    const TITLE: &'static str = "soloist lease counter, do not edit";

    /// `None` if the file is not one of ours.
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

    /// Always the same length and less than a sector, so it is overwritten in one piece.
    pub(super) fn save(self, file: &File) -> io::Result<()> {
        let record = match self.fingerprint {
            Some(fingerprint) => format!("{fingerprint:016x}"),
            None => "-".repeat(16),
        };
        let text = format!(
            "{}\nversion {:020}\nrecord {record}\n",
            Self::TITLE,
            self.version
        );
        file.write_all_at(text.as_bytes(), 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_survives_being_written_and_read() {
        let file = tempfile::tempfile().unwrap();
        let new = Counter::load(&file).unwrap().unwrap();
        assert_eq!((new.version, new.fingerprint), (0, None));
        for counter in [
            Counter {
                version: u64::MAX,
                fingerprint: Some(0),
            },
            Counter {
                version: 1,
                fingerprint: None,
            },
            Counter {
                version: first_version(),
                fingerprint: Some(fingerprint(b"x")),
            },
        ] {
            counter.save(&file).unwrap();
            assert_eq!(Counter::load(&file).unwrap(), Some(counter));
        }
    }

    #[test]
    fn what_is_not_a_counter_is_none() {
        for content in [
            "1\n",
            "soloist lease counter, do not edit\nversion x\n",
            &"x".repeat(500),
        ] {
            let file = tempfile::tempfile().unwrap();
            file.write_all_at(content.as_bytes(), 0).unwrap();
            assert_eq!(Counter::load(&file).unwrap(), None);
        }
    }
}
