//! Which store, and the way to it.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::str::FromStr;
use std::time::Duration;
use std::{env, fmt, fs};

use anyhow::{Context, bail};
use rustix::process::geteuid;
use soloist_core::time::Human;
use soloist_core::timings::Timings;
use soloist_elector::etcd::{self, EtcdStore};
use soloist_elector::file::{FileStore, ProcessRef};
use soloist_elector::kubernetes::{KubernetesStore, Options, PairStore, Resource};
use soloist_elector::{LeaseStore, StoreCarrier, StoreError};
use soloist_process::User;
use tokio::time::timeout;
use tracing::warn;

/// What `--store` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoreChoice {
    Kubernetes(Resource),
    /// In this object and in a Lease, for moving from the one to the other.
    Pair(Resource),
    Etcd(etcd::Address),
    File(Option<PathBuf>),
    /// There is no lease: every replica runs the program.
    None,
}

impl FromStr for StoreChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "kubernetes" => Ok(Self::Kubernetes(Resource::Lease)),
            None if text == "configmap" => Ok(Self::Kubernetes(Resource::ConfigMap)),
            None if text == "endpoints" => Ok(Self::Kubernetes(Resource::Endpoints)),
            None if text == "configmap+lease" => Ok(Self::Pair(Resource::ConfigMap)),
            None if text == "endpoints+lease" => Ok(Self::Pair(Resource::Endpoints)),
            None if text == "file" => Ok(Self::File(None)),
            None if text == "none" => Ok(Self::None),
            Some(("file", path)) if !path.is_empty() => Ok(Self::File(Some(path.into()))),
            Some(("etcd", address)) => {
                let address = address.parse().map(Self::Etcd);
                address.map_err(|error: etcd::AddressError| error.to_string())
            }
            _ => Err(format!(
                "{text:?} is not a store: write kubernetes, etcd:HOST:PORT/PREFIX, file, file:PATH, or none to run the program in every \
                 replica (or, deprecated, configmap or endpoints, and configmap+lease or endpoints+lease to move away from them)"
            )),
        }
    }
}

impl StoreChoice {
    /// In a Pod the lease is in Kubernetes; elsewhere it is a file: it just runs.
    pub(crate) fn fitting() -> Self {
        match env::var_os("KUBERNETES_SERVICE_HOST") {
            Some(_) => Self::Kubernetes(Resource::Lease),
            None => Self::File(None),
        }
    }
}

/// Where the lease is.
#[derive(Clone, Debug)]
pub(crate) enum Location {
    Kubernetes(Options),
    Pair(Options),
    Etcd(etcd::Options),
    File(PathBuf),
    /// There is none.
    Nowhere,
}

impl Location {
    pub(crate) const fn is_nowhere(&self) -> bool {
        matches!(self, Self::Nowhere)
    }
}

/// Other commands are about a lease.
#[derive(Debug, thiserror::Error)]
#[error(
    "with --store none there is no lease, and nobody is elected: there is nothing to look at or to order here"
)]
pub(crate) struct NoLease;

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kubernetes(_) | Self::Pair(_) => write!(f, "kubernetes"),
            Self::Etcd(options) => write!(f, "etcd:{}", options.address()),
            Self::File(path) => write!(f, "file:{}", path.display()),
            Self::Nowhere => write!(f, "none"),
        }
    }
}

/// One path for all sessions of a user, whether they come from a login, from cron or from a service, and whatever their variables are:
/// `$HOME` and `$TMPDIR` differ between them. The runtime folder (`$XDG_RUNTIME_DIR`) also does: cron has none, and it goes with the
/// last login.
pub(crate) fn default_path(name: &str) -> anyhow::Result<PathBuf> {
    let user = geteuid();
    if user.is_root() {
        return Ok(Path::new("/run/soloist").join(name));
    }
    let user = user.as_raw();
    let home = User::own_home().with_context(|| {
        format!(
            "the default path of the lease is in the home of user {user}, and the user database does not answer. Give the path, the same \
             in all sessions: --store file:PATH"
        )
    })?;
    let folder = match home.filter(|home| is_own(home, user)) {
        Some(home) => home.join(".local/state/soloist"),
        // Users of services, and of containers.
        None => PathBuf::from(format!("/tmp/soloist-{user}")),
    };
    Ok(folder.join(name))
}

fn is_own(home: &Path, user: u32) -> bool {
    let found = fs::metadata(home);
    home.is_absolute() && found.is_ok_and(|found| found.is_dir() && found.uid() == user)
}

/// The way to the lease.
pub(crate) struct Connected {
    /// `None` if there is no lease.
    pub(crate) carrier: Option<StoreCarrier>,
    pub(crate) guard_names: GuardNames,
    /// For what else is done in the cluster that the lease is in.
    pub(crate) cluster: Option<KubernetesStore>,
}

