//! soloist in front of an image that was made without it, by `soloist inject`.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use crate::{
    group::{Group, LEASE},
    images,
    journal::Event,
    tools::{Tool, run},
};

#[tokio::test(flavor = "multi_thread")]
async fn an_init_container_brings_soloist_to_an_image_that_stays_as_it_is() {
    is_injected("init-container").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_volume_brings_soloist_to_an_image_that_stays_as_it_is() {
    is_injected("image-volume").await;
}

async fn is_injected(delivery: &str) {
    let Some(group) = Group::create(delivery).await else {
        return;
    };
    let deployment = deployment(&group.namespace);
    let injected = inject(
        &["--delivery", delivery, "--soloist-image", images::SOLOIST],
        &deployment,
    );
    let kubectl = Tool::Kubectl.for_cluster(group.cluster);
    run(kubectl, &["apply", "-f", "-"], &injected);
    group.await_ready(3).await;
    let first = group.await_event(Event::is_start).await;
    assert_eq!(group.await_holder(|_| true).await, first.identity);
    group.end().await;
}

fn inject(flags: &[&str], text: &str) -> String {
    let mut child = Command::new(images::soloist())
        .arg("inject")
        .args(flags)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(text.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

/// Somebody's, who has never heard of soloist.
fn deployment(namespace: &str) -> String {
    format!(
        r#"apiVersion: apps/v1
kind: Deployment
metadata:
  name: {LEASE}
  namespace: {namespace}
spec:
  replicas: 3
  selector:
    matchLabels: {{app: demo}}
  template:
    metadata:
      labels: {{app: demo}}
    spec:
      securityContext:
        runAsNonRoot: true
        runAsUser: 65532
        seccompProfile: {{type: RuntimeDefault}}
      containers:
      - name: demo
        image: {stock}
        command: ["/child", "/journal"]
        securityContext:
          allowPrivilegeEscalation: false
          readOnlyRootFilesystem: true
          capabilities: {{drop: [ALL]}}
        volumeMounts:
        - {{name: journal, mountPath: /journal}}
      volumes:
      - name: journal
        persistentVolumeClaim: {{claimName: journal}}
"#,
        stock = images::STOCK
    )
}
