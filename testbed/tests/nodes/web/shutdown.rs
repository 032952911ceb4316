//! A node that shuts down, under load.

use std::process::Command;
use std::time::Instant;

use kube::ResourceExt;
use kube::api::{ListParams, LogParams};
use serde_json::{Value, json};

use super::Variant;
use super::stage::{allow_prestop, begin_load, deploy_behind, undeploy};
use crate::group::Group;
use crate::ladder::{KEPT, await_end, set_finalizers};
use crate::load::Lost;
use crate::{PATIENCE, images};

/// The kubelet ends its Pods itself then. Nobody deletes them, nobody asks for their readiness any more, and so they stay in their
/// EndpointSlices to the end: who comes until then is served, and who comes later is refused. A Pod that does not tolerate a node
/// that is not ready is deleted as well, and that takes it out in time.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_shuts_down_cuts_no_request_and_loses_none_of_pods_that_do_not_tolerate_it() {
    let Some(group) = Group::create("shutdown").await else {
        return;
    };
    allow_prestop(&group).await;
    let generated = generated_tolerations();
    assert_ne!(generated, Value::Null);
    for tolerates in [true, false] {
        let mut spec = Variant::Soloist.spec();
        if !tolerates {
            spec["tolerations"] = generated.clone();
        }
        let lost = shut_down(&group, spec, tolerates).await;
        let is_cut = lost.iter().any(|lost| lost.had_a_connection);
        assert!(!is_cut && (tolerates || lost.is_empty()), "{lost:#?}");
    }
    group.end().await;
}

/// What `soloist manifests` prints for a program that serves.
fn generated_tolerations() -> Value {
    let output = Command::new(images::soloist())
        .args([
            "manifests",
            "--store",
            "none",
            "--name",
            "web",
            "--",
            "/web",
        ])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let mut documents = text.split("---\n");
    let deployment = documents.find(|text| text.contains("\nkind: Deployment\n"));
    let deployment: Value = serde_saphyr::from_str(deployment.unwrap()).unwrap();
    deployment["spec"]["template"]["spec"]["tolerations"].clone()
}

async fn shut_down(group: &Group, spec: Value, tolerates: bool) -> Vec<Lost> {
    let address = deploy_behind(group, spec, &json!({ "app": "demo" })).await;
    let load = begin_load(group, address).await;
    // Where the load comes from stays as it is.
    let node = &group.cluster.nodes()[1];
    let here = ListParams::default().fields(&format!("spec.nodeName={}", node.name()));
    let pods = group.pods().list(&here).await.unwrap().items;
    assert!(!pods.is_empty(), "nothing runs on {}", node.name());
    for pod in &pods {
        set_finalizers(group, &pod.name_any(), &[KEPT]).await;
    }
    let began = Instant::now();
    node.shut_down(true).unwrap();
    let mut ends = Vec::new();
    let mut said = Vec::new();
    for pod in &pods {
        let name = pod.name_any();
        let end = await_end(group, &name).await.exit_code;
        ends.push((end, began.elapsed()));
        let log = group.pods().logs(&name, &LogParams::default()).await;
        let log = log.unwrap_or_default();
        let hooks = log.lines().filter(|line| line.contains("took="));
        said.extend(hooks.map(str::to_owned));
        set_finalizers(group, &name, &[]).await;
    }
    let counts = tokio::task::spawn_blocking(|| load.end()).await.unwrap();
    eprintln!(
        "a node shuts down, {:?} for its Pods, which {} it: {} answered, {} lost; exit codes and times {ends:?}\n{said:#?}",
        testbed::Node::SHUTDOWN_GRACE,
        if tolerates {
            "tolerate"
        } else {
            "do not tolerate"
        },
        counts.answered,
        counts.lost.len()
    );
    node.shut_down(false).unwrap();
    assert!(ends.iter().all(|(code, _)| *code == 0), "{ends:?}");
    undeploy(group).await;
    let ready = group.cluster.wait_until_ready(PATIENCE);
    ready.await.unwrap();
    counts.lost
}
