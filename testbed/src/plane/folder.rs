use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use crate::{Error, cache::run_dir, cluster::sweep};

pub(crate) const LOCK: &str = "owner.lock";

/// A control plane's own folder, or an etcd's. Its lock is held as long as its owner lives, so that the next one can sweep
/// up after an owner that was killed.
#[derive(Debug)]
pub(crate) struct Folder {
    dir: TempDir,
    run_dir: PathBuf,
    _lock: File,
}

impl Folder {
    pub(crate) fn create() -> Result<Self, Error> {
        let run_dir = run_dir();
        let planes = run_dir.join("planes");
        fs::create_dir_all(&planes).map_err(Error::io("create", &planes))?;
        // Nobody sweeps between the creation of a folder and the lock in it.
        let gate_path = run_dir.join("sweep.lock");
        let gate = File::create(&gate_path).map_err(Error::io("create", &gate_path))?;
        gate.lock().map_err(Error::io("lock", &gate_path))?;
        sweep(&planes);
        let dir = tempfile::Builder::new()
            .prefix("plane-")
            .tempdir_in(&planes)
            .map_err(Error::io("create a folder in", &planes))?;
        let path = dir.path().join(LOCK);
        let lock = File::create(&path).map_err(Error::io("create", &path))?;
        lock.lock().map_err(Error::io("lock", &path))?;
        Ok(Self {
            dir,
            run_dir,
            _lock: lock,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    pub(crate) fn run_dir(&self) -> &Path {
        &self.run_dir
    }

    /// Writes so that a reader sees all of the file or none of it.
    pub(super) fn write_new(&self, name: &str, text: &str) -> Result<PathBuf, Error> {
        let path = self.path().join(name);
        let mut file =
            tempfile::NamedTempFile::new_in(self.path()).map_err(Error::io("create", &path))?;
        std::io::Write::write_all(&mut file, text.as_bytes()).map_err(Error::io("write", &path))?;
        file.persist(&path)
            .map_err(|error| Error::io("write", &path)(error.error))?;
        Ok(path)
    }
}

fn sweep(planes: &Path) {
    for entry in fs::read_dir(planes).into_iter().flatten().flatten() {
        let abandoned = match File::open(entry.path().join(LOCK)) {
            Ok(lock) => lock.try_lock().is_ok(),
            Err(_) => true,
        };
        if abandoned {
            tracing::debug!(folder = %entry.path().display(), "sweeping up after a killed owner");
            sweep::now(&entry.path());
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
