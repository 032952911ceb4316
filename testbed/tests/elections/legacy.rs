//! Locks on a ConfigMap and on an Endpoints, as client-go had them before there were Leases.

use std::fmt::Debug;
use std::path::PathBuf;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Endpoints};
use k8s_openapi::serde::de::DeserializeOwned;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Resource as Kind};
use serde_json::{Value, json};
use soloist_elector::core::election::Purpose;
use soloist_elector::kubernetes::{KubernetesStore, Options, Resource};
use soloist_elector::testing::{Disturb, Fixture, absent, held_by, in_time};
use soloist_elector::{LeaseStore, StoreError, clock};
use testbed::{ControlPlane, shared, skip};

use crate::disturb::disturb;
use crate::harness::{ADMIN, LEASE, Plane, SUITE, USER, elector, lead, quick};

const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";

pub(crate) trait Object:
    Kind<Scope = NamespaceResourceScope, DynamicType = ()>
    + Clone
    + Debug
    + DeserializeOwned
    + Send
    + Sync
    + 'static
{
    const RESOURCE: Resource;
}

impl Object for ConfigMap {
    const RESOURCE: Resource = Resource::ConfigMap;
}

impl Object for Endpoints {
    const RESOURCE: Resource = Resource::Endpoints;
}

/// A namespace with one such object in it.
pub(crate) struct Legacy<K: Object> {
    pub(crate) plane: Plane,
    pub(crate) namespace: String,
    admin: Api<K>,
}

impl<K: Object> Legacy<K> {
    pub(crate) async fn shared() -> Option<Self> {
        Some(Self::on(Plane::Shared(shared(SUITE).await?)).await)
    }

    pub(crate) async fn own() -> Option<Self> {
        if skip(SUITE) {
            return None;
        }
        let plane = ControlPlane::start().await.unwrap();
        Some(Self::on(Plane::Own(Box::new(plane))).await)
    }

    async fn on(plane: Plane) -> Self {
        let namespace = plane.namespace("legacy").await.unwrap();
        let admin = Api::namespaced(plane.admin_client().await.unwrap(), &namespace);
        Self {
            plane,
            namespace,
            admin,
        }
    }

    async fn connect(&self, kubeconfig: PathBuf) -> KubernetesStore {
        let options = Options::lease(LEASE)
            .resource(K::RESOURCE)
            .namespace(&self.namespace)
            .kubeconfig(kubeconfig);
        KubernetesStore::connect(options).await.unwrap()
    }

    /// client-go's record.
    pub(crate) async fn record(&self) -> Value {
        let object = self.admin.get(LEASE).await.unwrap();
        serde_json::from_str(&object.annotations()[LEADER]).unwrap()
    }

    async fn set_record(&self, record: &Value) {
        let patch = json!({"metadata": {"annotations": {LEADER: record.to_string()}}});
        let params = PatchParams::default();
        let patch = Patch::Merge(patch);
        self.admin.patch(LEASE, &params, &patch).await.unwrap();
    }
}

trait Annotated {
    fn annotations(&self) -> &std::collections::BTreeMap<String, String>;
}

impl<K: Object> Annotated for K {
    fn annotations(&self) -> &std::collections::BTreeMap<String, String> {
        self.meta().annotations.as_ref().unwrap()
    }
}

impl<K: Object> Fixture for Legacy<K> {
    type Store = KubernetesStore;

