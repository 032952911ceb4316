//! Leases for the tests, in memory and in a file.
#![allow(dead_code, missing_docs, reason = "each test takes what it needs")]

pub(crate) mod election;

use std::sync::Mutex;

use serde_json::{Value, json};
use soloist_elector::core::ids::{Identity, Version};
use soloist_elector::file::FileStore;
use soloist_elector::memory::{Faults, MemoryStore};
use soloist_elector::testing::{Disturb, Disturbance, Fixture};
use tempfile::TempDir;

pub(crate) struct Memory(pub(crate) MemoryStore, Mutex<Option<Version>>);

impl Memory {
    pub(crate) fn new() -> Self {
        Self(MemoryStore::new(), Mutex::default())
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

    async fn annotate(&self, _text: &str) -> Result<(), &'static str> {
        Err("in memory there is nothing beside a record")
    }

    async fn annotation(&self) -> Option<String> {
        None
    }

    async fn back_up(&self) {
        *self.1.lock().unwrap() = Some(self.0.current().version);
    }

    async fn set_back(&self) {
        self.0.set_back(self.1.lock().unwrap().unwrap());
    }

    async fn disturbed(&self) -> Result<(MemoryStore, Disturb), &'static str> {
        let store = self.0.clone();
        let disturb = move |disturbance| {
            store.set_faults(match disturbance {
                Disturbance::None => Faults::default(),
                Disturbance::LostAnswers => Faults {
                    lose_next_answer: true,
                    ..Faults::default()
                },
                Disturbance::SilentWatches => Faults {
                    mute_watches: true,
                    ..Faults::default()
                },
                Disturbance::Slow(delay) => Faults {
                    delay,
                    ..Faults::default()
                },
            });
        };
        Ok((self.0.clone(), Box::new(disturb)))
    }

    async fn without_rights(&self) -> Result<MemoryStore, &'static str> {
        Err("memory has no rights")
    }

    async fn compact(&self) -> Result<(), &'static str> {
        self.0.compact();
        Ok(())
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

    async fn annotate(&self, text: &str) -> Result<(), &'static str> {
        let mut record = self.json();
        record["note"] = json!(text);
        self.put(&record.to_string());
        Ok(())
    }

    async fn annotation(&self) -> Option<String> {
        Some(self.json()["note"].as_str()?.to_owned())
    }

    async fn back_up(&self) {
        let (from, to) = (self.0.path(), self.0.path().join("backup"));
        std::fs::create_dir_all(to.join("lease.lock")).unwrap();
        std::fs::copy(from.join("lease"), to.join("lease")).unwrap();
        for file in std::fs::read_dir(from.join("lease.lock")).unwrap() {
            let name = std::path::Path::new("lease.lock").join(file.unwrap().file_name());
            std::fs::copy(from.join(&name), to.join(&name)).unwrap();
        }
    }

    async fn set_back(&self) {
        // The head first, and in one step, so that nobody sees the former record with the later head.
        let (from, to) = (self.0.path().join("backup"), self.0.path());
        let (saved, head) = (from.join("lease.lock"), to.join("lease.lock"));
        let exchange = rustix::fs::RenameFlags::EXCHANGE;
        rustix::fs::renameat_with(rustix::fs::CWD, saved, rustix::fs::CWD, head, exchange).unwrap();
        std::fs::rename(from.join("lease"), to.join("lease")).unwrap();
    }

    async fn disturbed(&self) -> Result<(FileStore, Disturb), &'static str> {
        Err(
            "there is no way between a process and a file of its own machine that could lose or delay anything",
        )
    }

    async fn without_rights(&self) -> Result<FileStore, &'static str> {
        Err("the kernel refuses by user, and whoever runs this may have all rights; see file.rs")
    }

    async fn compact(&self) -> Result<(), &'static str> {
        Err(
            "a file remembers its present state only, so every watch from an earlier one shows that",
        )
    }
}
