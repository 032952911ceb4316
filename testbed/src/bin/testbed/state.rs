use std::{
    fs::{self, File},
    path::PathBuf,
};

use anyhow::Context;
use serde::{Deserialize, Serialize};

/// What a running `serve` tells the other commands.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct State {
    pub pid: i32,
    pub etcd_pid: u32,
    pub apiserver_pid: Option<u32>,
    pub server: String,
    pub kubeconfig: PathBuf,
    pub folder: PathBuf,
    pub nodes: Vec<String>,
}

/// The files of one named control plane. Its lock is held while it runs, so a pid is never mistaken.
pub(crate) struct Place {
    name: String,
    folder: PathBuf,
}

impl Place {
    pub(crate) fn of(name: &str) -> anyhow::Result<Self> {
        let folder = testbed::run_dir().join("up");
        fs::create_dir_all(&folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
        Ok(Self {
            name: name.to_owned(),
            folder,
        })
    }

    /// `None` while someone else holds it.
    pub(crate) fn try_own(&self) -> anyhow::Result<Option<File>> {
        let path = self.folder.join(format!("{}.lock", self.name));
        let file =
            File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(file.try_lock().is_ok().then_some(file))
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.folder.join(format!("{}.log", self.name))
    }

    pub(crate) fn write(&self, state: &State) -> anyhow::Result<()> {
        let path = self.state();
        let unfinished = path.with_extension("unfinished");
        let written = fs::write(&unfinished, serde_json::to_vec_pretty(state)?);
        written
            .and_then(|()| fs::rename(&unfinished, &path))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    pub(crate) fn read(&self) -> anyhow::Result<State> {
        let path = self.state();
        let text = fs::read(&path).with_context(|| {
            format!(
                "a control plane named {:?} is starting or ending: cannot read {}",
                self.name,
                path.display()
            )
        })?;
        serde_json::from_slice(&text)
            .with_context(|| format!("cannot understand {}", path.display()))
    }

    pub(crate) fn remove(&self) {
        let _ = fs::remove_file(self.state());
    }

    fn state(&self) -> PathBuf {
        self.folder.join(format!("{}.json", self.name))
    }
}
