//! Credentials that come late, end, and change.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use soloist_elector::kubernetes::{KubernetesStore, Options};
use soloist_elector::testing::in_time;
use soloist_elector::{LeaseStore, Term, clock};

use crate::harness::{Cluster, LEASE, USER, elector, lead, quick};

/// A kubeconfig of [`USER`] with other credentials.
struct Credentials {
    folder: tempfile::TempDir,
    kubeconfig: String,
    token: String,
}

impl Credentials {
    fn of(cluster: &Cluster) -> Self {
        let path = cluster.plane.kubeconfig(USER, None).unwrap();
        let kubeconfig = fs::read_to_string(path).unwrap();
        let token = kubeconfig
            .split_once("token: ")
            .unwrap()
            .1
            .trim()
            .to_owned();
        Self {
            folder: tempfile::tempdir().unwrap(),
            kubeconfig,
            token,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn replace(&self, name: &str, content: &str) {
        let new = self.path("new");
        fs::write(&new, content).unwrap();
        fs::rename(new, self.path(name)).unwrap();
    }

    /// Writes the kubeconfig with this in place of the token.
    fn write(&self, user: &str) {
        let token = format!("    token: {}", self.token);
        self.replace("kubeconfig", &self.kubeconfig.replace(&token, user));
    }

    async fn store(&self, cluster: &Cluster) -> KubernetesStore {
        let options = Options::lease(LEASE)
            .namespace(&cluster.namespace)
            .kubeconfig(self.path("kubeconfig"));
        KubernetesStore::connect(options).await.unwrap()
    }

    /// A command that takes so long, then says what the script says.
    fn plugin(&self, seconds: u32, script: &str) {
        let runs = self.path("runs").display().to_string();
        let text = format!("#!/bin/sh\necho run >>{runs}\nsleep {seconds}\n{script}\n");
        self.replace("plugin", &text);
        let executable = fs::Permissions::from_mode(0o700);
        fs::set_permissions(self.path("plugin"), executable).unwrap();
        self.write(&format!(
            "    exec:\n      apiVersion: client.authentication.k8s.io/v1\n      interactiveMode: Never\n      command: {}",
            self.path("plugin").display()
        ));
    }

    fn runs(&self) -> usize {
        count_lines(&self.path("runs"))
    }
}

fn count_lines(path: &Path) -> usize {
    fs::read_to_string(path).unwrap_or_default().lines().count()
}

async fn holds_for(term: &Term, time: Duration) {
    tokio::select! {
        () = term.cancelled() => panic!("the lease was lost"),
        slept = clock::sleep(time) => slept.unwrap(),
    }
    assert!(term.is_valid());
}

fn credential(token: &str, ends: &str) -> String {
    format!(
        r#"printf '{{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{{"token":"%s"%s}}}}' "{token}" "{ends}""#
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_plugin_runs_once_for_a_start_and_never_costs_the_lease() {
    let Some(cluster) = Cluster::shared().await else {
        return;
    };
    let credentials = Credentials::of(&cluster);
    let ends = r#",\"expirationTimestamp\":\"$(date -u -d '+10 seconds' +%Y-%m-%dT%H:%M:%SZ)\""#;
    credentials.plugin(3, &credential(&credentials.token, ends));
    let store = credentials.store(&cluster).await;
    let leader = elector(store.clone(), "leader", quick());
    let term = lead(&leader).await;
    assert_eq!(credentials.runs(), 1);
    // New connections, and a refresh, while it renews.
    for _ in 0..4 {
        store.abandon_connections();
        holds_for(&term, Duration::from_secs(3)).await;
    }
    assert!(
        (2..=3).contains(&credentials.runs()),
        "{}",
        credentials.runs()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_whose_token_is_not_accepted_runs_again() {
    let Some(cluster) = Cluster::shared().await else {
        return;
    };
    let credentials = Credentials::of(&cluster);
    let token = format!(
        "$([ $(wc -l <{}) -gt 2 ] && echo {} || echo nonsense)",
        credentials.path("runs").display(),
        credentials.token
    );
    credentials.plugin(0, &credential(&token, ""));
    let leader = elector(credentials.store(&cluster).await, "leader", quick());
    let term = lead(&leader).await;
    assert!(term.is_valid());
    assert_eq!(credentials.runs(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kubeconfig_that_gets_another_token_is_read_again() {
    let Some(cluster) = Cluster::shared().await else {
        return;
    };
    let credentials = Credentials::of(&cluster);
    credentials.write("    token: nonsense");
    let store = credentials.store(&cluster).await;
    in_time(store.read()).await.unwrap_err();
    let leader = elector(store, "leader", quick());
    credentials.write(&format!("    token: {}", credentials.token));
    assert!(lead(&leader).await.is_valid());
}

#[tokio::test(flavor = "multi_thread")]
async fn client_certificates_that_rotate_do_not_cost_the_lease() {
    let Some(cluster) = Cluster::shared().await else {
        return;
    };
    let credentials = Credentials::of(&cluster);
    let write = |lifetime| {
        let (certificate, key) = cluster.plane.client_certificate(USER, lifetime).unwrap();
        credentials.replace("key", &key);
        credentials.replace("certificate", &certificate);
    };
    write(Duration::from_secs(6));
    credentials.write(&format!(
        "    client-certificate: {}\n    client-key: {}",
        credentials.path("certificate").display(),
        credentials.path("key").display()
    ));
    let leader = elector(credentials.store(&cluster).await, "leader", quick());
    let term = lead(&leader).await;
    holds_for(&term, Duration::from_secs(3)).await;
    write(Duration::from_secs(600));
    holds_for(&term, Duration::from_secs(9)).await;
}