impl Connected {
    fn to(carrier: Option<StoreCarrier>, store: Option<FileStore>, limit: Duration) -> Self {
        Self {
            carrier,
            guard_names: GuardNames { store, limit },
            cluster: None,
        }
    }
}

/// The way to the lease, if there is one.
pub(crate) async fn connect(location: Location, timings: &Timings) -> anyhow::Result<Connected> {
    let limit = timings.attempt_limit();
    match location {
        Location::Kubernetes(options) => {
            let store = KubernetesStore::connect(options).await?;
            if store.resource() != Resource::Lease {
                warn!(
                    "a lock on {} is deprecated, and slower to watch than a Lease. Move on in two rollouts, the first to --store {}+lease; \
                     see docs/kubernetes.md, From a ConfigMap or Endpoints to a Lease",
                    store.resource().kind(),
                    store.resource().kind().to_lowercase(),
                );
            }
            let carrier = StoreCarrier::new(store.clone(), limit);
            Ok(Connected {
                cluster: Some(store),
                ..Connected::to(Some(carrier), None, limit)
            })
        }
        Location::Pair(options) => {
            let store = PairStore::connect(options).await?;
            warn!(
                "the lease is kept twice, for moving to a Lease. When all replicas do so, and no other elector is left that knows the old \
                 lock only, go on to --store kubernetes; see docs/kubernetes.md, From a ConfigMap or Endpoints to a Lease"
            );
            let lease = store.lease().clone();
            let carrier = StoreCarrier::new(store, limit);
            Ok(Connected {
                cluster: Some(lease),
                ..Connected::to(Some(carrier), None, limit)
            })
        }
        Location::Etcd(options) => {
            let store = EtcdStore::new(options);
            let carrier = StoreCarrier::new(store, limit);
            Ok(Connected::to(Some(carrier), None, limit))
        }
        Location::File(path) => {
            let store = FileStore::open(&path)
                .with_context(|| format!("the lease file {}", path.display()))?;
            // What is no lease now will not become one: there is nobody who would give us a right to it later.
            // (A lock that somebody holds is the election's to wait for.)
            if let Ok(Err(error @ StoreError::Refused(_))) = timeout(limit, store.read()).await {
                return Err(error.into());
            }
            let carrier = StoreCarrier::new(store.clone(), limit);
            Ok(Connected::to(Some(carrier), Some(store), limit))
        }
        Location::Nowhere => Ok(Connected::to(None, None, limit)),
    }
}

/// A guard that is being named.
pub(crate) type Naming = Pin<Box<dyn Future<Output = anyhow::Result<()>>>>;

/// Whoever would succeed us at once if we died must know of the guard before the child exists. Only on one machine
/// can a death be seen, so only a file needs it.
pub(crate) struct GuardNames {
    store: Option<FileStore>,
    limit: Duration,
}

impl GuardNames {
    /// Names the guard, so that nobody succeeds us while it lives. `None` if there is no need.
    pub(crate) fn name(
        &self,
        guard: impl Future<Output = Option<ProcessRef>> + 'static,
    ) -> Option<Naming> {
        let (store, limit) = (self.store.clone()?, self.limit);
        Some(Box::pin(async move {
            let this = ProcessRef::this().context("reading /proc/self")?;
            // It may have been started just now, on a machine with other things to do.
            let guard = guard.await.context("it is gone")?;
            match timeout(limit, store.set_processes(vec![this, guard])).await {
                Ok(named) => Ok(named?),
                Err(_) => bail!("no answer within {}", Human(limit)),
            }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_named_with_or_without_a_path() {
        for (text, resource) in [
            ("kubernetes", Resource::Lease),
            ("configmap", Resource::ConfigMap),
            ("endpoints", Resource::Endpoints),
        ] {
            assert_eq!(text.parse(), Ok(StoreChoice::Kubernetes(resource)));
        }
        let pair = StoreChoice::Pair(Resource::Endpoints);
        assert_eq!("endpoints+lease".parse(), Ok(pair));
        assert_eq!("file".parse(), Ok(StoreChoice::File(None)));
        assert_eq!("none".parse(), Ok(StoreChoice::None));
        let path = StoreChoice::File(Some("/x/y".into()));
        assert_eq!("file:/x/y".parse(), Ok(path));
        let etcd = StoreChoice::Etcd("a:1,b:2/x".parse().unwrap());
        assert_eq!("etcd:a:1,b:2/x".parse(), Ok(etcd));
        for wrong in [
            "",
            "etcd",
            "etcd:",
            "etcd:a:b",
            "file:",
            "kubernetes:x",
            "kubernetes+lease",
            "lease+configmap",
            "none:x",
        ] {
            assert!(wrong.parse::<StoreChoice>().is_err(), "{wrong}");
        }
    }
}
