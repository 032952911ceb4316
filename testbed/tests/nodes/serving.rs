//! What `soloist manifests --store none` prints: every replica serves, and the hook ends each when no traffic comes any more.

use std::process::Command;
use std::time::Instant;

use futures_util::{AsyncBufReadExt, StreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{DeleteParams, ListParams, LogParams};
use kube::{Api, ResourceExt};
use testbed::Cluster;
use tokio::time::{Duration, sleep};

use crate::group::Group;
use crate::tools::{Tool, run};
use crate::{PATIENCE, images};

const NAME: &str = "web";

/// With a Service in front.
fn manifests(namespace: &str) -> String {
    let output = Command::new(images::soloist())
        .args(["manifests", "--name", NAME, "--namespace", namespace])
        .args(["--no-namespace", "--store", "none", "--ready", "notify"])
        .args(["--image", images::WEB, "--delivery", "in-image"])
        .args(["--", "/web", "0.0.0.0:8080"])
        .output()
        .unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{complaint}");
    let service = format!(
        "---\napiVersion: v1\nkind: Service\nmetadata: {{name: {NAME}, namespace: {namespace}}}\n\
         spec: {{selector: {{app.kubernetes.io/name: {NAME}}}, ports: [{{port: 80, targetPort: 8080}}]}}\n"
    );
    String::from_utf8(output.stdout).unwrap() + &service
}

#[tokio::test(flavor = "multi_thread")]
async fn a_printed_deployment_without_an_election_runs_in_all_its_pods_and_its_hook_ends_them() {
    let Some(group) = Group::create("serving").await else {
        return;
    };
    let namespace = group.namespace.as_str();
    let kubectl = || Tool::Kubectl.for_cluster(group.cluster);
    run(kubectl(), &["apply", "-f", "-"], &manifests(namespace));
    let deployments: Api<Deployment> = Api::namespaced(group.client.clone(), namespace);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let status = deployments.get(NAME).await.unwrap().status;
        if status.and_then(|status| status.available_replicas) == Some(3) {
            break;
        }
        let pods = group.pods().list(&ListParams::default()).await.unwrap();
        let said: Vec<_> = pods.iter().map(|pod| &pod.status).collect();
        assert!(Instant::now() < deadline, "not available: {said:?}");
        sleep(Duration::from_millis(100)).await;
    }

    let found = doctor(group.cluster, namespace);
    for good in [
        "✓ there is none: every replica runs the program",
        "✓ prestop sees when its Pod is out of the EndpointSlices",
        "✓ its preStop hook is soloist's: soloist prestop, at most 15s",
        "✓ a PodDisruptionBudget guards them",
        "✓ they are on several nodes: 3 Pods on 2 nodes",
    ] {
        assert!(found.contains(good), "no {good:?}: {found}");
    }

    let pods = group.pods().list(&ListParams::default()).await.unwrap();
    let pod = pods.items[0].name_any();
    // The Pod's own account sees what its rights allow, and its own control group.
    let inside = [
        "exec",
        &pod,
        "--namespace",
        namespace,
        "--",
        "/soloist",
        "doctor",
    ];
    let found = run(kubectl(), &inside, "");
    for good in [
        "✓ there is none: every replica runs the program",
        "✓ prestop sees when its Pod is out of the EndpointSlices",
        "✓ the Pod's real grace period can be read",
        "✓ its preStop hook is soloist's: soloist prestop, at most 15s",
        "✓ the program cannot trace soloist and its guard",
        "✓ what soloist starts dies with it: it is process 1",
        "✓ processes can be held",
        "✓ there is memory left",
    ] {
        assert!(found.contains(good), "no {good:?}: {found}");
    }

    let told = tokio::spawn(told_by_hook(group.pods(), pod.clone()));
    let how = DeleteParams::default();
    group.pods().delete(&pod, &how).await.unwrap();
    let told = told.await.unwrap();
    assert!(
        told.iter()
            .any(|line| line.contains("out of its EndpointSlices")),
        "{told:?}"
    );
    run(kubectl(), &["delete", "-f", "-"], &manifests(namespace));
    group.end().await;
}

/// From outside, as the cluster's administrator.
fn doctor(cluster: &Cluster, namespace: &str) -> String {
    let output = Command::new(images::soloist())
        .args(["doctor", "--namespace", namespace, "--deployment", NAME])
        .env("KUBECONFIG", cluster.plane().admin_kubeconfig().unwrap())
        .output()
        .unwrap();
    let found = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{found}");
    found
}

/// The lines of the hook in the log of a Pod that ends.
async fn told_by_hook(pods: Api<k8s_openapi::api::core::v1::Pod>, name: String) -> Vec<String> {
    let follow = LogParams {
        follow: true,
        ..LogParams::default()
    };
    let log = pods.log_stream(&name, &follow).await.unwrap();
    let lines = log.lines().filter_map(async |line| {
        let line = line.ok()?;
        line.contains("preStop:").then_some(line)
    });
    lines.collect().await
}
