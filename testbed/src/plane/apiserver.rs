use std::time::Duration;

use http::Request;
use tokio::time::{Instant, sleep, timeout};

use super::{ControlPlane, lock};
use crate::{Error, audit, cluster::lan, etcd, process::Component};

impl ControlPlane {
    /// Starts kube-apiserver again on the same port and data, and waits until it is ready. Does nothing while it runs.
    pub async fn start_apiserver(&self) -> Result<(), Error> {
        if lock(&self.apiserver).is_some() {
            return Ok(());
        }
        let policy = self.folder.write_new("audit-policy.yaml", audit::POLICY)?;
        let arguments = self.apiserver_arguments(&policy.display().to_string())?;
        let component = Component::start(
            "kube-apiserver",
            &self.binaries.apiserver,
            &arguments,
            self.folder.path(),
        )?;
        *lock(&self.apiserver) = Some(component);
        self.wait_until_ready().await
    }

    async fn wait_until_ready(&self) -> Result<(), Error> {
        let patience = self.options.patience;
        let deadline = Instant::now() + patience;
        let client = self.admin_client().await?;
        while !is_ready(&client).await {
            self.check_apiserver(patience, Instant::now() >= deadline)?;
            sleep(Duration::from_millis(25)).await;
        }
        Ok(())
    }

    fn check_apiserver(&self, patience: Duration, late: bool) -> Result<(), Error> {
        let mut apiserver = lock(&self.apiserver);
        let Some(component) = apiserver.as_mut() else {
            let awaited = "the start of an API server that was killed meanwhile".to_owned();
            return Err(Error::Timeout {
                awaited,
                waited: patience,
            });
        };
        component.check()?;
        if late {
            Err(component.not_ready(patience))
        } else {
            Ok(())
        }
    }

    fn apiserver_arguments(&self, policy: &str) -> Result<Vec<String>, Error> {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let certificates = &self.certificates;
        let mut arguments: Vec<String> = [
            (
                "etcd-servers",
                format!("http://127.0.0.1:{}", self.ports.etcd),
            ),
            ("bind-address", "127.0.0.1".to_owned()),
            ("secure-port", self.ports.apiserver.to_string()),
            ("cert-dir", path("certificates")),
            ("client-ca-file", certificates.ca.display().to_string()),
            ("tls-cert-file", certificates.server.display().to_string()),
            (
                "tls-private-key-file",
                certificates.server_key.display().to_string(),
            ),
            ("token-auth-file", path("tokens.csv")),
            (
                "service-account-issuer",
                "https://kubernetes.default.svc".to_owned(),
            ),
            (
                "service-account-key-file",
                certificates.accounts_public.display().to_string(),
            ),
            (
                "service-account-signing-key-file",
                certificates.accounts_private.display().to_string(),
            ),
            ("service-cluster-ip-range", "10.0.0.0/24".to_owned()),
            ("audit-policy-file", policy.to_owned()),
            ("audit-log-path", path("audit.log")),
            ("audit-log-mode", "blocking".to_owned()),
            ("audit-log-maxsize", "4096".to_owned()),
            ("profiling", "false".to_owned()),
        ]
        .map(|(flag, value)| format!("--{flag}={value}"))
        .into();
        let for_nodes = match self.options.nodes {
            true => self.with_nodes()?,
            false => without_nodes(),
        };
        arguments.extend(for_nodes);
        if etcd::lacks_watch_progress(&self.binaries.etcd) {
            arguments.push("--feature-gates=WatchList=false".to_owned());
        }
        arguments.extend(self.options.apiserver_flags.iter().cloned());
        Ok(arguments)
    }

    fn with_nodes(&self) -> Result<Vec<String>, Error> {
        let egress = self
            .folder
            .write_new("egress.yaml", &lan::egress(self.folder.path()))?;
        let flags = [
            ("advertise-address", lan::GATEWAY.to_string()),
            ("authorization-mode", "Node,RBAC".to_owned()),
            ("enable-admission-plugins", "NodeRestriction".to_owned()),
            ("kubelet-preferred-address-types", "InternalIP".to_owned()),
            ("egress-selector-config-file", egress.display().to_string()),
            ("allow-privileged", "true".to_owned()),
        ];
        Ok(flags
            .map(|(flag, value)| format!("--{flag}={value}"))
            .into())
    }
}

fn without_nodes() -> Vec<String> {
    let flags = [
        ("advertise-address", "127.0.0.1"),
        ("endpoint-reconciler-type", "none"),
        ("authorization-mode", "RBAC"),
        // No controller makes the default service accounts that this plugin asks of every Pod.
        ("disable-admission-plugins", "ServiceAccount"),
    ];
    flags
        .map(|(flag, value)| format!("--{flag}={value}"))
        .into()
}

async fn is_ready(client: &kube::Client) -> bool {
    let request = Request::get("/readyz")
        .body(Vec::new())
        .expect("a well-formed request");
    matches!(
        timeout(Duration::from_secs(2), client.request_text(request)).await,
        Ok(Ok(_))
    )
}
