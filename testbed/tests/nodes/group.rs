//! A Deployment of soloist in a namespace of its own that enforces the restricted Pod security standard.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    time::{Duration, Instant},
};

use k8s_openapi::api::{
    apps::v1::Deployment,
    coordination::v1::Lease,
    core::v1::{self as core, Namespace, PersistentVolume, PersistentVolumeClaim, Pod},
    rbac::v1::PolicyRule,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, LogParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::{Account, Cluster, ClusterOptions, Node, skip_nodes};
use tokio::{
    sync::{Mutex, MutexGuard, OnceCell},
    time::sleep,
};

use crate::{PATIENCE, SUITE, images, journal, journal::Event};

pub(crate) const LEASE: &str = "demo";
pub(crate) const ACCOUNT: &str = "soloist";
const LOOK: Duration = Duration::from_millis(20);

/// The one cluster of this suite. It ends with the test process.
async fn cluster() -> &'static Cluster {
    static CLUSTER: OnceCell<Cluster> = OnceCell::const_new();
    let start = || async {
        let images = tokio::task::spawn_blocking(images::all).await.unwrap();
        let mut options = ClusterOptions {
            patience: PATIENCE,
            ..ClusterOptions::default()
        };
        options.plane.patience = PATIENCE;
        let cluster = Cluster::start_with(options)
            .await
            .unwrap_or_else(|error| panic!("{error}"));
        for image in images {
            cluster.import_image(image).unwrap();
        }
        cluster
    };
    CLUSTER.get_or_init(start).await
}

/// What happens to a node happens to all Pods on it, and what takes all of the machine's time to everything: one at a time.
pub(crate) static ALONE: Mutex<()> = Mutex::const_new(());

