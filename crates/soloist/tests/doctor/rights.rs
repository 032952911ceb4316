//! Rights.

use k8s_openapi::api::rbac::v1::PolicyRule;
use testbed::Account;

use crate::patient::{LEASE, Patient};

const VERBS: [&str; 5] = ["create", "get", "list", "watch", "update"];

fn rule(verbs: &[&str], name: Option<&str>) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec!["coordination.k8s.io".into()]),
        resources: Some(vec!["leases".into()]),
        resource_names: name.map(|name| vec![name.to_owned()]),
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        ..PolicyRule::default()
    }
}

pub(crate) fn rule_of(group: &str, resource: &str, verbs: &[&str]) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(vec![resource.to_owned()]),
        ..rule(verbs, None)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_missing_verb_is_named_with_the_rule_to_paste() {
    let Some(patient) = Patient::new("verbs").await else {
        return;
    };
    for (number, missing) in VERBS.into_iter().enumerate() {
        let user = format!("replica-{number}");
        let others: Vec<&str> = VERBS.into_iter().filter(|verb| *verb != missing).collect();
        let on_one: Vec<&str> = others
            .iter()
            .copied()
            .filter(|verb| *verb != "create")
            .collect();
        let mut rules = vec![rule(&on_one, Some(LEASE))];
        if missing != "create" {
            rules.push(rule(&["create"], None));
        }
        let allowed = patient
            .plane
            .allow(&patient.namespace, Account::User(&user), rules);
        allowed.await.unwrap();
        let found = patient.examine(&patient.plane.kubeconfig(&user, None).unwrap(), &[]);
        assert_eq!(found.code, 1, "{missing}: {}", found.text);
        for verb in VERBS {
            let lease = if verb == "create" {
                "leases".to_owned()
            } else {
                format!("the lease {LEASE}")
            };
            let line = format!("{user} may {verb} {lease}");
            match verb == missing {
                false => found.assert_says(&format!("✓ {line}"), &[]),
                true => {
                    let names = if verb == "create" {
                        ""
                    } else {
                        "resourceNames: [\"demo\"]"
                    };
                    let refused = format!(
                        "{user} may not \"{verb}\" leases (coordination.k8s.io) in the namespace {}",
                        patient.namespace
                    );
                    found.assert_says(
                        &format!("× {line}"),
                        &[
                            &refused,
                            &format!("verbs: [\"{verb}\"]"),
                            names,
                            "docs/kubernetes.md, Rights",
                        ],
                    );
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rights_of_a_service_account_are_checked_from_elsewhere() {
    let Some(patient) = Patient::new("account").await else {
        return;
    };
    let namespace = &patient.namespace;
    patient
        .plane
        .service_account(namespace, "feed")
        .await
        .unwrap();
    let account = format!("system:serviceaccount:{namespace}:feed");
    let found = patient.examine_as_admin(&["--as", &account]);
    assert_eq!(found.code, 1);
    found.assert_says(
        &format!("× {account} may update the lease {LEASE}"),
        &["verbs: [\"update\"]"],
    );
    let allowed = patient
        .plane
        .allow_lease(namespace, LEASE, Account::ServiceAccount("feed"));
    allowed.await.unwrap();
    let found = patient.examine_as_admin(&["--as", &account]);
    assert_eq!(found.code, 0, "{}", found.text);
    found.assert_says(&format!("✓ {account} may update the lease {LEASE}"), &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_look_at_other_things_is_told_so_and_nothing_is_called_broken() {
    let Some(patient) = Patient::new("narrow").await else {
        return;
    };
    let plane = patient.plane;
    plane
        .allow_lease(&patient.namespace, LEASE, Account::User("replica-0"))
        .await
        .unwrap();
    let kubeconfig = plane.kubeconfig("replica-0", None).unwrap();
    let _replica = patient.replica(&kubeconfig, "r0");
    let mut flags = vec!["--wait", "30s"];
    flags.extend(crate::patient::QUICK);
    let found = patient.examine(&kubeconfig, &flags);
    assert_eq!(found.code, 0, "{}", found.text);
    found.assert_says("? its holder is there", &["replica-0 may not look", "pods"]);
    found.assert_says("✓ it is renewed", &[]);
    found.assert_says("✓ its holder's name is used once", &[]);
    found.assert_says("✓ nobody else writes it", &[]);
    assert!(found.text.contains("Nothing is broken"), "{}", found.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_the_least_rights_all_is_well_and_it_says_what_more_would_give() {
    let Some(patient) = Patient::new("extras").await else {
        return;
    };
    let rules = vec![rule(&VERBS, None)];
    let allowed = patient
        .plane
        .allow(&patient.namespace, Account::User("replica-0"), rules);
    allowed.await.unwrap();
    let kubeconfig = patient.plane.kubeconfig("replica-0", None).unwrap();
    let found = patient.examine(&kubeconfig, &[]);
    for (gives, rule) in [
        ("Events tell who leads", r#"["events"], verbs: [create]"#),
        (
            "names an heir that stays",
            r#"["pods"], verbs: [get, list]"#,
        ),
        ("is succeeded at once", r#"["pods"], verbs: [watch]"#),
        (
            "right after a rollback",
            r#"["replicasets"], verbs: [list]"#,
        ),
        ("--label-role", r#"["pods"], verbs: [patch]"#),
        (
            "--leave-cordoned-node",
            r#"a ClusterRole's {apiGroups: [""], resources: ["nodes"], verbs: [get, watch]}"#,
        ),
    ] {
        let line = found.text.lines().find(|line| line.contains(gives));
        let line = line.unwrap_or_else(|| panic!("{}", found.text));
        assert!(line.contains("✓ optional: "), "{line}");
        assert!(
            line.contains("replica-0 may not") && line.contains(rule),
            "{line}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_may_not_ask_for_others_rights_is_told_so() {
    let Some(patient) = Patient::new("asking").await else {
        return;
    };
    let kubeconfig = patient.plane.kubeconfig("replica-0", None).unwrap();
    let found = patient.examine(&kubeconfig, &["--as", "ada"]);
    found.assert_says(
        &format!("? ada may update the lease {LEASE}"),
        &["replica-0 may not ask", "subjectaccessreviews"],
    );
    // Nothing may be read, either.
    found.assert_says("? it is held", &["the lease cannot be read", "403"]);
    assert_eq!(
        found.code, 0,
        "what is not known is not broken: {}",
        found.text
    );
}
