//! What `soloist inject` gives back is as the API server wants it, and differs from what it got by what it should.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::cluster::{apply, plane};
use crate::printed::objects;
use crate::tools;

fn inject(flags: &[&str], text: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_soloist"));
    piped(command.arg("inject").args(flags), text.as_bytes())
}

pub(crate) fn piped(command: &mut Command, input: &[u8]) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input).unwrap();
    drop(stdin);
    child.wait_with_output().unwrap()
}

/// Somebody's file: a namespace and a workload, hardened as its owner thought right.
pub(crate) fn somebodys(kind: &str, namespace: &str) -> String {
    let service = match kind {
        "StatefulSet" => "\n  serviceName: feed",
        _ => "",
    };
    format!(
        r#"# What the shop runs.
apiVersion: v1
kind: Namespace
metadata:
  name: {namespace}
  labels: {{pod-security.kubernetes.io/enforce: restricted}}
---
apiVersion: apps/v1
kind: {kind}
metadata:
  name: feed
  namespace: {namespace}
spec:
  replicas: 3{service}
  selector:
    matchLabels: &labels {{app: feed}}
  template:
    metadata:
      labels: *labels
    spec:
      securityContext: {{runAsNonRoot: true, runAsUser: 1000, seccompProfile: {{type: RuntimeDefault}}}}
      containers:
      - name: feed
        image: busybox
        # As it was before.
        command: [sh, -c, "sleep 1000"]
        securityContext:
          allowPrivilegeEscalation: false
          capabilities: {{drop: [ALL]}}
"#
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_injected_is_accepted_strictly_and_under_the_restricted_standard() {
    let Some(plane) = plane().await else { return };
    for kind in ["Deployment", "StatefulSet"] {
        for delivery in ["image-volume", "init-container", "in-image"] {
            let namespace = format!("injected-{}-{delivery}", kind.to_lowercase());
            let text = somebodys(kind, &namespace);
            let output = inject(&["--delivery", delivery], &text);
            let complaint = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{complaint}");
            apply(plane, &String::from_utf8(output.stdout).unwrap()).await;
        }
    }
    let text = somebodys("Deployment", "injected-serving");
    let output = inject(&["--store", "none"], &text);
    apply(plane, &String::from_utf8(output.stdout).unwrap()).await;
}

#[test]
fn nothing_else_of_the_workload_is_changed() {
    let text = somebodys("Deployment", "shop");
    let output = inject(&["--delivery", "in-image"], &text);
    let new = String::from_utf8(output.stdout).unwrap();
    assert!(new.contains("        # As it was before.\n"), "{new}");
    let (before, mut after) = (objects(&text), objects(&new));
    for added in ["ServiceAccount", "Role", "RoleBinding"] {
        assert!(after.remove(added).is_some(), "{added}");
    }
    let deployment = after.get_mut("Deployment").unwrap();
    let pod = deployment["spec"]["template"]["spec"]
        .as_object_mut()
        .unwrap();
    assert_eq!(pod.remove("serviceAccountName"), Some(json!("feed")));
    assert_eq!(
        pod.remove("automountServiceAccountToken"),
        Some(json!(true))
    );
    let container = pod["containers"][0].as_object_mut().unwrap();
    let variables = container.remove("env").unwrap();
    let names: Vec<&str> = variables
        .as_array()
        .unwrap()
        .iter()
        .map(|variable| variable["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "POD_NAME",
            "POD_NAMESPACE",
            "POD_UID",
            "SOLOIST_GRACE_PERIOD",
            "SOLOIST_NAME"
        ]
    );
    let command: &mut Vec<Value> = container["command"].as_array_mut().unwrap();
    let ours: Vec<Value> = command.drain(..3).collect();
    assert_eq!(ours, ["/soloist", "run", "--"]);
    assert_eq!(after, before);
}

#[test]
fn what_cannot_be_known_is_asked_for_and_nothing_is_printed() {
    let text =
        somebodys("Deployment", "shop").replace("        command: [sh, -c, \"sleep 1000\"]\n", "");
    let output = inject(&[], &text);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(complaint.contains("Deployment feed: its container has no command, so the ENTRYPOINT of the image busybox runs"), "{complaint}");
}

/// As `kubectl get -o json` and `-o yaml`, editors and other tools write it.
#[tokio::test(flavor = "multi_thread")]
async fn other_forms_of_a_text_can_be_applied_by_kubectl() {
    let Some(plane) = plane().await else { return };
    let Some(kubectl) = tools::find("kubectl", "other forms of a text") else {
        return;
    };
    let namespace = plane.namespace("forms").await.unwrap();
    let both = somebodys("Deployment", &namespace);
    let (_, plain) = both.split_once("---\n").unwrap();
    let value = objects(plain).remove("Deployment").unwrap();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [value.clone()]});
    let kubeconfig = plane.admin_kubeconfig().unwrap();
    for (form, text) in [
        ("JSON", format!("{value:#}")),
        ("JSON in one line", value.to_string()),
        ("a List as JSON", format!("{list:#}\n")),
        ("lines of Windows", plain.replace('\n', "\r\n")),
        ("a byte order mark", format!("\u{feff}{plain}")),
        ("an end of the document", format!("---\n{plain}...\n")),
        ("a comment at the end", format!("{plain}# the end")),
        ("an empty document", format!("{plain}---\n---\n# nothing\n")),
    ] {
        let output = inject(&[], &text);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{form}: {complaint}");
        let mut command = Command::new(&kubectl);
        command.arg("--kubeconfig").arg(&kubeconfig);
        command.args(["apply", "--dry-run=server", "--validate=strict", "-f", "-"]);
        let applied = piped(&mut command, &output.stdout);
        let said = String::from_utf8_lossy(&applied.stdout);
        let complaint = String::from_utf8_lossy(&applied.stderr);
        let given = String::from_utf8_lossy(&output.stdout);
        assert!(applied.status.success(), "{form}: {complaint}\n{given}");
        for object in [
            "deployment.apps/feed",
            "role.rbac",
            "rolebinding.rbac",
            "serviceaccount/feed",
        ] {
            assert!(
                said.contains(object),
                "{form}: no {object} in {said}\n{given}"
            );
        }
    }
}
