//! Which lease, on which cluster, as whom.

use std::env;
use std::fs;
use std::path::PathBuf;

use kube::Config;

use super::names;
use super::resource::Resource;
use super::source::{ConnectError, Origin};

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
    resource: Resource,
    namespace: Option<String>,
    kubeconfig: Option<PathBuf>,
    context: Option<String>,
    watch_seconds: u32,
}

impl Options {
    /// As long as the watches of Kubernetes' own components last at least.
    pub(super) const WATCH_SECONDS: u32 = 290;

    /// The lease of this name.
    pub fn lease(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            resource: Resource::Lease,
            namespace: None,
            kubeconfig: None,
            context: None,
            watch_seconds: Self::WATCH_SECONDS,
        }
    }

    /// In an object of this kind.
    pub fn resource(mut self, resource: Resource) -> Self {
        self.resource = resource;
        self
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

    /// After how many seconds the server ends a watch, which is then resumed. Without it: 290; at least 2, because
    /// a watch that ends sooner than that is taken for a broken one.
    pub fn watch_seconds(mut self, seconds: u32) -> Self {
        self.watch_seconds = seconds.max(2);
        self
    }

    pub(super) async fn resolve(self) -> Result<Target, ConnectError> {
        names::lease(&self.name)?;
        // A wrong name is a wrong name whether or not there is a cluster.
        if let Some(namespace) = &self.namespace {
            names::namespace(namespace)?;
        }
        let origin = Origin {
            kubeconfig: self.kubeconfig,
            context: self.context,
        };
        let config = origin.load().await?;
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
            resource: self.resource,
            namespace,
            config,
            origin,
            watch_seconds: self.watch_seconds,
        })
    }
}

pub(super) struct Target {
    pub(super) resource: Resource,
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) config: Config,
    pub(super) origin: Origin,
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
            (
                &KUBECONFIG.replace("token: t", "auth-provider: {name: gcp}"),
                None,
                "the kubeconfig FILE has its user's credentials from the auth-provider \"gcp\", which is not supported",
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
