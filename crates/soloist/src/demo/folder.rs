//! The folder of a demo, and those that killed ones have left.

use std::env;
use std::fs::{self, DirEntry, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::geteuid;
use tempfile::{Builder, TempDir};

const PREFIX: &str = "soloist-demo-";
/// Locked for as long as its demo lives.
const HELD: &str = "held";

pub(super) struct Folder {
    folder: TempDir,
    _held: File,
}

impl Folder {
    pub(super) fn make() -> io::Result<Self> {
        sweep(&env::temp_dir());
        let folder = Builder::new().prefix(PREFIX).tempdir()?;
        // It has its name only when it is locked: a demo that begins now may look.
        let (new, name) = (folder.path().join("new"), folder.path().join(HELD));
        let held = File::create_new(&new)?;
        held.lock()?;
        fs::rename(new, name)?;
        Ok(Self {
            folder,
            _held: held,
        })
    }

    pub(super) fn path(&self) -> &Path {
        self.folder.path()
    }
}

fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if is_abandoned(&entry) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// A folder of this user's whose demo is dead.
fn is_abandoned(entry: &DirEntry) -> bool {
    let is_a_demos = entry.file_name().to_string_lossy().starts_with(PREFIX);
    let is_ours = |found: fs::Metadata| found.is_dir() && found.uid() == geteuid().as_raw();
    is_a_demos
        && entry.metadata().is_ok_and(is_ours)
        && File::open(entry.path().join(HELD)).is_ok_and(|held| held.try_lock().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_dead_demo_has_left_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let folder = parent.path().join(name);
            fs::create_dir(&folder).unwrap();
            File::create(folder.join(HELD)).unwrap()
        };
        let living = make("soloist-demo-living");
        living.lock().unwrap();
        drop(make("soloist-demo-dead"));
        drop(make("somebody-elses"));
        fs::create_dir(parent.path().join("soloist-demo-beginning")).unwrap();
        let link = parent.path().join("soloist-demo-link");
        std::os::unix::fs::symlink(parent.path().join("somebody-elses"), link).unwrap();
        sweep(parent.path());
        let left = fs::read_dir(parent.path()).unwrap();
        let left = left.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut left: Vec<_> = left.collect();
        left.sort();
        assert_eq!(
            left,
            [
                "soloist-demo-beginning",
                "soloist-demo-link",
                "soloist-demo-living",
                "somebody-elses"
            ]
        );
    }
}
