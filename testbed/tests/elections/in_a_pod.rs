//! Configuration as a Pod has it: service account token, authority and namespace as files, the address in variables.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use soloist_elector::kubernetes::{KubernetesStore, Options};
use testbed::{Account, Request};

use crate::harness::{Cluster, LEASE, elector, lead, standard};
use crate::skipped::skipped;

/// Set for the process that plays the Pod.
const ROLE: &str = "SOLOIST_TEST_POD";

/// The Pod: leads until it is killed. Does nothing when the suite runs it as a test.
#[tokio::test(flavor = "multi_thread")]
async fn the_pod_itself() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let store = KubernetesStore::connect(Options::lease(LEASE))
        .await
        .unwrap();
    let leader = elector(store, "pod", standard());
    let term = lead(&leader).await;
    term.cancelled().await;
}

struct Pod(std::process::Child);

impl Pod {
    /// Runs [`the_pod_itself`] where the usual places hold what `files` holds.
    fn start(cluster: &Cluster, files: &Path) -> Self {
        let script = "mount -t tmpfs tmpfs /run && \
             mkdir -p /run/secrets/kubernetes.io && \
             ln -s \"$0\" /run/secrets/kubernetes.io/serviceaccount && \
             exec \"$@\"";
        let address = cluster.plane.address();
        let child = Command::new("setpriv")
            .args([
                "--pdeathsig",
                "KILL",
                "--",
                "unshare",
                "--mount",
                "--",
                "sh",
                "-c",
                script,
            ])
            .arg(files)
            .arg(std::env::current_exe().unwrap())
            .args(["in_a_pod::the_pod_itself", "--exact"])
            .env(ROLE, "pod")
            .env_remove("KUBECONFIG")
            .env_remove("NAMESPACE")
            .env_remove("POD_NAMESPACE")
            .env("KUBERNETES_SERVICE_HOST", address.ip().to_string())
            .env("KUBERNETES_SERVICE_PORT", address.port().to_string())
            .stdin(Stdio::null())
            .spawn();
        Self(child.unwrap())
    }
}

impl Drop for Pod {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pods_service_account_is_used_and_its_token_is_read_again_when_it_changes() {
    if !rustix::process::geteuid().is_root() {
        return skipped("a Pod's files can only be put in their place as root");
    }
    let Some(cluster) = Cluster::shared().await else {
        return;
    };
    let (plane, namespace) = (&cluster.plane, &cluster.namespace);
    let hour = Duration::from_secs(3600);
    let mut tokens = Vec::new();
    for account in ["first", "second"] {
        plane.service_account(namespace, account).await.unwrap();
        let to = Account::ServiceAccount(account);
        plane.allow_lease(namespace, LEASE, to).await.unwrap();
        let token = plane.service_account_token(namespace, account, hour);
        tokens.push(token.await.unwrap());
    }
    let files = tempfile::tempdir().unwrap();
    let put = |name: &str, text: &str| {
        // As the kubelet does it: a new file in the place of the old one.
        let new = files.path().join("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, files.path().join(name)).unwrap();
    };
    put("token", &tokens[0]);
    put("ca.crt", plane.ca_pem());
    put("namespace", namespace);

    let _pod = Pod::start(&cluster, files.path());
    let renewed_by = |account: &str| {
        let user = format!("system:serviceaccount:{namespace}:{account}");
        move |requests: &[Request]| {
            let mut of_user = requests.iter().filter(|r| r.user == user);
            of_user.any(|r| r.verb == "update" && r.code == 200)
        }
    };
    let patience = Duration::from_secs(150);
    let first = plane.wait_for_requests(patience, renewed_by("first"));
    first.await.unwrap();
    put("token", &tokens[1]);
    let second = plane.wait_for_requests(patience, renewed_by("second"));
    second.await.unwrap();
}