pub(crate) struct Group {
    pub cluster: &'static Cluster,
    pub client: Client,
    pub namespace: String,
    journal: TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Group {
    /// The namespace, an account with the rights of a replica, and a volume for the journal; no Pods yet.
    pub(crate) async fn create(prefix: &str) -> Option<Self> {
        if skip_nodes(SUITE) {
            return None;
        }
        let alone = ALONE.lock().await;
        let cluster = cluster().await;
        let client = cluster.plane().admin_client().await.unwrap();
        cluster.wait_until_ready(PATIENCE).await.unwrap();
        clear(&client).await;
        let namespace = cluster.plane().namespace(prefix).await.unwrap();
        let group = Self {
            cluster,
            client,
            namespace,
            journal: tempfile::tempdir().unwrap(),
            _alone: alone,
        };
        fs::set_permissions(group.journal.path(), fs::Permissions::from_mode(0o777)).unwrap();
        group.restrict().await;
        group.make_volume().await;
        let plane = cluster.plane();
        plane
            .service_account(&group.namespace, ACCOUNT)
            .await
            .unwrap();
        plane
            .service_account(&group.namespace, "without-rights")
            .await
            .unwrap();
        let account = Account::ServiceAccount(ACCOUNT);
        plane
            .allow_lease(&group.namespace, LEASE, account)
            .await
            .unwrap();
        Some(group)
    }

    /// More rights for the replicas.
    pub(crate) async fn allow(&self, group: &str, resource: &str, verbs: &[&str]) {
        let rule = PolicyRule {
            api_groups: Some(vec![group.into()]),
            resources: Some(vec![resource.into()]),
            verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
            ..PolicyRule::default()
        };
        let account = Account::ServiceAccount(ACCOUNT);
        let allowed = self
            .cluster
            .plane()
            .allow(&self.namespace, account, vec![rule]);
        allowed.await.unwrap();
    }

    async fn restrict(&self) {
        let api: Api<Namespace> = Api::all(self.client.clone());
        let labels = json!({ "metadata": { "labels": { "pod-security.kubernetes.io/enforce": "restricted" } } });
        api.patch(
            &self.namespace,
            &PatchParams::default(),
            &Patch::Merge(labels),
        )
        .await
        .unwrap();
    }

    /// A claim, because the restricted standard has no host paths. Both nodes have this folder.
    async fn make_volume(&self) {
        let volume = json!({
            "metadata": { "name": self.namespace },
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "capacity": { "storage": "1Mi" },
                "hostPath": { "path": self.journal.path() },
                "claimRef": { "name": "journal", "namespace": self.namespace },
                "storageClassName": "none",
            }
        });
        let claim = json!({
            "metadata": { "name": "journal" },
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "resources": { "requests": { "storage": "1Mi" } },
                "storageClassName": "none",
                "volumeName": self.namespace,
            }
        });
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        let claims: Api<PersistentVolumeClaim> =
            Api::namespaced(self.client.clone(), &self.namespace);
        volumes
            .create(&PostParams::default(), &from(volume))
            .await
            .unwrap();
        claims
            .create(&PostParams::default(), &from(claim))
            .await
            .unwrap();
    }

    /// Three Pods whose child has these words, and with these timings; returns the child's first start, once all Pods run.
    pub(crate) async fn start_three(&self, words: &[&str], preset: &str) -> Event {
        let mut spec = pod_spec();
        let container = &mut spec["containers"][0];
        let arguments = container["args"].as_array_mut().unwrap();
        arguments.extend(words.iter().map(|word| json!(word)));
        let variables = container["env"].as_array_mut().unwrap();
        variables.push(json!({ "name": "SOLOIST_PRESET", "value": preset }));
        self.deploy(3, spec).await;
        self.await_ready(3).await;
        self.await_event(Event::is_start).await
    }

    pub(crate) async fn deploy(&self, replicas: u8, spec: Value) {
        let labels = json!({ "app": "demo" });
        let deployment = json!({
            "metadata": { "name": "demo" },
            "spec": {
                "replicas": replicas,
                "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels }, "spec": spec },
            }
        });
        let created = self
            .deployments()
            .create(&PostParams::default(), &from(deployment))
            .await;
        created.unwrap();
    }

    pub(crate) fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Waits until so many Pods of the newest template are available, and no others are there.
    pub(crate) async fn await_ready(&self, replicas: i32) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let deployment = self.deployments().get("demo").await.unwrap();
            let status = deployment.status.unwrap_or_default();
            let counts = [
                status.replicas,
                status.updated_replicas,
                status.available_replicas,
            ];
            let seen = status.observed_generation >= deployment.metadata.generation;
            if seen && counts == [Some(replicas); 3] {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{counts:?} of {replicas}: {}",
                self.story().await
            );
            sleep(LOOK).await;
        }
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        journal::read(self.journal.path())
    }

    pub(crate) async fn await_event(&self, is_it: impl Fn(&Event) -> bool) -> Event {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(event) = self.events().into_iter().find(&is_it) {
                return event;
            }
            assert!(
                Instant::now() < deadline,
                "it never came: {}",
                self.story().await
            );
            sleep(LOOK).await;
        }
    }

    /// The last child's Pod.
    pub(crate) fn leader(&self) -> String {
        let last = self.events().into_iter().rfind(Event::is_start);
        last.expect("a child has started").identity
    }

    /// Waits until somebody like this holds the lease, and says who.
    pub(crate) async fn await_holder(&self, is_it: impl Fn(&str) -> bool) -> String {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let lease = leases.get_opt(LEASE).await.unwrap();
            let holder = lease
                .and_then(|lease| lease.spec?.holder_identity)
                .unwrap_or_default();
            if !holder.is_empty() && is_it(&holder) {
                return holder;
            }
            assert!(
                Instant::now() < deadline,
                "{holder:?} holds: {}",
                self.story().await
            );
            sleep(LOOK).await;
        }
    }

    /// Waits until the lease has been written so many times, and says who holds it then.
    pub(crate) async fn await_renewals(&self, times: usize) -> String {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
        let deadline = Instant::now() + PATIENCE;
        let mut versions = std::collections::BTreeSet::new();
        loop {
            let lease = leases.get(LEASE).await.unwrap();
            versions.insert(lease.resource_version());
            if versions.len() > times {
                return lease.spec.unwrap().holder_identity.unwrap();
            }
            assert!(
                Instant::now() < deadline,
                "nobody renews: {}",
                self.story().await
            );
            sleep(LOOK).await;
        }
    }

    pub(crate) async fn node_of(&self, pod: &str) -> &'static Node {
        let name = self
            .pods()
            .get(pod)
            .await
            .unwrap()
            .spec
            .unwrap()
            .node_name
            .unwrap();
        self.cluster.node(&name).unwrap()
    }

    /// The id of the Pod's one container.
    pub(crate) async fn container_of(&self, pod: &str) -> String {
        let status = self.pods().get(pod).await.unwrap().status.unwrap();
        status.container_statuses.unwrap()[0]
            .container_id
            .clone()
            .unwrap()
    }

    pub(crate) async fn await_log(&self, pod: &str, text: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let log = self
                .pods()
                .logs(pod, &LogParams::default())
                .await
                .unwrap_or_default();
            if log.contains(text) {
                return log;
            }
            assert!(
                Instant::now() < deadline,
                "no {text:?} in {log}\n{}",
                self.story().await
            );
            sleep(LOOK).await;
        }
    }

    /// Never two, and the time between a fault and the next start; then the Pods go.
    pub(crate) async fn finish(self, what: &str, since: Duration, next: &Event) {
        eprintln!(
            "{what}: {:.2} s without a child",
            next.at.saturating_sub(since).as_secs_f64()
        );
        self.end().await;
    }

    /// Never two, and the first child all the time; then the Pods go.
    pub(crate) async fn finish_without_a_gap(self, what: &str, first: &Event) {
        let starts = self.events().into_iter().filter(Event::is_start);
        let tokens: Vec<u64> = starts.map(|event| event.token).collect();
        assert_eq!(tokens, [first.token], "{}", self.story().await);
        eprintln!("{what}: 0.00 s without a child");
        self.end().await;
    }

    pub(crate) async fn end(self) {
        self.assert_never_two();
        let api: Api<Namespace> = Api::all(self.client.clone());
        api.delete(&self.namespace, &DeleteParams::default())
            .await
            .unwrap();
    }

    pub(crate) fn assert_never_two(&self) {
        let overlaps = journal::overlaps(self.journal.path());
        assert!(
            overlaps.is_empty(),
            "two at once: {overlaps}{:#?}",
            self.events()
        );
    }

    /// All that is known, for a failure.
    async fn story(&self) -> String {
        let mut story = format!("{:#?}\n", self.events());
        let listed = self.pods().list(&ListParams::default()).await;
        for pod in listed.into_iter().flatten() {
            let name = pod.name_any();
            let log = self
                .pods()
                .logs(&name, &LogParams::default())
                .await
                .unwrap_or_default();
            let status = serde_json::to_string(&pod.status).unwrap_or_default();
            let before = LogParams {
                previous: true,
                ..LogParams::default()
            };
            let before = self.pods().logs(&name, &before).await.unwrap_or_default();
            story += &format!("--- {name}: {status}\n{before}\n-\n{log}\n");
        }
        let events: Api<core::Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let listed = events.list(&ListParams::default()).await;
        for event in listed.into_iter().flatten() {
            let (object, message) = (event.involved_object.name, event.message);
            story += &format!("{object:?} {:?} {message:?}\n", event.reason);
        }
        story
    }
}

