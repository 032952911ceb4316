//! Everything goes through the real API server: checked strictly, then really created, under the Pod security standard `restricted`.

use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use http::{Method, Request};
use kube::Client;
use serde_json::{Value, json};
use testbed::{ControlPlane, shared};
use tokio::time::{Instant, sleep};

use crate::printed::{manifests, objects};
use crate::{helm, kustomize};

pub(crate) async fn plane() -> Option<&'static ControlPlane> {
    shared("soloist manifests on a real API server").await
}

/// Where objects of this kind are created.
fn path(object: &Value) -> String {
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    let (group, resource) = match object["kind"].as_str().unwrap() {
        "Namespace" => return "/api/v1/namespaces".into(),
        "FlowSchema" => return "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas".into(),
        "ServiceAccount" => ("api/v1", "serviceaccounts"),
        "Pod" => ("api/v1", "pods"),
        "Role" => ("apis/rbac.authorization.k8s.io/v1", "roles"),
        "RoleBinding" => ("apis/rbac.authorization.k8s.io/v1", "rolebindings"),
        "Deployment" => ("apis/apps/v1", "deployments"),
        "StatefulSet" => ("apis/apps/v1", "statefulsets"),
        "PodDisruptionBudget" => ("apis/policy/v1", "poddisruptionbudgets"),
        other => panic!("where is a {other}?"),
    };
    format!("/{group}/namespaces/{namespace}/{resource}")
}

async fn create(client: &Client, object: &Value, how: &str) {
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("{}?fieldValidation=Strict{how}", path(object)))
        .header("Content-Type", "application/json")
        .body(serde_json::to_vec(object).unwrap())
        .unwrap();
    let answer: Result<Value, _> = client.request(request).await;
    answer.unwrap_or_else(|error| panic!("{error}: {object:#}"));
}

/// A Pod as the workload's controller would make it: only Pods are held to the standard.
fn pod_of(deployment: &Value) -> Value {
    let template = &deployment["spec"]["template"];
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "generateName": "replica-", "namespace": deployment["metadata"]["namespace"],
            "labels": template["metadata"]["labels"],
        },
        "spec": template["spec"],
    })
}

/// Checks all, then creates all, then a Pod.
pub(crate) async fn apply(plane: &ControlPlane, text: &str) {
    let client = plane.admin_client().await.unwrap();
    let mut objects = objects(text);
    let namespace = objects.remove("Namespace").unwrap();
    let enforced = &namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"];
    assert_eq!(enforced, "restricted");
    create(&client, &namespace, "&dryRun=All").await;
    create(&client, &namespace, "").await;
    for how in ["&dryRun=All", ""] {
        for object in objects.values() {
            create(&client, object, how).await;
        }
    }
    let workloads = ["Deployment", "StatefulSet"];
    let workload = workloads.iter().find_map(|kind| objects.get(*kind));
    create(&client, &pod_of(workload.unwrap()), "").await;
}

/// With every kind of delivery, and with everything that can be asked for.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_printed_is_accepted_strictly_and_under_the_restricted_standard() {
    let Some(plane) = plane().await else { return };
    for delivery in ["image-volume", "init-container", "in-image"] {
        let name = format!("full-{delivery}");
        let text = manifests(
            &[
                "--name",
                &name,
                "--delivery",
                delivery,
                "--flow-schema",
                "--writable",
                "/tmp",
                "--prestop",
                "5s",
                "--ready",
                "notify",
                "--cpu",
                "0.5",
                "--memory",
                "1Gi",
            ],
            &["/feed", "yes", "1", "a: b", "\n"],
        );
        apply(plane, &text).await;
    }
    apply(plane, &manifests(&["--name", "least"], &["/feed"])).await;
    // Names that a reader of YAML could take for something else.
    apply(plane, &manifests(&["--name", "true"], &["/feed"])).await;
    for delivery in ["image-volume", "init-container", "in-image"] {
        let name = format!("serving-{delivery}");
        let flags = ["--name", &name, "--delivery", delivery, "--store", "none"];
        apply(plane, &manifests(&flags, &["/web"])).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_overlay_is_accepted_strictly_and_under_the_restricted_standard() {
    let Some(plane) = plane().await else { return };
    for overlay in [
        "standard",
        "high-availability",
        "low-load",
        "guides",
        "serving",
    ] {
        let Some(text) = kustomize::built(&format!("overlays/{overlay}")) else {
            return;
        };
        // They have the same names.
        let text = text.replace("my-program", &format!("my-{overlay}"));
        apply(plane, &text).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_chart_is_accepted_strictly_and_under_the_restricted_standard() {
    let Some(plane) = plane().await else { return };
    let values = [
        r#"image="feed:1""#,
        r#"command=["/feed"]"#,
        "flowSchema=true",
        r#"nodeSelector={"a":"b"}"#,
        r#"tolerations=[{"key":"k","operator":"Exists"}]"#,
        r#"imagePullSecrets=[{"name":"s"}]"#,
        r#"env=[{"name":"A","value":"b"}]"#,
        r#"affinity={"podAntiAffinity":{}}"#,
    ];
    let Some(text) = helm::template(&values) else {
        return;
    };
    // The documents' commands make the shop.
    let text = text.replace("namespace: \"shop\"", "namespace: charted");
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: charted, labels: {pod-security.kubernetes.io/enforce: restricted}}\n";
    apply(plane, &format!("{namespace}{text}")).await;
}

struct Replica(Child);

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_printed_rights_and_variables_are_enough_to_lead() {
    let Some(plane) = plane().await else { return };
    let text = manifests(&["--name", "enough"], &["sleep", "1000"]);
    apply(plane, &text).await;
    let objects = objects(&text);
    let container = &objects["Deployment"]["spec"]["template"]["spec"]["containers"][0];
    let strings = |list: &Value| -> Vec<String> {
        let list = list.as_array().unwrap().iter();
        list.map(|item| item.as_str().unwrap().to_owned()).collect()
    };
    let kubeconfig = plane.service_account_kubeconfig("enough", "enough", None);
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let mut command = Command::new(env!("CARGO_BIN_EXE_soloist"));
    command
        .args(&strings(&container["command"])[1..])
        .args(strings(&container["args"]))
        .env("KUBECONFIG", kubeconfig.await.unwrap())
        .env("SOLOIST_STORE", "kubernetes")
        .stdin(Stdio::null())
        .stderr(File::create(&log).unwrap());
    for variable in container["env"].as_array().unwrap() {
        let value = match variable["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
            None => variable["value"].as_str().unwrap(),
            Some("metadata.name") => "enough-1",
            Some("metadata.namespace") => "enough",
            Some("metadata.uid") => "d5f5a6a0-0000-4000-8000-000000000001",
            Some(other) => panic!("{other}"),
        };
        command.env(variable["name"].as_str().unwrap(), value);
    }
    let _replica = Replica(command.spawn().unwrap());
    let deadline = Instant::now() + Duration::from_secs(30);
    let log = || std::fs::read_to_string(&log).unwrap();
    while !log().contains("elected term=") {
        assert!(Instant::now() < deadline, "it does not lead: {}", log());
        sleep(Duration::from_millis(20)).await;
    }
}
