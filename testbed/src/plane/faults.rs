use super::{ControlPlane, lock};
use crate::{Error, etcd};

/// Ways to break it. On a control plane that tests share, these disturb the other tests too.
impl ControlPlane {
    /// Kills kube-apiserver with SIGKILL; its data stays in etcd. Undone by [`Self::start_apiserver`].
    pub fn kill_apiserver(&self) {
        drop(lock(&self.apiserver).take());
    }

    /// Stops kube-apiserver (SIGSTOP): connections stay open and nothing answers.
    pub fn freeze_apiserver(&self) -> Result<(), Error> {
        lock(&self.apiserver)
            .as_ref()
            .map_or(Ok(()), super::super::process::Component::freeze)
    }

    /// Lets kube-apiserver go on (SIGCONT).
    pub fn thaw_apiserver(&self) -> Result<(), Error> {
        lock(&self.apiserver)
            .as_ref()
            .map_or(Ok(()), super::super::process::Component::thaw)
    }

    /// Stops etcd (SIGSTOP): writes and consistent reads hang, what the API server has cached is still served.
    pub fn freeze_etcd(&self) -> Result<(), Error> {
        lock(&self.etcd).freeze()
    }

    /// Lets etcd go on (SIGCONT).
    pub fn thaw_etcd(&self) -> Result<(), Error> {
        lock(&self.etcd).thaw()
    }

    /// Makes etcd forget all revisions before the current one, which is returned.
    ///
    /// kube-apiserver goes on serving older watches from its own cache; see [`Self::expire_watches`].
    pub async fn compact_etcd(&self) -> Result<i64, Error> {
        etcd::compact(self.ports.etcd).await
    }

    /// Makes every watch from an older `resourceVersion` end with 410 Gone: compacts etcd and restarts
    /// kube-apiserver, whose cache of past events dies with it.
    pub async fn expire_watches(&self) -> Result<i64, Error> {
        let revision = self.compact_etcd().await?;
        self.kill_apiserver();
        self.start_apiserver().await?;
        Ok(revision)
    }
}
