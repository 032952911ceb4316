//! The acknowledged position in a small file that is written in place.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::payload::mix;

/// A position and its checksum.
const SLOT: usize = 2 * size_of::<u64>();

/// Two slots, written in turn, so that one of them is always whole.
#[derive(Debug)]
pub(super) struct Acks {
    file: File,
    position: u64,
    is_second_next: bool,
}

/// The file of acknowledgements beside a database.
pub(super) fn path(database: &Path) -> PathBuf {
    let mut name = OsString::from(database);
    name.push(".acks");
    name.into()
}

impl Acks {
    /// `known` is what is acknowledged at least.
    pub(super) fn open(path: &Path, known: u64) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(false);
        let file = options.open(path)?;
        let mut bytes = Vec::new();
        (&file).take(2 * SLOT as u64).read_to_end(&mut bytes)?;
        let slots = bytes.as_chunks::<SLOT>().0;
        let found = |at: usize| slots.get(at).and_then(decode).unwrap_or(0);
        Ok(Self {
            file,
            position: known.max(found(0)).max(found(1)),
            is_second_next: found(0) >= found(1),
        })
    }

    pub(super) const fn position(&self) -> u64 {
        self.position
    }

    /// Returns the highest position.
    pub(super) fn raise(&mut self, position: u64) -> io::Result<u64> {
        if position > self.position {
            let at = if self.is_second_next { SLOT as u64 } else { 0 };
            self.file.write_all_at(&encode(position), at)?;
            self.is_second_next = !self.is_second_next;
            self.position = position;
        }
        Ok(self.position)
    }
}

fn encode(position: u64) -> [u8; SLOT] {
    let mut slot = [0; SLOT];
    slot[..8].copy_from_slice(&position.to_le_bytes());
    slot[8..].copy_from_slice(&checksum(position).to_le_bytes());
    slot
}

fn decode(slot: &[u8; SLOT]) -> Option<u64> {
    let (words, _) = slot.as_chunks::<8>();
    let [position, sum] = words else { return None };
    let position = u64::from_le_bytes(*position);
    (u64::from_le_bytes(*sum) == checksum(position)).then_some(position)
}

/// That of 0 is not 0: a file of zeros says nothing.
const fn checksum(position: u64) -> u64 {
    mix(position ^ 0xacac_acac_acac_acac)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_torn_slot_costs_at_most_the_last_ack() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("acks");
        let mut acks = Acks::open(&path, 0).unwrap();
        for position in [10, 20, 30] {
            assert_eq!(acks.raise(position).unwrap(), position);
        }
        assert_eq!(acks.raise(5).unwrap(), 30);
        let whole = fs::read(&path).unwrap();
        assert_eq!(Acks::open(&path, 0).unwrap().position(), 30);
        for at in 0..whole.len() {
            let mut torn = whole.clone();
            torn[at] ^= 1;
            fs::write(&path, &torn).unwrap();
            let mut acks = Acks::open(&path, 0).unwrap();
            assert!(acks.position() >= 20, "{at}");
            acks.raise(40).unwrap();
            assert_eq!(Acks::open(&path, 0).unwrap().position(), 40);
        }
    }

    #[test]
    fn a_lost_file_leaves_what_the_database_knows() {
        let directory = tempfile::tempdir().unwrap();
        let acks = Acks::open(&directory.path().join("acks"), 7).unwrap();
        assert_eq!(acks.position(), 7);
    }
}
