//! Where the cluster is looked for when nobody says.
#![allow(clippy::unwrap_used, reason = "a failing test says where")]

use std::path::Path;
use std::process::Command;

use soloist_elector::kubernetes::{KubernetesStore, Options};

/// Not a test: the process of the test below, which has a folder and an environment of its own.
#[tokio::test]
async fn helper_process() {
    if std::env::var_os("ELECTOR_TEST_HOME").is_some() {
        let mut options = Options::lease("demo");
        if let Ok(context) = std::env::var("ELECTOR_TEST_CONTEXT") {
            options = options.context(context);
        }
        let error = KubernetesStore::connect(options).await;
        println!("said: {}", error.err().unwrap());
    }
}

#[test]
fn without_a_home_the_present_folder_is_not_looked_into() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join(".kube")).unwrap();
    std::fs::write(folder.path().join(".kube/config"), "somebody else's").unwrap();
    for home in [None, Some(""), Some(".")] {
        let home = home.map(|home| ("HOME", home));
        let said = said(folder.path(), home.as_slice());
        assert!(
            said.contains("said: no Kubernetes cluster is configured"),
            "{said}"
        );
    }
}

#[test]
fn a_context_without_a_kubeconfig_and_a_pod_without_an_account_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let context = said(folder.path(), &[("ELECTOR_TEST_CONTEXT", "c")]);
    let reason = "the context \"c\" was given, but there is no kubeconfig to look it up in";
    assert!(context.contains(reason), "{context}");
    let account = "/var/run/secrets/kubernetes.io/serviceaccount/token";
    assert!(!Path::new(account).exists(), "these tests run in a Pod");
    let pod = [
        ("KUBERNETES_SERVICE_HOST", "192.0.2.1"),
        ("KUBERNETES_SERVICE_PORT", "443"),
    ];
    let pod = said(folder.path(), &pod);
    let reason = "this looks like a Pod, but its service account cannot be used: ";
    assert!(pod.contains(reason), "{pod}");
}

/// By the helper, in this folder, with these variables and none of a cluster.
fn said(folder: &Path, variables: &[(&str, &str)]) -> String {
    let mut helper = Command::new(std::env::current_exe().unwrap());
    helper
        .args(["--exact", "helper_process", "--nocapture"])
        .current_dir(folder)
        .env("ELECTOR_TEST_HOME", "yes");
    for name in ["HOME", "KUBECONFIG", "KUBERNETES_SERVICE_HOST"] {
        helper.env_remove(name);
    }
    helper.envs(variables.iter().copied());
    String::from_utf8(helper.output().unwrap().stdout).unwrap()
}
