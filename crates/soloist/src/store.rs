//! Which store, and the driver of the election on it.

use std::env;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::Context;
use rustix::process::geteuid;
use soloist_core::election::Config;
use soloist_elector::file::{FileStore, ProcessRef};
use soloist_elector::kubernetes::{KubernetesStore, Options};
use soloist_elector::{Driver, DriverEvent, DriverHandle};
use tokio::sync::mpsc;

/// What `--store` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoreChoice {
    Kubernetes,
    File(Option<PathBuf>),
}

impl FromStr for StoreChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "kubernetes" => Ok(Self::Kubernetes),
            None if text == "file" => Ok(Self::File(None)),
            Some(("file", path)) if !path.is_empty() => Ok(Self::File(Some(path.into()))),
            _ => Err(format!(
                "{text:?} is not a store: write kubernetes, file or file:PATH"
            )),
        }
    }
}

impl StoreChoice {
    /// In a Pod the lease is in Kubernetes; elsewhere it is a file: it just runs.
    pub(crate) fn fitting() -> Self {
        match env::var_os("KUBERNETES_SERVICE_HOST") {
            Some(_) => Self::Kubernetes,
            None => Self::File(None),
        }
    }
}

/// Where the lease is.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    Kubernetes(Options),
    File(PathBuf),
}

/// The user's own folder for what lives as long as the machine runs.
pub(crate) fn default_path(name: &str) -> PathBuf {
    let folder = match env::var_os("XDG_RUNTIME_DIR") {
        Some(folder) if Path::new(&folder).is_absolute() => PathBuf::from(folder).join("soloist"),
        _ => env::temp_dir().join(format!("soloist-{}", geteuid().as_raw())),
    };
    folder.join(name)
}

/// The election under way, and what the store must know of our processes.
pub(crate) struct Elections {
    pub(crate) handle: DriverHandle,
    pub(crate) events: mpsc::Receiver<DriverEvent>,
    file: Option<FileStore>,
}

impl Elections {
    pub(crate) async fn begin(place: Place, config: Config) -> anyhow::Result<Self> {
        match place {
            Place::Kubernetes(options) => {
                let store = KubernetesStore::connect(options).await?;
                let (handle, events) = Driver::spawn(store, config)?;
                let file = None;
                Ok(Self {
                    handle,
                    events,
                    file,
                })
            }
            Place::File(path) => {
                let store = FileStore::open(&path)
                    .with_context(|| format!("the lease file {}", path.display()))?;
                let (handle, events) = Driver::spawn(store.clone(), config)?;
                let file = Some(store);
                Ok(Self {
                    handle,
                    events,
                    file,
                })
            }
        }
    }

    /// Names the guard, so that nobody succeeds us while it lives. To be called before the child exists.
    pub(crate) async fn name_guard(&self, guard: u32) -> anyhow::Result<()> {
        let Some(store) = &self.file else {
            return Ok(());
        };
        let processes = [std::process::id(), guard].map(ProcessRef::of);
        let processes: Result<Vec<_>, _> = processes.into_iter().collect();
        let processes = processes.context("reading /proc")?;
        store.set_processes(processes).await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_named_with_or_without_a_path() {
        assert_eq!("kubernetes".parse(), Ok(StoreChoice::Kubernetes));
        assert_eq!("file".parse(), Ok(StoreChoice::File(None)));
        let path = StoreChoice::File(Some("/x/y".into()));
        assert_eq!("file:/x/y".parse(), Ok(path));
        for wrong in ["", "etcd", "file:", "kubernetes:x"] {
            assert!(wrong.parse::<StoreChoice>().is_err(), "{wrong}");
        }
    }
}
