//! A lease file that answers nobody, for as long as a test wants it.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use crate::harness::Group;

/// As if a replica of a former version had the lease locked and were stopped: in the place of the head's folder is its lock file. Whoever
/// is in the middle of a write does not get on either.
pub(crate) struct HeldLease {
    folder: PathBuf,
    /// The head's name, if there was one yet.
    head: Option<String>,
    _locked: File,
}

impl HeldLease {
    pub(crate) fn of(group: &Group) -> Self {
        let folder = group.path("");
        fs::write(folder.join(ASIDE), COUNTER).unwrap();
        let locked = File::open(folder.join(ASIDE)).unwrap();
        locked.lock().unwrap();
        let begun = loop {
            match change_places(&folder, RenameFlags::EXCHANGE) {
                Ok(()) => break true,
                Err(Errno::NOENT) => {}
                Err(error) => panic!("{error}"),
            }
            match change_places(&folder, RenameFlags::NOREPLACE) {
                Ok(()) => break false,
                Err(Errno::EXIST) => {}
                Err(error) => panic!("{error}"),
            }
        };
        let head = begun.then(|| take_head(&folder));
        Self {
            folder,
            head,
            _locked: locked,
        }
    }
}

const LOCK: &str = "lease.lock";
const ASIDE: &str = "aside";
const TAKEN: &str = "taken";
const COUNTER: &str =
    "soloist lease counter, do not edit\nversion 00000000000000000001\nrecord ----------------\n";

fn change_places(folder: &Path, how: RenameFlags) -> Result<(), Errno> {
    renameat_with(CWD, folder.join(ASIDE), CWD, folder.join(LOCK), how)
}

/// Nobody moves it any more then, and what it stands for is the record.
fn take_head(folder: &Path) -> String {
    let aside = folder.join(ASIDE);
    loop {
        let names = fs::read_dir(&aside).unwrap();
        let mut names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let Some(head) = names.find(|name| name.starts_with("head.")) else {
            continue;
        };
        if !was_there(fs::rename(aside.join(&head), aside.join(TAKEN))) {
            continue;
        }
        let parts: Vec<_> = head.split('.').collect();
        let draft = format!("draft.{}.{}", parts[1], parts[4]);
        was_there(fs::rename(aside.join(draft), folder.join("lease")));
        return head;
    }
}

fn was_there(renamed: io::Result<()>) -> bool {
    match renamed {
        Ok(()) => true,
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        Err(error) => panic!("{error}"),
    }
}

impl Drop for HeldLease {
    fn drop(&mut self) {
        let aside = self.folder.join(ASIDE);
        let given_back = match &self.head {
            Some(head) => fs::rename(aside.join(TAKEN), aside.join(head))
                .and_then(|()| Ok(change_places(&self.folder, RenameFlags::EXCHANGE)?))
                .and_then(|()| fs::remove_file(aside)),
            None => fs::remove_file(self.folder.join(LOCK)),
        };
        // A group that is gone already needs nothing back.
        if !std::thread::panicking() {
            given_back.unwrap();
        }
    }
}
