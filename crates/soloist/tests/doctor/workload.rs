//! The Pods.

use std::process::Command;

use serde_json::{Value, json};

use crate::patient::Patient;

/// The Deployment that `soloist manifests` prints, in this namespace.
fn printed(patient: &Patient) -> Value {
    printed_with(patient, &["--lease", "demo"], "Deployment")
}

pub(crate) fn printed_with(patient: &Patient, flags: &[&str], kind: &str) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_soloist"))
        .args([
            "manifests",
            "--name",
            "feed",
            "--namespace",
            &patient.namespace,
        ])
        .args(flags)
        .args(["--", "/feed"])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    documents
        .into_iter()
        .find(|document| document["kind"] == kind)
        .unwrap()
}

async fn examine(patient: &Patient, deployment: &Value) -> crate::patient::Findings {
    patient
        .create("apis/apps/v1//deployments", deployment)
        .await;
    patient.examine_as_admin(&["--deployment", "feed"])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_printed_deployment_has_nothing_wrong_but_what_is_not_there_yet() {
    let Some(patient) = Patient::new("good").await else {
        return;
    };
    let found = examine(&patient, &printed(&patient)).await;
    for good in [
        "its settings fit together",
        "its grace period is soloist's: 30s",
        "its preStop hook is soloist's",
        "it knows its name and UID",
        "it has a token: feed",
        "soloist is its first process",
        "it is ready whether or not it leads",
        "its CPU is not limited",
        "there are standbys: 3 replicas",
    ] {
        found.assert_says(&format!("✓ {good}"), &[]);
    }
    // The lease's name and the account come from the Deployment.
    let account = format!(
        "× system:serviceaccount:{}:feed may update the lease demo",
        patient.namespace
    );
    found.assert_says(&account, &["verbs: [\"update\"]"]);
    found.assert_says(
        "‼ a PodDisruptionBudget guards them",
        &["maxUnavailable: 1"],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn each_fault_of_a_deployment_is_named_with_what_to_do() {
    let Some(patient) = Patient::new("bad").await else {
        return;
    };
    let mut deployment = printed(&patient);
    deployment["spec"]["replicas"] = json!(1);
    let pod = &mut deployment["spec"]["template"]["spec"];
    pod["terminationGracePeriodSeconds"] = json!(20);
    pod["shareProcessNamespace"] = json!(true);
    pod["automountServiceAccountToken"] = json!(false);
    let container = &mut pod["containers"][0];
    container["lifecycle"] = json!({"preStop": {"sleep": {"seconds": 9}}});
    container["readinessProbe"] = json!({"httpGet": {"path": "/leader", "port": 8080}});
    container["resources"]["limits"] = json!({"cpu": "100m"});
    let variables = container["env"].as_array_mut().unwrap();
    variables.retain(|variable| variable["name"] != "POD_UID");
    variables.push(json!({"name": "SOLOIST_RENEW_DEADLINE", "value": "20s"}));
    variables.push(json!({"name": "SOLOIST_IDENTITY", "value": "feed"}));
    let found = examine(&patient, &deployment).await;
    assert_eq!(found.code, 1);
    for (line, parts) in [
        (
            "× its settings fit together",
            &["renew deadline 20s is too late"][..],
        ),
        (
            "× its grace period is soloist's",
            &[
                "terminationGracePeriodSeconds is 20, and soloist counts with 30s",
                "SOLOIST_GRACE_PERIOD to 20s",
            ],
        ),
        (
            "× its preStop hook is soloist's",
            &["sleeps 9 s", "Set SOLOIST_PRESTOP to 9s"],
        ),
        (
            "‼ it knows its name and UID",
            &["POD_UID does not come from the downward API"],
        ),
        (
            "× its identity is its own",
            &[
                "all replicas are called \"feed\"",
                "Remove SOLOIST_IDENTITY",
            ],
        ),
        (
            "× it has a token",
            &["automountServiceAccountToken is false"],
        ),
        ("‼ soloist is its first process", &["shareProcessNamespace"]),
        (
            "× it is ready whether or not it leads",
            &["/leader", "a rolling update never ends"],
        ),
        ("‼ its CPU is not limited", &["100m", "renews late"]),
        ("‼ there are standbys", &["replicas is 1"]),
    ] {
        found.assert_says(line, parts);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_on_one_node_are_told() {
    let Some(patient) = Patient::new("node").await else {
        return;
    };
    let deployment = printed(&patient);
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"labels": deployment["spec"]["template"]["metadata"]["labels"]},
        "spec": deployment["spec"]["template"]["spec"],
    });
    for (name, node) in [("a", "one"), ("b", "one")] {
        pod["metadata"]["name"] = json!(name);
        pod["spec"]["nodeName"] = json!(node);
        patient.create("api/v1//pods", &pod).await;
    }
    let found = examine(&patient, &deployment).await;
    found.assert_says(
        "‼ they are on several nodes",
        &[
            "all 2 Pods are on the node one",
            "topologySpreadConstraints",
        ],
    );
    pod["metadata"]["name"] = json!("c");
    pod["spec"]["nodeName"] = json!("two");
    patient.create("api/v1//pods", &pod).await;
    let found = patient.examine_as_admin(&["--deployment", "feed"]);
    found.assert_says("✓ they are on several nodes", &["3 Pods on 2 nodes"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workload_that_is_not_there_is_told() {
    let Some(patient) = Patient::new("lost").await else {
        return;
    };
    let found = patient.examine_as_admin(&["--deployment", "feed"]);
    assert_eq!(found.code, 1);
    found.assert_says("× it is described", &["not found", "--namespace"]);
    for name in ["", "../pods", "a/b"] {
        let found = patient.examine_as_admin(&["--deployment", name]);
        assert_eq!(found.code, 1);
        found.assert_says("× it is described", &["nothing can be called so"]);
    }
    let nobody = patient.plane.kubeconfig("replica-0", None).unwrap();
    let found = patient.examine(&nobody, &["--deployment", "feed"]);
    let rule = r#"{apiGroups: ["apps"], resources: ["deployments"], verbs: [get]}"#;
    found.assert_says("× it is described", &[rule, "replica-0"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_that_a_deployments_own_flags_need_are_told_when_they_are_missing() {
    let Some(patient) = Patient::new("flags").await else {
        return;
    };
    let flags = ["--lease", "demo", "--label-role", "--leave-cordoned-node"];
    let deployment = printed_with(&patient, &flags, "Deployment");
    let found = examine(&patient, &deployment).await;
    let account = format!("system:serviceaccount:{}:feed", patient.namespace);
    for (line, rule) in [
        (
            "‼ optional: --label-role shows the role on the Pod",
            r#"{apiGroups: [""], resources: ["pods"], verbs: [patch]}"#,
        ),
        (
            "‼ optional: --leave-cordoned-node hands over before an eviction",
            r#"a ClusterRole's {apiGroups: [""], resources: ["nodes"], verbs: [get, watch]}"#,
        ),
    ] {
        found.assert_says(line, &["are told to", &account, rule]);
    }
    for kind in ["ClusterRole", "ClusterRoleBinding"] {
        let object = printed_with(&patient, &flags, kind);
        let place = format!("apis/rbac.authorization.k8s.io/v1/{}s", kind.to_lowercase());
        patient.create_in_cluster(&place, &object).await;
    }
    let found = patient.examine_as_admin(&["--deployment", "feed"]);
    found.assert_says(
        "✓ optional: --leave-cordoned-node hands over before an eviction",
        &["yes"],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workload_that_does_not_say_which_lease_it_competes_for_is_told() {
    let Some(patient) = Patient::new("nameless").await else {
        return;
    };
    let mut deployment = printed(&patient);
    let container = &mut deployment["spec"]["template"]["spec"]["containers"][0];
    let variables = container["env"].as_array_mut().unwrap();
    variables.retain(|variable| variable["name"] != "SOLOIST_NAME");
    let found = examine(&patient, &deployment).await;
    assert_eq!(found.code, 1, "{}", found.text);
    found.assert_says(
        "× its name is known",
        &["does not say which lease", "SOLOIST_NAME"],
    );
    deployment["metadata"]["name"] = json!("odd");
    let container = &mut deployment["spec"]["template"]["spec"]["containers"][0];
    let variables = container["env"].as_array_mut().unwrap();
    variables.push(json!({"name": "SOLOIST_LABEL_ROLE", "value": "perhaps"}));
    patient
        .create("apis/apps/v1//deployments", &deployment)
        .await;
    let found = patient.examine_as_admin(&["--deployment", "odd"]);
    found.assert_says("× its name is known", &["cannot be read", "perhaps"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shell_in_front_and_the_nodes_processes_and_spare_time_are_told() {
    let Some(patient) = Patient::new("shell").await else {
        return;
    };
    let mut deployment = printed(&patient);
    let pod = &mut deployment["spec"]["template"]["spec"];
    pod["terminationGracePeriodSeconds"] = json!(90);
    let container = &mut pod["containers"][0];
    container["command"] = json!(["sh", "-c", "soloist run -- /feed"]);
    container["args"] = json!([]);
    let found = examine(&patient, &deployment).await;
    found.assert_says(
        "‼ soloist is its first process",
        &["runs \"sh\"", "without a shell"],
    );
    found.assert_says(
        "‼ its grace period is soloist's",
        &["less time than there is"],
    );

    deployment["metadata"]["name"] = json!("host");
    deployment["spec"]["template"]["spec"]["hostPID"] = json!(true);
    patient
        .create("apis/apps/v1//deployments", &deployment)
        .await;
    let found = patient.examine_as_admin(&["--deployment", "host"]);
    found.assert_says("‼ soloist is its first process", &["hostPID"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lease_is_compared_with_the_deployments_own_timings() {
    let Some(patient) = Patient::new("timings").await else {
        return;
    };
    patient
        .foreign_lease(json!({"holderIdentity": "a", "leaseDurationSeconds": 6}))
        .await;
    let flags = [&["--lease", "demo"], &crate::patient::QUICK[..]].concat();
    let deployment = printed_with(&patient, &flags, "Deployment");
    let found = examine(&patient, &deployment).await;
    found.assert_says(
        "‼ a takeover after a crash is quick",
        &["6 s, longer than the 4 s of these settings"],
    );
}
