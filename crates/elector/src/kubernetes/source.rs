//! Where the cluster's configuration comes from.

use std::env;
use std::path::{Path, PathBuf};

use http::HeaderValue;
use http::header::USER_AGENT;
use kube::Config;
use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};

use super::failure::chain;
use super::names::NameError;

/// Why there is no connection to be had.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// A name that Kubernetes does not allow.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Neither a Pod nor a kubeconfig.
    #[error(
        "no Kubernetes cluster is configured: this is not a Pod (KUBERNETES_SERVICE_HOST is not set), KUBECONFIG is not set, and there is no {0}; give a kubeconfig"
    )]
    NoConfig(String),
    /// A context needs a kubeconfig.
    #[error(
        "the context {0:?} was given, but there is no kubeconfig to look it up in; give a kubeconfig"
    )]
    ContextWithoutKubeconfig(String),
    /// The service account is not there, or not whole.
    #[error("this looks like a Pod, but its service account cannot be used: {0}")]
    ServiceAccount(String),
    /// The file cannot be read.
    #[error("the kubeconfig {path} cannot be read: {reason}")]
    Unreadable {
        /// Which.
        path: String,
        /// Why.
        reason: String,
    },
    /// The file is not a kubeconfig.
    #[error("the kubeconfig {path} is not a kubeconfig: {reason}")]
    NotAKubeconfig {
        /// Which.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// No context chosen.
    #[error("the kubeconfig {path} has no current context; choose one of: {available}")]
    NoContext {
        /// Which file.
        path: String,
        /// What there is.
        available: String,
    },
    /// No such context.
    #[error("the kubeconfig {path} has no context {context:?}; it has: {available}")]
    MissingContext {
        /// Which file.
        path: String,
        /// What was asked for.
        context: String,
        /// What there is.
        available: String,
    },
    /// The context names a cluster that is not in the file, or is not whole.
    #[error("the kubeconfig {path} does not say where the cluster is: {reason}")]
    Cluster {
        /// Which file.
        path: String,
        /// What is missing.
        reason: String,
    },
    /// A certificate or key cannot be used.
    #[error("a certificate or key of the cluster's configuration cannot be used: {0}")]
    Certificate(String),
    /// The credentials cannot be used.
    #[error("the credentials of the cluster's configuration cannot be used: {0}")]
    Credentials(String),
    /// A way to credentials that Kubernetes itself has given up.
    #[error(
        "the kubeconfig {path} has its user's credentials from the auth-provider {provider:?}, which is not supported; use a command instead (exec: gke-gcloud-auth-plugin, or kubelogin for Azure and OIDC)"
    )]
    AuthProvider {
        /// Which file.
        path: String,
        /// The provider.
        provider: String,
    },
    /// Not supported.
    #[error(
        "the kubeconfig {path} wants the proxy {proxy}; proxies are not supported for the lease"
    )]
    Proxy {
        /// Which file.
        path: String,
        /// The proxy.
        proxy: String,
    },
}

/// Where to look, also for another time.
#[derive(Clone, Debug)]
pub(super) struct Origin {
    pub(super) kubeconfig: Option<PathBuf>,
    pub(super) context: Option<String>,
}

impl Origin {
    pub(super) async fn load(&self) -> Result<Config, ConnectError> {
        let source = Source::find(self.kubeconfig.clone(), self.context.as_deref())?;
        source.load(self.context.clone()).await
    }
}

#[derive(Debug)]
pub(super) enum Source {
    Pod,
    File {
        kubeconfig: Box<Kubeconfig>,
        path: String,
    },
}

impl Source {
    pub(super) fn find(
        explicit: Option<PathBuf>,
        context: Option<&str>,
    ) -> Result<Self, ConnectError> {
        if let Some(path) = explicit {
            return Self::read(&path);
        }
        if let Some(paths) = env::var_os("KUBECONFIG").filter(|paths| !paths.is_empty()) {
            let path = paths.to_string_lossy().into_owned();
            let read = Kubeconfig::from_env().map_err(|error| misread(error, &path))?;
            if let Some(kubeconfig) = read {
                return Ok(Self::file(kubeconfig, path));
            }
        }
        if env::var_os("KUBERNETES_SERVICE_HOST").is_some() && context.is_none() {
            return Ok(Self::Pod);
        }
        // Without a home there is no default: a relative path would be whatever lies in the present folder.
        let home = env::var_os("HOME").map(PathBuf::from);
        let default = home
            .filter(|home| home.is_absolute())
            .map(|home| home.join(".kube/config"));
        match (default, context) {
            (Some(default), _) if default.exists() => Self::read(&default),
            (_, Some(context)) => Err(ConnectError::ContextWithoutKubeconfig(context.into())),
            (Some(default), None) => Err(ConnectError::NoConfig(default.display().to_string())),
            (None, None) => Err(ConnectError::NoConfig(
                "~/.kube/config, because HOME is not set".into(),
            )),
        }
    }

