use std::fs;

use super::{ControlPlane, lock};
use crate::{Error, etcd, process::Component};

/// Ways to break it. On a control plane that tests share, these disturb the other tests too.
impl ControlPlane {
    /// Kills kube-apiserver with SIGKILL; its data stays in etcd. Undone by [`Self::start_apiserver`].
    pub fn kill_apiserver(&self) {
        drop(lock(&self.apiserver).take());
    }

    /// Restarts kube-apiserver with a new key for the tokens of service accounts. Tokens of the old key stay good until
    /// [`Self::refuse_tokens_of_old_keys`].
    pub async fn renew_token_key(&self) -> Result<(), Error> {
        self.certificates.renew_accounts_key()?;
        self.kill_apiserver();
        self.start_apiserver().await
    }

    /// Restarts kube-apiserver so that only tokens of the newest key are good.
    pub async fn refuse_tokens_of_old_keys(&self) -> Result<(), Error> {
        self.certificates.forget_old_accounts_keys()?;
        self.kill_apiserver();
        self.start_apiserver().await
    }

    /// Stops kube-apiserver (SIGSTOP): connections stay open and nothing answers.
    pub fn freeze_apiserver(&self) -> Result<(), Error> {
        lock(&self.apiserver)
            .as_ref()
            .map_or(Ok(()), Component::freeze)
    }

    /// Lets kube-apiserver go on (SIGCONT).
    pub fn thaw_apiserver(&self) -> Result<(), Error> {
        lock(&self.apiserver)
            .as_ref()
            .map_or(Ok(()), Component::thaw)
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

    /// Saves all that is in etcd, in place of what was saved before.
    pub async fn back_up_etcd(&self) -> Result<(), Error> {
        etcd::save(&self.ports, &self.folder.path().join("backup.db"))
    }

    /// Sets etcd back to what [`Self::back_up_etcd`] saved, as after a disaster and without a bump of its revision: what came
    /// after it has never been, and its versions are given out again. kube-apiserver is restarted, as it must be.
    pub async fn set_etcd_back(&self) -> Result<(), Error> {
        self.kill_apiserver();
        lock(&self.etcd).kill();
        let (folder, data) = (self.folder.path(), self.folder.path().join("etcd"));
        fs::remove_dir_all(&data).map_err(Error::io("remove", &data))?;
        etcd::restore(&self.ports, &folder.join("backup.db"), &data)?;
        let arguments = etcd::arguments(&self.ports, &data);
        let mut restored = Component::start("etcd", &self.binaries.etcd, &arguments, folder)?;
        let patience = self.options.patience;
        etcd::wait_until_healthy(&mut restored, self.ports.etcd, patience).await?;
        *lock(&self.etcd) = restored;
        self.start_apiserver().await
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
