//! etcd and kube-apiserver as one thing that is started, disturbed and ended.

mod apiserver;
mod faults;
pub(crate) mod folder;

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use tokio::time::{Instant, sleep};

use crate::{
    Binaries, Error, Link, Request, audit,
    certificates::Certificates,
    etcd, kubeconfig,
    ports::Ports,
    process::Component,
    progress_on_stderr,
    users::{ADMIN, Users},
};
use folder::Folder;

/// How a control plane is to be.
#[derive(Debug, Clone)]
pub struct Options {
    /// Users that get a token and no rights. Default: `replica-0` to `replica-39`, and `nobody`.
    pub users: Vec<String>,
    /// The API server's port; free ones are found otherwise.
    pub port: Option<u16>,
    /// More flags for kube-apiserver; they win over the testbed's own.
    pub apiserver_flags: Vec<String>,
    /// How long each component may take to become ready.
    pub patience: Duration,
    /// Whether nodes are to join: Pods get service accounts, and the API server advertises its address on the nodes' network.
    /// See [`crate::Cluster`], which sets it.
    pub nodes: bool,
}

impl Default for Options {
    fn default() -> Self {
        let replicas = (0..40).map(|number| format!("replica-{number}"));
        Self {
            users: replicas.chain(["nobody".to_owned()]).collect(),
            port: None,
            apiserver_flags: Vec::new(),
            patience: Duration::from_secs(60),
            nodes: false,
        }
    }
}

/// A running etcd and kube-apiserver.
///
/// Ends both when dropped, and when this process ends in whatever way. Its methods may be called from any
/// runtime and any thread.
#[derive(Debug)]
pub struct ControlPlane {
    // Fields are dropped in this order: processes before the folder and the ports that they use.
    apiserver: Mutex<Option<Component>>,
    etcd: Mutex<Component>,
    binaries: Binaries,
    options: Options,
    users: Users,
    certificates: Certificates,
    ports: Ports,
    folder: Folder,
}

impl ControlPlane {
    /// Starts a control plane with the default [`Options`]; builds kube-apiserver first if the cache lacks it.
    pub async fn start() -> Result<Self, Error> {
        Self::start_with(Options::default()).await
    }

    /// Starts a control plane.
    pub async fn start_with(options: Options) -> Result<Self, Error> {
        let prepare = || Binaries::prepare(&mut progress_on_stderr());
        let binaries = tokio::task::spawn_blocking(prepare)
            .await
            .expect("preparing does not panic")?;
        let folder = Folder::create()?;
        let ports = Ports::take(folder.run_dir(), options.port)?;
        let certificates = Certificates::generate(folder.path())?;
        let users = Users::new(options.users.iter().map(String::as_str));
        users.write_token_file(&folder.path().join("tokens.csv"))?;

        let arguments = etcd::arguments(&ports, &folder.path().join("etcd"));
        let mut etcd = Component::start("etcd", &binaries.etcd, &arguments, folder.path())?;
        etcd::wait_until_healthy(&mut etcd, ports.etcd, options.patience).await?;
        let apiserver = Mutex::new(None);
        let etcd = Mutex::new(etcd);
        let plane = Self {
            apiserver,
            etcd,
            binaries,
            options,
            users,
            certificates,
            ports,
            folder,
        };
        plane.start_apiserver().await?;
        Ok(plane)
    }

    /// Ends both processes and removes their files. Dropping does the same.
    pub async fn stop(self) {
        let _ = tokio::task::spawn_blocking(move || drop(self)).await;
    }