    fn read(path: &Path) -> Result<Self, ConnectError> {
        let shown = path.display().to_string();
        let kubeconfig = Kubeconfig::read_from(path).map_err(|error| misread(error, &shown))?;
        Ok(Self::file(kubeconfig, shown))
    }

    fn file(kubeconfig: Kubeconfig, path: String) -> Self {
        Self::File {
            kubeconfig: Box::new(kubeconfig),
            path,
        }
    }

    pub(super) async fn load(self, context: Option<String>) -> Result<Config, ConnectError> {
        let mut config = match self {
            Self::Pod => Config::incluster().map_err(|error| match error {
                InClusterError::ParseCertificates(_) => ConnectError::Certificate(chain(&error)),
                _ => ConnectError::ServiceAccount(chain(&error)),
            })?,
            Self::File { kubeconfig, path } => from_file(*kubeconfig, &path, context).await?,
        };
        // The election decides when to try again.
        config.default_retry = false;
        config.proxy_url = None;
        let agent = concat!("soloist/", env!("CARGO_PKG_VERSION"));
        let agent = (USER_AGENT, HeaderValue::from_static(agent));
        config.headers.push(agent);
        Ok(config)
    }
}

async fn from_file(
    kubeconfig: Kubeconfig,
    path: &str,
    context: Option<String>,
) -> Result<Config, ConnectError> {
    let names: Vec<_> = kubeconfig
        .contexts
        .iter()
        .map(|c| c.name.as_str())
        .collect();
    let available = match names.is_empty() {
        true => "none".into(),
        false => names.join(", "),
    };
    if let Some(proxy) = proxy(&kubeconfig, context.as_deref()) {
        return Err(ConnectError::Proxy {
            path: path.into(),
            proxy,
        });
    }
    let options = KubeConfigOptions {
        context,
        ..KubeConfigOptions::default()
    };
    let loaded = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    let config = loaded.map_err(|error| match error {
        KubeconfigError::CurrentContextNotSet => ConnectError::NoContext {
            path: path.into(),
            available,
        },
        KubeconfigError::LoadContext(context) => ConnectError::MissingContext {
            path: path.into(),
            context,
            available,
        },
        KubeconfigError::LoadCertificateAuthority(_)
        | KubeconfigError::LoadClientCertificate(_)
        | KubeconfigError::LoadClientKey(_)
        | KubeconfigError::ParseCertificates(_) => ConnectError::Certificate(chain(&error)),
        _ => ConnectError::Cluster {
            path: path.into(),
            reason: chain(&error),
        },
    })?;
    match config.auth_info.auth_provider {
        None => Ok(config),
        Some(provider) => Err(ConnectError::AuthProvider {
            path: path.into(),
            provider: provider.name,
        }),
    }
}

fn proxy(kubeconfig: &Kubeconfig, context: Option<&str>) -> Option<String> {
    let context = context.or(kubeconfig.current_context.as_deref())?;
    let context = kubeconfig.contexts.iter().find(|c| c.name == context)?;
    let cluster = &context.context.as_ref()?.cluster;
    let cluster = kubeconfig.clusters.iter().find(|c| c.name == *cluster)?;
    let proxy = cluster.cluster.as_ref()?.proxy_url.clone()?;
    (!proxy.is_empty()).then_some(proxy)
}

fn misread(error: KubeconfigError, path: &str) -> ConnectError {
    let path = path.to_owned();
    match error {
        KubeconfigError::ReadConfig(error, file) => ConnectError::Unreadable {
            path: file.display().to_string(),
            reason: error.to_string(),
        },
        other => ConnectError::NotAKubeconfig {
            path,
            reason: chain(&other),
        },
    }
}
