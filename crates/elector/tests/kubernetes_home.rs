//! Where the cluster is looked for when nobody says.
#![allow(clippy::unwrap_used, reason = "a failing test says where")]

use std::process::Command;

use soloist_elector::kubernetes::{KubernetesStore, Options};

/// Not a test: the process of the test below, which has a folder and an environment of its own.
#[tokio::test]
async fn helper_process() {
    if std::env::var_os("ELECTOR_TEST_HOME").is_some() {
        let error = KubernetesStore::connect(Options::lease("demo")).await;
        println!("said: {}", error.err().unwrap());
    }
}

#[test]
fn without_a_home_the_present_folder_is_not_looked_into() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join(".kube")).unwrap();
    std::fs::write(folder.path().join(".kube/config"), "somebody else's").unwrap();
    for home in [None, Some(""), Some(".")] {
        let mut helper = Command::new(std::env::current_exe().unwrap());
        helper
            .args(["--exact", "helper_process", "--nocapture"])
            .current_dir(folder.path())
            .env("ELECTOR_TEST_HOME", "yes");
        for name in ["HOME", "KUBECONFIG", "KUBERNETES_SERVICE_HOST"] {
            helper.env_remove(name);
        }
        helper.envs(home.map(|home| ("HOME", home)));
        let said = String::from_utf8(helper.output().unwrap().stdout).unwrap();
        assert!(said.contains("said: no Kubernetes cluster"), "{said}");
    }
}
