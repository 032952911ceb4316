//! Which lease, on which cluster, as whom.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use http::HeaderValue;
use http::header::USER_AGENT;
use kube::Config;
use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};

use super::failure::chain;
use super::names::{self, NameError};

const SERVICE_ACCOUNT_NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// Which lease, and how to reach it.
///
/// Without a kubeconfig the cluster is found as `$KUBECONFIG` says, else as the Pod's service account says, else
/// in `~/.kube/config`. Without a namespace it is `$NAMESPACE`, `$POD_NAMESPACE`, the service account's, the
/// context's, or `default`. `$HTTPS_PROXY` is not used.
#[derive(Clone, Debug)]
#[must_use]
pub struct Options {
    name: String,
    namespace: Option<String>,
    kubeconfig: Option<PathBuf>,
    context: Option<String>,
    watch_seconds: u32,
}

impl Options {
    /// As long as the watches of Kubernetes' own components last at least.
    const WATCH_SECONDS: u32 = 290;

    /// The lease of this name.
    pub fn lease(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            namespace: None,
            kubeconfig: None,
            context: None,
            watch_seconds: Self::WATCH_SECONDS,
        }
    }

    /// In this namespace.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// On the cluster that this kubeconfig file names.
    pub fn kubeconfig(mut self, path: impl Into<PathBuf>) -> Self {
        self.kubeconfig = Some(path.into());
        self
    }

    /// In this context of the kubeconfig, instead of its current one.
    pub fn context(mut self, context: impl Into<String>) -> Self {
        self.context = Some(context.into());
        self
    }

    /// After how many seconds the server ends a watch, which is then resumed. Without it: 290.
    pub fn watch_seconds(mut self, seconds: u32) -> Self {
        self.watch_seconds = seconds;
        self
    }

    pub(super) async fn resolve(self) -> Result<Target, ConnectError> {
        names::lease(&self.name)?;
        // A wrong name is a wrong name whether or not there is a cluster.
        if let Some(namespace) = &self.namespace {
            names::namespace(namespace)?;
        }
        let source = Source::find(self.kubeconfig, self.context.is_some())?;
        let config = source.load(self.context).await?;
        let namespace = self.namespace.unwrap_or_else(|| {
            first_namespace(
                |name| env::var(name).ok(),
                fs::read_to_string(SERVICE_ACCOUNT_NAMESPACE).ok(),
                &config.default_namespace,
            )
        });
        names::namespace(&namespace)?;
        Ok(Target {
            name: self.name,
            namespace,
            config,
            watch_seconds: self.watch_seconds,
        })
    }
}

pub(super) struct Target {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) config: Config,
    pub(super) watch_seconds: u32,
}

fn first_namespace(
    variable: impl Fn(&str) -> Option<String>,
    service_account: Option<String>,
    context: &str,
) -> String {
    [
        variable("NAMESPACE"),
        variable("POD_NAMESPACE"),
        service_account,
        Some(context.to_owned()),
    ]
    .into_iter()
    .flatten()
    .map(|text| text.trim().to_owned())
    .find(|text| !text.is_empty())
    .unwrap_or_else(|| "default".into())
}

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

#[derive(Debug)]
enum Source {
    Pod,
    File {
        kubeconfig: Box<Kubeconfig>,
        path: String,
    },
}

impl Source {
    fn find(explicit: Option<PathBuf>, wants_context: bool) -> Result<Self, ConnectError> {
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
        if env::var_os("KUBERNETES_SERVICE_HOST").is_some() && !wants_context {
            return Ok(Self::Pod);
        }
        let home = env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
        let default = home.join(".kube/config");
        match default.exists() {
            true => Self::read(&default),
            false => Err(ConnectError::NoConfig(default.display().to_string())),
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

    async fn load(self, context: Option<String>) -> Result<Config, ConnectError> {
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
    loaded.map_err(|error| match error {
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
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn the_namespace_is_the_first_that_is_set() {
        let find = |variables: &[(&str, &str)], account: Option<&str>, context| {
            let variable = |name: &str| {
                let found = variables.iter().find(|(n, _)| *n == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            first_namespace(variable, account.map(str::to_owned), context)
        };
        let both = [("NAMESPACE", "a"), ("POD_NAMESPACE", "b")];
        assert_eq!(find(&both, Some("c"), "d"), "a");
        assert_eq!(find(&both[1..], Some("c"), "d"), "b");
        assert_eq!(find(&[("NAMESPACE", "")], Some("c\n"), "d"), "c");
        assert_eq!(find(&[], None, "d"), "d");
        assert_eq!(find(&[], Some(""), ""), "default");
    }

    async fn error_of(content: &str, context: Option<&str>) -> String {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content.as_bytes()).unwrap();
        let mut options = Options::lease("demo")
            .namespace("x")
            .kubeconfig(file.path());
        if let Some(context) = context {
            options = options.context(context);
        }
        let error = options.resolve().await.err().unwrap().to_string();
        error.replace(&file.path().display().to_string(), "FILE")
    }

    const KUBECONFIG: &str = r#"
apiVersion: v1
kind: Config
current-context: one
contexts: [{name: one, context: {cluster: c, user: u}}, {name: lost, context: {cluster: gone, user: u}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1", certificate-authority-data: "AAAA"}}]
users: [{name: u, user: {token: t}}]
"#;

    #[tokio::test]
    async fn each_thing_that_can_be_wrong_with_a_kubeconfig_has_its_own_message() {
        let missing = Options::lease("demo").kubeconfig("/nonexistent/kubeconfig");
        assert_eq!(
            missing.resolve().await.err().unwrap().to_string(),
            "the kubeconfig /nonexistent/kubeconfig cannot be read: No such file or directory (os error 2)"
        );
        for (content, context, start) in [
            ("a: [", None, "the kubeconfig FILE is not a kubeconfig: "),
            (
                "",
                None,
                "the kubeconfig FILE has no current context; choose one of: none",
            ),
            (
                KUBECONFIG,
                Some("two"),
                "the kubeconfig FILE has no context \"two\"; it has: one, lost",
            ),
            (
                KUBECONFIG,
                Some("lost"),
                "the kubeconfig FILE does not say where the cluster is: failed to load the cluster of context: gone",
            ),
            (
                &KUBECONFIG.replace("AAAA", "!"),
                None,
                "a certificate or key of the cluster's configuration cannot be used: ",
            ),
            (
                &KUBECONFIG.replace(
                    "certificate-authority-data: \"AAAA\"",
                    "proxy-url: \"http://p\"",
                ),
                None,
                "the kubeconfig FILE wants the proxy http://p",
            ),
        ] {
            let error = error_of(content, context).await;
            assert!(error.starts_with(start), "{error}");
        }
    }

    #[tokio::test]
    async fn names_are_refused_before_anything_else_is_looked_at() {
        let bad = Options::lease("Not a name").kubeconfig("/nonexistent");
        assert!(matches!(bad.resolve().await, Err(ConnectError::Name(_))));
        let bad = Options::lease("a")
            .namespace("b.c")
            .kubeconfig("/nonexistent");
        assert!(matches!(bad.resolve().await, Err(ConnectError::Name(_))));
    }
}
