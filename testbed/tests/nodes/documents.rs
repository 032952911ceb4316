//! What docs/kubernetes.md and deploy/ say, done as they say it.

use std::{
    fs,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use k8s_openapi::api::{apps::v1::Deployment, coordination::v1::Lease, core::v1::Pod};
use kube::{Api, ResourceExt, api::ListParams};
use testbed::Cluster;
use tokio::time::sleep;

use crate::{
    PATIENCE,
    group::Group,
    images::checkout,
    journal::{self, Event},
    tools::{Tool, run},
};

/// The overlay of one's own that deploy/kustomize/base asks for: the image, and what the program is told.
const MINE: &str = r#"apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
- ../standard
images:
- name: my-program
  newTag: "1"
patches:
- target: {kind: Deployment}
  patch: |-
    - {op: add, path: /spec/template/spec/containers/0/args/-, value: /journal}
    - {op: add, path: /spec/template/spec/containers/0/volumeMounts/-, value: {name: writable-0, mountPath: /journal}}
    - {op: add, path: /spec/template/spec/volumes/-, value: {name: writable-0, emptyDir: {}}}
"#;

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_applies_an_overlay_and_one_of_three_leads() {
    let Some(group) = Group::create("kustomized").await else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let deploy = checkout().join("deploy/kustomize");
    let mut copy = Command::new("cp");
    copy.arg("-r").arg(deploy).arg(folder.path());
    assert!(copy.status().unwrap().success());
    let mine = folder.path().join("kustomize/overlays/mine");
    fs::create_dir(&mine).unwrap();
    fs::write(mine.join("kustomization.yaml"), MINE).unwrap();
    let kubectl = || Tool::Kubectl.for_cluster(group.cluster);
    let mine = mine.to_str().unwrap();
    run(kubectl(), &["apply", "-k", mine], "");
    one_of_three_leads(&group, "my-program", "my-program").await;
    run(kubectl(), &["delete", "-k", mine], "");
    group.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn helm_installs_the_chart_and_its_test_passes_and_one_of_three_leads() {
    let Some(group) = Group::create("charted").await else {
        return;
    };
    let helm = || Tool::Helm.for_cluster(group.cluster);
    // The group's namespace enforces the restricted standard.
    let namespace = group.namespace.as_str();
    let install = [
        "install",
        "feed",
        "deploy/helm/soloist",
        "--namespace",
        namespace,
        "--create-namespace",
        "--set",
        "image=feed:1",
        "--set",
        "command={/feed,/journal}",
        "--set",
        "writable={/journal}",
    ];
    run(helm(), &install, "");
    one_of_three_leads(&group, namespace, "feed").await;
    let said = run(helm(), &["test", "feed", "--namespace", namespace], "");
    assert!(said.contains("Succeeded"), "{said}");
    run(helm(), &["uninstall", "feed", "--namespace", namespace], "");
    group.end().await;
}

async fn one_of_three_leads(group: &Group, namespace: &str, name: &str) {
    let client = group.client.clone();
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), namespace);
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let leases: Api<Lease> = Api::namespaced(client, namespace);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let status = deployments.get(name).await.unwrap().status;
        if status.and_then(|status| status.available_replicas) == Some(3) {
            break;
        }
        let listed = pods.list(&ListParams::default()).await.unwrap();
        let said: Vec<_> = listed.iter().map(|pod| &pod.status).collect();
        assert!(Instant::now() < deadline, "not available: {said:?}");
        sleep(Duration::from_millis(100)).await;
    }
    let lease = leases.get(name).await.unwrap();
    let holder = lease.spec.and_then(|spec| spec.holder_identity);
    let mut leaders = Vec::new();
    for pod in pods.list(&ListParams::default()).await.unwrap() {
        if has_started(group.cluster, &pod) {
            leaders.push(pod.name_any());
        }
    }
    assert_eq!(leaders, [holder.unwrap()]);
}

/// Whether the journal in the Pod's own folder on its node tells of a child.
fn has_started(cluster: &Cluster, pod: &Pod) -> bool {
    let node = pod.spec.as_ref().unwrap().node_name.as_deref().unwrap();
    let node = cluster.node(node).unwrap();
    let volume = format!(
        "var/lib/kubelet/pods/{}/volumes/kubernetes.io~empty-dir/writable-0",
        pod.metadata.uid.as_deref().unwrap()
    );
    let events = journal::read(&node.folder().join(Path::new(&volume)));
    events.iter().any(Event::is_start)
}