    /// Where the API server listens.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.ports.apiserver).into()
    }

    /// The API server's URL.
    pub fn server_url(&self) -> String {
        format!("https://{}", self.address())
    }

    /// The certificate authority that signed the API server's certificate.
    pub fn ca_pem(&self) -> &str {
        &self.certificates.ca_pem
    }

    /// The folder with logs, data and certificates; gone once this is dropped.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The programs in use.
    pub fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    /// etcd's process id.
    pub fn etcd_pid(&self) -> u32 {
        lock(&self.etcd).pid()
    }

    /// kube-apiserver's process id, unless it was killed.
    pub fn apiserver_pid(&self) -> Option<u32> {
        lock(&self.apiserver).as_ref().map(Component::pid)
    }

    /// A new path to the API server that can fail.
    pub fn link(&self) -> Result<Link, Error> {
        Link::to(self.address())
    }

    /// The administrator's kubeconfig (`system:masters`).
    pub fn admin_kubeconfig(&self) -> Result<PathBuf, Error> {
        self.kubeconfig(ADMIN, None)
    }

    /// A kubeconfig for one of [`Options::users`], straight to the API server or through a link.
    pub fn kubeconfig(&self, user: &str, via: Option<&Link>) -> Result<PathBuf, Error> {
        self.write_kubeconfig(user, self.users.token(user)?, "default", via)
    }

    /// A client's certificate and key for a user, as PEM, valid for so long from now on.
    pub fn client_certificate(
        &self,
        user: &str,
        lifetime: Duration,
    ) -> Result<(String, String), Error> {
        self.certificates.client(user, lifetime)
    }

    /// A kubeconfig for who reaches the API server at this address.
    pub(crate) fn kubeconfig_at(&self, user: &str, address: SocketAddr) -> Result<PathBuf, Error> {
        let (token, server) = (self.users.token(user)?, format!("https://{address}"));
        let text = kubeconfig::render(&server, self.ca_pem(), user, token, "default");
        let name = format!(
            "{}-{}.kubeconfig",
            user.replace([':', '/'], "_"),
            address.ip()
        );
        self.folder.write_new(&name, &text)
    }

    pub(crate) fn certificates(&self) -> &Certificates {
        &self.certificates
    }

    pub(crate) fn write_kubeconfig(
        &self,
        user: &str,
        token: &str,
        namespace: &str,
        via: Option<&Link>,
    ) -> Result<PathBuf, Error> {
        let address = via.map_or(self.address(), Link::address);
        let text = kubeconfig::render(
            &format!("https://{address}"),
            self.ca_pem(),
            user,
            token,
            namespace,
        );
        let name = format!(
            "{}-{}.kubeconfig",
            user.replace([':', '/'], "_"),
            address.port()
        );
        self.folder.write_new(&name, &text)
    }

    /// An administrator's client, made for the caller's runtime.
    pub async fn admin_client(&self) -> Result<Client, Error> {
        self.client(ADMIN, None).await
    }

    /// A client for one of [`Options::users`], made for the caller's runtime.
    pub async fn client(&self, user: &str, via: Option<&Link>) -> Result<Client, Error> {
        client(&self.kubeconfig(user, via)?).await
    }

    /// All requests that the API server has answered so far, in the order of their ends.
    ///
    /// A client may have its answer a moment before it is here; see [`Self::wait_for_requests`].
    pub fn requests(&self) -> Result<Vec<Request>, Error> {
        audit::read(&self.folder.path().join("audit.log"))
    }

    /// Waits until the requests satisfy `enough`, and returns them.
    pub async fn wait_for_requests(
        &self,
        patience: Duration,
        enough: impl Fn(&[Request]) -> bool,
    ) -> Result<Vec<Request>, Error> {
        let deadline = Instant::now() + patience;
        loop {
            let requests = self.requests()?;
            if enough(&requests) {
                return Ok(requests);
            }
            if Instant::now() >= deadline {
                return Err(Error::Timeout {
                    awaited: "the awaited request".to_owned(),
                    waited: patience,
                });
            }
            sleep(Duration::from_millis(20)).await;
        }
    }
}

/// A client with a kubeconfig, made for the caller's runtime.
pub async fn client(kubeconfig: &Path) -> Result<Client, Error> {
    let doing = "read the kubeconfig";
    let failed = |error: kube::config::KubeconfigError| Error::Io {
        doing,
        path: kubeconfig.to_owned(),
        source: std::io::Error::other(error),
    };
    let parsed = Kubeconfig::read_from(kubeconfig).map_err(failed)?;
    let config = Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default())
        .await
        .map_err(failed)?;
    Client::try_from(config).map_err(Error::kube("make a client"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