    fn store(&self) -> KubernetesStore {
        let connect = self.connect(self.plane.admin_kubeconfig().unwrap());
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(connect))
    }

    async fn delete(&self) {
        let params = DeleteParams::default();
        self.admin.delete(LEASE, &params).await.unwrap();
    }

    async fn set_holder(&self, holder: Option<&str>) {
        let mut record = self.record().await;
        record["holderIdentity"] = json!(holder.unwrap_or_default());
        self.set_record(&record).await;
    }

    async fn annotate(&self, text: &str) -> Result<(), &'static str> {
        let patch = json!({"metadata": {"annotations": {"note": text}}});
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        self.admin.patch(LEASE, &params, &patch).await.unwrap();
        Ok(())
    }

    async fn annotation(&self) -> Option<String> {
        let object = self.admin.get(LEASE).await.unwrap();
        object.annotations().get("note").cloned()
    }

    async fn back_up(&self) {
        self.plane.back_up_etcd().await.unwrap();
    }

    async fn set_back(&self) {
        self.plane.set_etcd_back().await.unwrap();
    }

    async fn disturbed(&self) -> Result<(KubernetesStore, Disturb), &'static str> {
        let link = self.plane.link().unwrap();
        let kubeconfig = self.plane.kubeconfig(ADMIN, Some(&link)).unwrap();
        Ok((self.connect(kubeconfig).await, disturb(link)))
    }

    async fn without_rights(&self) -> Result<KubernetesStore, &'static str> {
        let kubeconfig = self.plane.kubeconfig(USER, None).unwrap();
        Ok(self.connect(kubeconfig).await)
    }

    async fn compact(&self) -> Result<(), &'static str> {
        self.plane.compact_etcd().await.unwrap();
        Ok(())
    }
}

mod configmap {
    use super::{ConfigMap, Legacy};
    soloist_elector::conformance_tests!(Legacy::<ConfigMap>::shared().await, set_back: Legacy::<ConfigMap>::own().await);
}

mod endpoints {
    use super::{Endpoints, Legacy};
    soloist_elector::conformance_tests!(Legacy::<Endpoints>::shared().await, set_back: Legacy::<Endpoints>::own().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_record_is_written_as_client_go_reads_it() {
    let Some(lock) = Legacy::<ConfigMap>::shared().await else {
        return;
    };
    let store = lock.store();
    let record = held_by("a", 1, 1);
    let missing = absent();
    let write = store.write(&missing, &record, Purpose::Acquire);
    in_time(write).await.unwrap();
    let written = lock.record().await;
    assert_eq!(written["holderIdentity"], "a");
    assert_eq!(written["leaseDurationSeconds"], 15);
    assert_eq!(written["leaderTransitions"], 4);
    for time in ["acquireTime", "renewTime"] {
        let text = written[time].as_str().unwrap();
        assert!(text.starts_with("20") && text.ends_with('Z'), "{text}");
    }
    assert_eq!(written.as_object().unwrap().len(), 5, "{written}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_of_client_go_is_waited_out_and_what_else_is_in_the_object_stays() {
    let Some(lock) = Legacy::<ConfigMap>::shared().await else {
        return;
    };
    let theirs = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": LEASE, "labels": {"a": "b"}},
        "data": {"key": "value"},
    });
    let object = serde_json::from_value(theirs).unwrap();
    lock.admin
        .create(&Default::default(), &object)
        .await
        .unwrap();
    let seconds = quick().lease().get().as_secs();
    lock.set_record(&json!({
        "holderIdentity": "old_0f7c", "leaseDurationSeconds": seconds, "leaderTransitions": 7,
        "acquireTime": "2020-01-01T00:00:00Z", "renewTime": "2020-01-01T00:00:00Z",
    }))
    .await;
    let begun = clock::now();
    let ours = elector(lock.store(), "ours", quick());
    let term = lead(&ours).await;
    assert!(clock::now() >= begun + quick().lease().get());
    assert_eq!(term.number().get(), 8);
    let object = lock.admin.get(LEASE).await.unwrap();
    assert_eq!(object.data.unwrap()["key"], "value");
    assert_eq!(object.metadata.labels.unwrap()["a"], "b");
    term.finish();
    in_time(ours.shutdown()).await.unwrap();
    let released = lock.record().await;
    assert_eq!(released["holderIdentity"], "");
    assert_eq!(released["leaseDurationSeconds"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_right_is_told_for_the_object_that_is_meant() {
    let Some(lock) = Legacy::<Endpoints>::shared().await else {
        return;
    };
    let store = lock
        .connect(lock.plane.kubeconfig(USER, None).unwrap())
        .await;
    let Err(StoreError::Refused(told)) = in_time(store.read()).await else {
        panic!("not refused");
    };
    let told = told.to_string();
    assert!(
        told.contains("- apiGroups: [\"\"]\n  resources: [\"endpoints\"]"),
        "{told}"
    );
}
