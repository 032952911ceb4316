//! What tests need inside the cluster: namespaces, rights on one Lease, service accounts.

use std::{path::PathBuf, time::Duration};

use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        authentication::v1::{TokenRequest, TokenRequestSpec},
        authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
        core::v1::{Namespace, ServiceAccount},
        rbac::v1::{
            ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
        },
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, Client, Resource, api::PostParams};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::{Instant, sleep};

use crate::{ControlPlane, Error, Link};

const RBAC: &str = "rbac.authorization.k8s.io";

/// Who gets rights.
#[derive(Debug, Clone, Copy)]
pub enum Account<'a> {
    /// One of [`crate::Options::users`].
    User(&'a str),
    /// A service account of the same namespace.
    ServiceAccount(&'a str),
}

impl ControlPlane {
    /// Creates a namespace of its own for a test, and returns its name.
    pub async fn namespace(&self, prefix: &str) -> Result<String, Error> {
        let doing = "create a namespace";
        let namespace = Namespace {
            metadata: generated(&format!("{prefix}-")),
            ..Namespace::default()
        };
        let api: Api<Namespace> = Api::all(self.admin_client().await?);
        let created = api
            .create(&PostParams::default(), &namespace)
            .await
            .map_err(Error::kube(doing))?;
        Ok(created
            .metadata
            .name
            .expect("the API server names what it creates"))
    }

    /// Grants exactly what an elector needs: `create` on leases; `get`, `list`, `watch`, `update` on the one named
    /// Lease.
    pub async fn allow_lease(
        &self,
        namespace: &str,
        lease: &str,
        to: Account<'_>,
    ) -> Result<(), Error> {
        self.allow(namespace, to, lease_rules(lease)).await
    }

    /// Grants rights in a namespace, and waits until the API server applies them.
    pub async fn allow(
        &self,
        namespace: &str,
        to: Account<'_>,
        rules: Vec<PolicyRule>,
    ) -> Result<(), Error> {
        let client = self.admin_client().await?;
        let (subject, user) = to.subject(namespace);
        let role = Role {
            metadata: generated("testbed-"),
            rules: Some(rules.clone()),
        };
        let role = create(&client, namespace, "create a Role", &role).await?;
        let name = role
            .metadata
            .name
            .expect("the API server names what it creates");
        let role_ref = RoleRef {
            api_group: Some(RBAC.to_owned()),
            kind: "Role".to_owned(),
            name,
        };
        let subjects = Some(vec![subject]);
        let binding = RoleBinding {
            metadata: generated("testbed-"),
            role_ref,
            subjects,
        };
        create(&client, namespace, "create a RoleBinding", &binding).await?;
        for attributes in rules.iter().flat_map(|rule| attributes(namespace, rule)) {
            wait_until_allowed(&client, attributes, &user).await?;
        }
        Ok(())
    }

    /// Grants a user rights on what belongs to no namespace, and waits until the API server applies them.
    pub async fn allow_in_cluster(&self, user: &str, rules: Vec<PolicyRule>) -> Result<(), Error> {
        let client = self.admin_client().await?;
        let doing = "create a ClusterRole";
        let role = ClusterRole {
            metadata: generated("testbed-"),
            rules: Some(rules.clone()),
            ..ClusterRole::default()
        };
        let (how, roles) = (PostParams::default(), Api::all(client.clone()));
        let role: ClusterRole = roles
            .create(&how, &role)
            .await
            .map_err(Error::kube(doing))?;
        let name = role.metadata.name;
        let binding = ClusterRoleBinding {
            metadata: generated("testbed-"),
            role_ref: RoleRef {
                api_group: Some(RBAC.to_owned()),
                kind: "ClusterRole".to_owned(),
                name: name.expect("the API server names what it creates"),
            },
            subjects: Some(vec![Account::User(user).subject("").0]),
        };
        let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
        let bound = bindings.create(&how, &binding).await;
        bound.map_err(Error::kube("create a ClusterRoleBinding"))?;
        for attributes in rules.iter().flat_map(|rule| attributes("", rule)) {
            wait_until_allowed(&client, attributes, user).await?;
        }
        Ok(())
    }

    /// Creates a service account.
    pub async fn service_account(&self, namespace: &str, name: &str) -> Result<(), Error> {
        let account = ServiceAccount {
            metadata: named(name),
            ..ServiceAccount::default()
        };
        create(
            &self.admin_client().await?,
            namespace,
            "create a ServiceAccount",
            &account,
        )
        .await?;
        Ok(())
    }

    /// Asks the API server for a token of a service account, as the kubelet does for Pods.
    pub async fn service_account_token(
        &self,
        namespace: &str,
        name: &str,
        lifetime: Duration,
    ) -> Result<String, Error> {
        let api: Api<ServiceAccount> = Api::namespaced(self.admin_client().await?, namespace);
        let seconds = i64::try_from(lifetime.as_secs()).unwrap_or(i64::MAX);
        let spec = TokenRequestSpec {
            expiration_seconds: Some(seconds),
            ..TokenRequestSpec::default()
        };
        let request = TokenRequest {
            spec: Some(spec),
            ..TokenRequest::default()
        };
        let made = api
            .create_token_request(name, &PostParams::default(), &request)
            .await
            .map_err(Error::kube("request a token"))?;
        Ok(made
            .status
            .and_then(|status| status.token)
            .unwrap_or_default())
    }

    /// A kubeconfig with an hour's token of a service account.
    pub async fn service_account_kubeconfig(
        &self,
        namespace: &str,
        name: &str,
        via: Option<&Link>,
    ) -> Result<PathBuf, Error> {
        let token = self
            .service_account_token(namespace, name, Duration::from_secs(3600))
            .await?;
        self.write_kubeconfig(&account_user(namespace, name), &token, namespace, via)
    }
}

impl Account<'_> {
    /// The subject of a RoleBinding, and the user name that the API server sees.
    fn subject(self, namespace: &str) -> (Subject, String) {
        let subject =
            |kind: &str, name: &str, group: Option<&str>, namespace: Option<&str>| Subject {
                api_group: group.map(str::to_owned),
                kind: kind.to_owned(),
                name: name.to_owned(),
                namespace: namespace.map(str::to_owned),
            };
        match self {
            Self::User(name) => (subject("User", name, Some(RBAC), None), name.to_owned()),
            Self::ServiceAccount(name) => (
                subject("ServiceAccount", name, None, Some(namespace)),
                account_user(namespace, name),
            ),
        }
    }
}

