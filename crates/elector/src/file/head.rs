//! The head of the lease: which version its record has now, said by the name of an empty file.

use std::ffi::OsStr;
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::random;

/// The wall clock's milliseconds: should somebody delete the head too, tokens still grow.
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

const NO_RECORD: &str = "----------------";

/// What the lease is at. No two have the same name, ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// One more with every move of the head.
    serial: u64,
    /// The record's.
    pub(super) version: u64,
    /// Of the record's content; `None` if there is none.
    pub(super) fingerprint: Option<u64>,
    nonce: u64,
}

impl Head {
    /// The first one of a lease.
    pub(super) fn first(version: u64, fingerprint: Option<u64>) -> io::Result<Self> {
        Ok(Self {
            serial: 0,
            version,
            fingerprint,
            nonce: random::bits64()?,
        })
    }

    pub(super) fn next(&self, version: u64, fingerprint: Option<u64>) -> io::Result<Self> {
        Ok(Self {
            serial: self.serial + 1,
            version,
            fingerprint,
            nonce: random::bits64()?,
        })
    }

    pub(super) fn name(&self) -> String {
        let record = match self.fingerprint {
            Some(fingerprint) => format!("{fingerprint:016x}"),
            None => NO_RECORD.into(),
        };
        let Self {
            serial,
            version,
            nonce,
            ..
        } = self;
        format!("head.{serial}.{version}.{record}.{nonce:016x}")
    }

    fn parse(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix("head.")?.split('.');
        let head = Self {
            serial: parts.next()?.parse().ok()?,
            version: parts.next()?.parse().ok()?,
            fingerprint: match parts.next()? {
                NO_RECORD => None,
                hex => Some(u64::from_str_radix(hex, 16).ok()?),
            },
            nonce: u64::from_str_radix(parts.next()?, 16).ok()?,
        };
        // Only what is exactly its name: it is renamed by that.
        (head.name() == name).then_some(head)
    }

    /// Whether this is the later one.
    pub(super) fn is_after(&self, other: &Self) -> bool {
        (self.serial, self.nonce) > (other.serial, other.nonce)
    }

    /// The content that becomes the record once this is the head.
    pub(super) const fn draft(&self) -> Draft {
        Draft {
            serial: self.serial,
            nonce: self.nonce,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Draft {
    serial: u64,
    nonce: u64,
}

impl Draft {
    pub(super) fn name(self) -> String {
        format!("draft.{}.{:016x}", self.serial, self.nonce)
    }

    fn parse(name: &str) -> Option<Self> {
        let (serial, nonce) = name.strip_prefix("draft.")?.split_once('.')?;
        let draft = Self {
            serial: serial.parse().ok()?,
            nonce: u64::from_str_radix(nonce, 16).ok()?,
        };
        (draft.name() == name).then_some(draft)
    }

    /// Whether it can never become the record any more: the head that it was written upon has moved on.
    pub(super) fn is_too_late_for(self, head: &Head) -> bool {
        self.serial <= head.serial && self != head.draft()
    }
}

/// What a name in the head's folder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Head(Head),
    Draft(Draft),
}

impl Entry {
    /// `None` for a name that is not ours.
    pub(super) fn parse(name: &OsStr) -> Option<Self> {
        let name = name.to_str()?;
        let head = Head::parse(name).map(Self::Head);
        head.or_else(|| Draft::parse(name).map(Self::Draft))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_and_its_draft_survive_being_written_and_read() {
        let first = Head::first(u64::MAX, None).unwrap();
        let next = first.next(7, Some(fingerprint(b"x"))).unwrap();
        for head in [first, next] {
            let (name, draft) = (head.name(), head.draft().name());
            assert_eq!(Entry::parse(name.as_ref()), Some(Entry::Head(head)));
            assert_eq!(
                Entry::parse(draft.as_ref()),
                Some(Entry::Draft(head.draft()))
            );
        }
        assert!(next.is_after(&first));
    }

    #[test]
    fn what_is_not_exactly_a_name_of_ours_is_none() {
        let head = Head::first(5, None).unwrap().name();
        for name in [
            "",
            "head",
            "head.1.2.3",
            "draft.+1.0000000000000001",
            "draft.1.1",
            &format!("{head}.bak"),
            &head.replace("head.0", "head.00"),
        ] {
            assert_eq!(Entry::parse(name.as_ref()), None, "{name}");
        }
    }

    #[test]
    fn a_draft_is_too_late_once_its_head_cannot_come_any_more() {
        let first = Head::first(5, None).unwrap();
        let [one, other] = [(); 2].map(|()| first.next(6, Some(1)).unwrap());
        assert!(!one.draft().is_too_late_for(&first));
        assert!(!one.draft().is_too_late_for(&one));
        assert!(one.draft().is_too_late_for(&other));
        let after = other.next(7, Some(2)).unwrap();
        assert!(other.draft().is_too_late_for(&after));
    }
}