impl Drop for Group {
    /// A test that fails leaves the cluster to the next one: connected, and going on.
    fn drop(&mut self) {
        for node in self.cluster.nodes() {
            let _ = (node.thaw(), self.cluster.heal(node), node.start_kubelet());
            if std::thread::panicking() {
                let _ = node.shut_down(false);
            }
        }
    }
}

/// Ends what the test before has left: a Pod that is still ending would be drained, counted or cut off with the next one's.
async fn clear(client: &Client) {
    let deployments: Api<Deployment> = Api::all(client.clone());
    for deployment in deployments.list(&ListParams::default()).await.unwrap() {
        let namespace = deployment.namespace().unwrap();
        let api: Api<Deployment> = Api::namespaced(client.clone(), &namespace);
        let name = deployment.name_any();
        let _ = api.delete(&name, &DeleteParams::background()).await;
    }
    let all: Api<Pod> = Api::all(client.clone());
    let deadline = Instant::now() + PATIENCE;
    loop {
        let pods = all.list(&ListParams::default()).await.unwrap().items;
        if pods.is_empty() {
            return;
        }
        for pod in &pods {
            let api: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap());
            let soon = DeleteParams::default().grace_period(1);
            let _ = api.delete(&pod.name_any(), &soon).await;
        }
        assert!(Instant::now() < deadline, "these do not end: {pods:?}");
        sleep(Duration::from_millis(200)).await;
    }
}

/// Non-root, a read-only root, no capabilities, no /tmp; spread over the nodes.
pub(crate) fn pod_spec() -> Value {
    let field = |name: &str, path: &str| json!({ "name": name, "valueFrom": { "fieldRef": { "fieldPath": path } } });
    json!({
        "serviceAccountName": ACCOUNT,
        "securityContext": {
            "runAsNonRoot": true,
            "runAsUser": 65532,
            "seccompProfile": { "type": "RuntimeDefault" },
        },
        "topologySpreadConstraints": [{
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "DoNotSchedule",
            "nodeTaintsPolicy": "Honor",
            "labelSelector": { "matchLabels": { "app": "demo" } },
        }],
        "containers": [{
            "name": "demo",
            "image": images::BOTH,
            "imagePullPolicy": "Never",
            "command": ["/soloist", "run", "--name", LEASE, "--"],
            "args": ["/child", "/journal"],
            "env": [field("POD_NAME", "metadata.name"), field("POD_NAMESPACE", "metadata.namespace"),
                field("POD_UID", "metadata.uid")],
            "securityContext": container_security(),
            "volumeMounts": [{ "name": "journal", "mountPath": "/journal" }],
        }],
        "volumes": [{ "name": "journal", "persistentVolumeClaim": { "claimName": "journal" } }],
    })
}

fn container_security() -> Value {
    json!({
        "allowPrivilegeEscalation": false,
        "capabilities": { "drop": ["ALL"] },
        "readOnlyRootFilesystem": true,
    })
}

fn from<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

pub(crate) fn now() -> Duration {
    std::time::UNIX_EPOCH.elapsed().unwrap()
}