fn account_user(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

fn generated(prefix: &str) -> ObjectMeta {
    ObjectMeta {
        generate_name: Some(prefix.to_owned()),
        ..ObjectMeta::default()
    }
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    }
}

fn lease_rules(lease: &str) -> Vec<PolicyRule> {
    let rule = |verbs: &[&str], names: Option<Vec<String>>| PolicyRule {
        api_groups: Some(vec!["coordination.k8s.io".to_owned()]),
        resources: Some(vec!["leases".to_owned()]),
        resource_names: names,
        verbs: verbs.iter().map(|&verb| verb.to_owned()).collect(),
        ..PolicyRule::default()
    };
    let one = Some(vec![lease.to_owned()]);
    vec![
        rule(&["create"], None),
        rule(&["get", "list", "watch", "update"], one),
    ]
}

async fn create<K>(
    client: &Client,
    namespace: &str,
    doing: &'static str,
    object: &K,
) -> Result<K, Error>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
    K: Clone + Serialize + DeserializeOwned + std::fmt::Debug,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    api.create(&PostParams::default(), object)
        .await
        .map_err(Error::kube(doing))
}

/// Everything that a rule allows, one by one.
fn attributes(namespace: &str, rule: &PolicyRule) -> Vec<ResourceAttributes> {
    let groups = rule.api_groups.clone().unwrap_or_default();
    let resources = rule.resources.clone().unwrap_or_default();
    let names = rule
        .resource_names
        .clone()
        .unwrap_or_else(|| vec![String::new()]);
    let mut all = Vec::new();
    for (group, resource) in groups
        .iter()
        .flat_map(|group| resources.iter().map(move |one| (group, one)))
    {
        let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
        for (verb, name) in rule
            .verbs
            .iter()
            .flat_map(|verb| names.iter().map(move |name| (verb, name)))
        {
            all.push(ResourceAttributes {
                group: Some(group.clone()),
                resource: Some(resource.to_owned()),
                subresource: Some(subresource.to_owned()),
                namespace: Some(namespace.to_owned()),
                verb: Some(verb.clone()),
                name: Some(name.clone()),
                ..ResourceAttributes::default()
            });
        }
    }
    all
}

/// The API server's authorizer learns of roles and bindings by watches of its own, a moment after their creation.
async fn wait_until_allowed(
    client: &Client,
    attributes: ResourceAttributes,
    user: &str,
) -> Result<(), Error> {
    const PATIENCE: Duration = Duration::from_secs(10);
    let awaited = format!(
        "{user}'s right to {:?} {:?}",
        attributes.verb, attributes.resource
    );
    let spec = SubjectAccessReviewSpec {
        user: Some(user.to_owned()),
        resource_attributes: Some(attributes),
        ..SubjectAccessReviewSpec::default()
    };
    let review = SubjectAccessReview {
        spec,
        ..SubjectAccessReview::default()
    };
    let api: Api<SubjectAccessReview> = Api::all(client.clone());
    let deadline = Instant::now() + PATIENCE;
    loop {
        let asked = api.create(&PostParams::default(), &review).await;
        let answer = asked.map_err(Error::kube("review a subject's access"))?;
        if answer.status.is_some_and(|status| status.allowed) {
            return Ok(());
        }
        if Instant::now() >= deadline {
            return Err(Error::Timeout {
                awaited,
                waited: PATIENCE,
            });
        }
        sleep(Duration::from_millis(10)).await;
    }
}
