//! What is special about a lease in a file.
#![allow(clippy::unwrap_used, reason = "a failing test says where")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../../../process/tests/common/skipped.rs"]
mod skipped;

mod contents;
mod folders;
mod former;
mod helper;
mod interrupted;
mod mounts;
mod succession;

use std::path::Path;

use skipped::skipped;
use soloist_elector::core::election::Purpose;
use soloist_elector::file::FileStore;
use soloist_elector::testing::{absent, held_by};
use soloist_elector::{LeaseStore, StoreError, Stored};

pub(crate) fn refusal(error: StoreError) -> String {
    match error {
        StoreError::Refused(refusal) => refusal.to_string(),
        other => panic!("not refused: {other}"),
    }
}

pub(crate) async fn create(store: &FileStore) -> Stored<()> {
    store
        .write(&absent(), &held_by("a", 1, 1), Purpose::Acquire)
        .await
        .unwrap()
}

pub(crate) fn chown(path: &Path, user: u32) -> bool {
    let given = std::os::unix::fs::lchown(path, Some(user), Some(user));
    if given.is_err() {
        skipped("only root may give files away");
    }
    given.is_ok()
}

/// Of a record, as the files have it (FNV-1a).
pub(crate) fn fingerprint(record: &str) -> u64 {
    record.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
