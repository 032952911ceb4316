//! The Kubernetes store where no thread can be made any more.
#![allow(clippy::unwrap_used, reason = "a failing test says where")]

#[path = "../../process/tests/common/skipped.rs"]
mod skipped;

use std::env;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use rustix::process::{Resource, Rlimit, setrlimit};
use serde_json::json;
use soloist_elector::kubernetes::{KubernetesStore, Options};
use soloist_elector::testing::in_time;
use soloist_elector::{LeaseStore, StoreError};

const KUBECONFIG: &str = "ELECTOR_TEST_KUBECONFIG";

/// As a user of its own: the limit counts all processes of a user, and root has none.
#[test]
fn a_server_is_asked_though_no_thread_can_be_made_any_more() {
    if !rustix::process::geteuid().is_root() {
        return skipped::skipped("only root can become another user");
    }
    let kubeconfig = tempfile::NamedTempFile::new().unwrap();
    // Nobody listens on the first port.
    let text = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "shop"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    });
    fs::write(kubeconfig.path(), text.to_string()).unwrap();
    fs::set_permissions(kubeconfig.path(), Permissions::from_mode(0o644)).unwrap();
    let mut other_user = Command::new("setpriv");
    other_user
        .args(["--reuid=64125", "--regid=64125", "--clear-groups"])
        .arg(env::current_exe().unwrap())
        .args(["--exact", "helper_process", "--nocapture"])
        .env(KUBECONFIG, kubeconfig.path());
    let said = other_user.output().unwrap();
    let said = String::from_utf8(said.stdout).unwrap();
    assert!(said.contains("it was asked"), "{said}");
}

/// Not a test: the other user's process.
#[tokio::test]
async fn helper_process() {
    let Some(kubeconfig) = env::var_os(KUBECONFIG) else {
        return;
    };
    let one = Some(1);
    let limit = Rlimit {
        current: one,
        maximum: one,
    };
    setrlimit(Resource::Nproc, limit).unwrap();
    let another = std::thread::Builder::new().spawn(|| {});
    assert!(another.is_err(), "there must be no room for a thread");
    let options = Options::lease("demo")
        .namespace("shop")
        .kubeconfig(kubeconfig);
    let store = KubernetesStore::connect(options).await.unwrap();
    let read = in_time(store.read()).await;
    assert!(matches!(read, Err(StoreError::Unavailable(_))), "{read:?}");
    println!("it was asked");
}
