//! Leases for the tests, in memory and in a file.
#![allow(dead_code, missing_docs, reason = "each test takes what it needs")]

pub(crate) mod election;

use serde_json::{Value, json};
use soloist_elector::core::ids::Identity;
use soloist_elector::file::FileStore;
use soloist_elector::memory::MemoryStore;
use soloist_elector::testing::Fixture;
use tempfile::TempDir;

pub(crate) struct Memory(pub(crate) MemoryStore);

impl Memory {
    pub(crate) fn new() -> Self {
        Self(MemoryStore::new())
    }
}

impl Fixture for Memory {
    type Store = MemoryStore;

    fn store(&self) -> MemoryStore {
        self.0.clone()
    }

    async fn delete(&self) {
        self.0.delete();
    }

    async fn set_holder(&self, holder: Option<&str>) {
        self.0
            .edit(|record| record.holder = holder.and_then(Identity::found));
    }
}

pub(crate) struct File(pub(crate) TempDir);

impl File {
    pub(crate) fn new() -> Self {
        // In memory: a disk that others keep busy may take longer for one write than a test's lease lasts.
        let shm = std::path::Path::new("/dev/shm");
        let folder = tempfile::tempdir_in(shm).or_else(|_| tempfile::tempdir());
        Self(folder.unwrap())
    }

    pub(crate) fn path(&self) -> std::path::PathBuf {
        self.0.path().join("lease")
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&std::fs::read(self.path()).unwrap()).unwrap()
    }

    /// As an editor that saves by replacing the file.
    pub(crate) fn put(&self, content: &str) {
        let new = self.0.path().join("edited");
        std::fs::write(&new, content).unwrap();
        std::fs::rename(new, self.path()).unwrap();
    }
}

impl Fixture for File {
    type Store = FileStore;

    fn store(&self) -> FileStore {
        FileStore::open(self.path()).unwrap()
    }

    async fn delete(&self) {
        std::fs::remove_file(self.path()).unwrap();
    }

    async fn set_holder(&self, holder: Option<&str>) {
        let mut record = self.json();
        record["holder"] = json!(holder);
        self.put(&record.to_string());
    }
}
