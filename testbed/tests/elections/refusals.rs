//! An API server that will not have us says so in words that help.

use std::fs;
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use soloist_elector::core::election::{Answer, Purpose};
use soloist_elector::kubernetes::{KubernetesStore, Options};
use soloist_elector::testing::{Fixture, absent, held_by, in_time};
use soloist_elector::{LeaseStore, StoreError, clock};
use testbed::Account;

use crate::harness::{Cluster, LEASE, USER, elector, lead, quick};

async fn read_error(store: &KubernetesStore) -> StoreError {
    in_time(store.read()).await.unwrap_err()
}

async fn create(store: &KubernetesStore) -> Result<(), StoreError> {
    let record = held_by("a", 1, 1);
    let missing = absent();
    let write = store.write(&missing, &record, Purpose::Acquire);
    in_time(write).await.map(drop)
}

fn assert_says(error: &StoreError, parts: &[&str]) {
    let text = error.to_string();
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_permission_is_named_with_the_rule_that_would_give_it() {
    let Some(cluster) = Cluster::shared().await else {
        return;
    };
    let (plane, namespace) = (&cluster.plane, &cluster.namespace);
    plane.service_account(namespace, "worker").await.unwrap();
    let kubeconfig = plane
        .service_account_kubeconfig(namespace, "worker", None)
        .await
        .unwrap();
    let options = Options::lease(LEASE)
        .namespace(namespace)
        .kubeconfig(kubeconfig);
    let store = KubernetesStore::connect(options).await.unwrap();
    let user = format!("system:serviceaccount:{namespace}:worker");

    let error = read_error(&store).await;
    assert_eq!(error.answer(), Answer::Refused);
    let who = format!("{user} may not \"list\" leases in the namespace {namespace}");
    let rule = "- apiGroups: [\"coordination.k8s.io\"]\n  resources: [\"leases\"]\n  resourceNames: [\"demo\"]\n  verbs: [\"list\"]";
    assert_says(&error, &[&who, rule]);
    let error = create(&store).await.unwrap_err();
    let who = format!("{user} may not \"create\" leases");
    assert_says(&error, &[&who, "verbs: [\"create\"]"]);

    // An elector says the same, and goes on as soon as it may.
    let waiting = elector(store, "worker", quick());
    let mut leadership = waiting.leadership();
    let leading = tokio::spawn(async move { (lead(&waiting).await, waiting) });
    let refused = |trouble: &Option<StoreError>| matches!(trouble, Some(StoreError::Refused(_)));
    in_time(leadership.wait_for(|l| refused(&l.trouble)))
        .await
        .unwrap();
    plane
        .allow_lease(namespace, LEASE, Account::ServiceAccount("worker"))
        .await
        .unwrap();
    let (term, _elector) = in_time(leading).await.unwrap();
    assert!(term.is_valid());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_namespace_is_named() {
    let Some(cluster) = Cluster::shared().await else {
        return;
    };
    let options = Options::lease(LEASE)
        .namespace("nowhere")
        .kubeconfig(cluster.plane.admin_kubeconfig().unwrap());
    let store = KubernetesStore::connect(options).await.unwrap();
    let error = create(&store).await.unwrap_err();
    assert_eq!(error.answer(), Answer::Refused);
    assert_says(&error, &["kubectl create namespace nowhere"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_token_a_dead_port_and_an_unknown_authority_are_told_apart() {
    let Some(cluster) = Cluster::shared().await else {
        return;
    };
    let good = cluster.plane.kubeconfig(USER, None).unwrap();
    let text = fs::read_to_string(&good).unwrap();
    let line = |word: &str| text.lines().find(|l| l.contains(word)).unwrap().to_owned();
    let folder = tempfile::tempdir().unwrap();
    let store = async |file: &str, changed: String| {
        let path = folder.path().join(file);
        fs::write(&path, changed).unwrap();
        let options = Options::lease(LEASE).namespace("x").kubeconfig(path);
        KubernetesStore::connect(options).await.unwrap()
    };

    let token = line("token:");
    let nonsense = format!("{}: nonsense", token.split(':').next().unwrap());
    let error = read_error(&store("token", text.replace(&token, &nonsense)).await).await;
    assert_eq!(error.answer(), Answer::Refused);
    assert_says(&error, &["401"]);

    let port = format!(":{}", cluster.plane.address().port());
    let error = read_error(&store("port", text.replace(&port, ":1")).await).await;
    assert_eq!(error.answer(), Answer::Unavailable);
    assert_says(&error, &["cannot reach the API server", "127.0.0.1:1"]);

    let authority = line("certificate-authority-data:");
    let error = read_error(&store("ca", text.replace(&authority, "")).await).await;
    assert_eq!(error.answer(), Answer::Unavailable);
    assert_says(&error, &["certificate"]);
}

/// Waits until the lease cannot be created any more.
async fn refused(cluster: &Cluster, store: &KubernetesStore) -> StoreError {
    in_time(async {
        loop {
            match create(store).await {
                Err(error @ StoreError::Refused(_)) => return error,
                Ok(()) => cluster.delete().await,
                Err(error) => panic!("{error}"),
            }
            clock::sleep(Duration::from_millis(100)).await.unwrap();
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_is_told_apart_from_a_missing_right() {
    let Some(cluster) = Cluster::shared().await else {
        return;
    };
    let client = cluster.plane.admin_client().await.unwrap();
    let quotas: kube::Api<ResourceQuota> = kube::Api::namespaced(client, &cluster.namespace);
    let none = json!({"count/leases.coordination.k8s.io": "0"});
    let quota = json!({"metadata": {"name": "few"}, "spec": {"hard": none}});
    let quota: ResourceQuota = serde_json::from_value(quota).unwrap();
    let params = PostParams::default();
    quotas.create(&params, &quota).await.unwrap();
    // As the controller does, of which there is none here.
    let status = Patch::Merge(json!({"status": {"hard": none, "used": none}}));
    let params = PatchParams::default();
    quotas.patch_status("few", &params, &status).await.unwrap();
    let store = cluster.store_as(USER).await;
    let error = refused(&cluster, &store).await;
    assert_says(&error, &["quota", "kubectl describe resourcequota"]);
    assert!(!error.to_string().contains("Add this rule"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_admission_policy_is_told_apart_from_a_missing_right() {
    let Some(cluster) = Cluster::shared().await else {
        return;
    };
    let client = cluster.plane.admin_client().await.unwrap();
    let name = format!("deny-{}", cluster.namespace);
    let policy = json!({
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": cluster.namespace}},
                "resourceRules": [{
                    "apiGroups": ["coordination.k8s.io"], "apiVersions": ["v1"],
                    "operations": ["CREATE"], "resources": ["leases"],
                }],
            },
            "validations": [{"expression": "false", "message": "not here", "reason": "Forbidden"}],
        },
    });
    let binding = json!({
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    });
    let policies: kube::Api<ValidatingAdmissionPolicy> = kube::Api::all(client.clone());
    let policy = serde_json::from_value(policy).unwrap();
    policies
        .create(&PostParams::default(), &policy)
        .await
        .unwrap();
    let bindings: kube::Api<ValidatingAdmissionPolicyBinding> = kube::Api::all(client);
    let binding = serde_json::from_value(binding).unwrap();
    bindings
        .create(&PostParams::default(), &binding)
        .await
        .unwrap();
    let store = cluster.store_as(USER).await;
    let error = refused(&cluster, &store).await;
    assert_says(
        &error,
        &["not here", "admission policy", "No right is missing"],
    );
    assert!(!error.to_string().contains("Add this rule"), "{error}");
}
