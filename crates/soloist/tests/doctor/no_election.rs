//! `--store none`: no lease, and what matters instead.

use serde_json::json;

use crate::patient::{Patient, doctor};
use crate::workload::printed_with;

#[test]
fn without_a_cluster_it_says_that_there_is_no_election_and_looks_at_the_machine() {
    let found = doctor(&["--store", "none"]);
    assert_eq!(found.code, 0, "{}", found.text);
    found.assert_says(
        "✓ there is none: every replica runs the program",
        &["no lease is looked at"],
    );
    found.assert_says("✓ the timeouts fit into the grace period", &[]);
    found.assert_says("✓ processes can be seen", &[]);
    assert!(!found.text.contains("\nlease\n"), "{}", found.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_without_an_election_needs_no_lease_and_the_rights_of_its_hook() {
    let Some(patient) = Patient::new("serving").await else {
        return;
    };
    let deployment = printed_with(&patient, &["--store", "none"], "Deployment");
    patient
        .create("apis/apps/v1//deployments", &deployment)
        .await;
    let found = patient.examine_as_admin(&["--deployment", "feed"]);
    assert_eq!(found.code, 0, "{}", found.text);
    let hook = "✓ its preStop hook is soloist's";
    found.assert_says(hook, &["soloist prestop, at most 15s"]);
    let sees = "prestop sees when its Pod is out of the EndpointSlices";
    let rule = r#"{apiGroups: ["discovery.k8s.io"], resources: ["endpointslices"], verbs: [get, list, watch]}"#;
    found.assert_says(&format!("‼ {sees}"), &["waits for --fallback", rule]);
    let grace = "the Pod's real grace period can be read";
    let rule = r#"{apiGroups: [""], resources: ["pods"], verbs: [get]}"#;
    found.assert_says(&format!("‼ {grace}"), &["shortened at the deletion", rule]);
    for about_leases in ["may update", "it is held", "standbys", "× "] {
        assert!(!found.text.contains(about_leases), "{}", found.text);
    }
    for kind in ["ServiceAccount", "Role", "RoleBinding"] {
        let object = printed_with(&patient, &["--store", "none"], kind);
        let place = match kind {
            "ServiceAccount" => "api/v1//serviceaccounts",
            "Role" => "apis/rbac.authorization.k8s.io/v1//roles",
            _ => "apis/rbac.authorization.k8s.io/v1//rolebindings",
        };
        patient.create(place, &object).await;
    }
    let found = patient.examine_as_admin(&["--deployment", "feed"]);
    found.assert_says(&format!("✓ {sees}"), &["yes"]);
    found.assert_says(&format!("✓ {grace}"), &["yes"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn faults_of_a_deployment_without_an_election_are_named() {
    let Some(patient) = Patient::new("cuts").await else {
        return;
    };
    let mut deployment = printed_with(&patient, &["--store", "none"], "Deployment");
    deployment["spec"]["replicas"] = json!(1);
    let container = &mut deployment["spec"]["template"]["spec"]["containers"][0];
    container.as_object_mut().unwrap().remove("lifecycle");
    container["ports"] = json!([{"containerPort": 8080}]);
    let variables = container["env"].as_array_mut().unwrap();
    variables.retain(|variable| variable["name"] != "SOLOIST_PRESTOP");
    variables.push(json!({"name": "SOLOIST_ON_UNHEALTHY", "value": "step-down"}));
    patient
        .create("apis/apps/v1//deployments", &deployment)
        .await;
    let found = patient.examine_as_admin(&["--deployment", "feed"]);
    assert_eq!(found.code, 1, "{}", found.text);
    found.assert_says(
        "‼ its preStop hook is soloist's",
        &["a rolling update loses some", "prestop"],
    );
    found.assert_says("× its settings fit together", &["--on-unhealthy step-down"]);
    found.assert_says("‼ there are others", &["replicas is 1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_that_leaves_the_program_nothing_is_told() {
    let Some(patient) = Patient::new("hook").await else {
        return;
    };
    let mut deployment = printed_with(&patient, &["--prestop-hook", "soloist"], "Deployment");
    let max = |deployment: &mut serde_json::Value, max: &str| {
        let container = &mut deployment["spec"]["template"]["spec"]["containers"][0];
        container["lifecycle"]["preStop"]["exec"]["command"][3] = json!(max);
    };
    for (longest, line, parts) in [
        (
            "30s",
            "×",
            &["at most 30s of a grace period of 30s", "shorter --max"][..],
        ),
        (
            "20s",
            "‼",
            &[
                "at most 20s, and soloist leaves 15s",
                "SOLOIST_PRESTOP to 20s",
            ],
        ),
        ("soon", "×", &["soon"]),
    ] {
        max(&mut deployment, longest);
        let name = format!("feed-{longest}");
        deployment["metadata"]["name"] = json!(name);
        patient
            .create("apis/apps/v1//deployments", &deployment)
            .await;
        let found = patient.examine_as_admin(&["--deployment", &name]);
        found.assert_says(&format!("{line} its preStop hook is soloist's"), parts);
    }
}
