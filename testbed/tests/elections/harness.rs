//! A Lease of its own for a test, and replicas that contend for it.

use std::ops::Deref;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::{Value, json};
use soloist_elector::core::election::{Config, Elected};
use soloist_elector::core::ids::{Identity, InstanceId};
use soloist_elector::core::timings::{Preset, Timings};
use soloist_elector::kubernetes::{KubernetesStore, Options};
use soloist_elector::testing::{Disturb, Fixture, in_time};
use soloist_elector::{Driver, DriverEvent, Elector, Term};
use testbed::{Account, ControlPlane, Link, shared, skip};

use crate::disturb::disturb;

pub(crate) const SUITE: &str = "elections on a real API server";
pub(crate) const LEASE: &str = "demo";
/// Who the replicas are if a test does not care.
pub(crate) const USER: &str = "replica-0";
/// Who may do everything.
pub(crate) const ADMIN: &str = "admin";
/// Who has no rights anywhere.
pub(crate) const NOBODY: &str = "replica-1";

/// Short enough to wait for, long enough for two busy cores.
pub(crate) fn quick() -> Timings {
    let ms = Duration::from_millis;
    Timings::try_new(ms(4000), ms(3000), ms(300)).unwrap()
}

pub(crate) fn standard() -> Timings {
    Timings::preset(Preset::Standard)
}

pub(crate) fn name(text: &str) -> Identity {
    Identity::try_new(text).unwrap()
}

pub(crate) enum Plane {
    Shared(&'static ControlPlane),
    Own(Box<ControlPlane>),
}

impl Deref for Plane {
    type Target = ControlPlane;

    fn deref(&self) -> &ControlPlane {
        match self {
            Self::Shared(plane) => plane,
            Self::Own(plane) => plane,
        }
    }
}

/// A namespace with one Lease in it that [`USER`] has the minimal rights on.
pub(crate) struct Cluster {
    pub(crate) plane: Plane,
    pub(crate) namespace: String,
    pub(crate) admin: Api<Lease>,
}

impl Cluster {
    /// On the control plane that all tests share; `None` where the suite is skipped.
    pub(crate) async fn shared() -> Option<Self> {
        Some(Self::on(Plane::Shared(shared(SUITE).await?)).await)
    }

    /// On a control plane of its own, to do harm to.
    pub(crate) async fn own() -> Option<Self> {
        if skip(SUITE) {
            return None;
        }
        let plane = ControlPlane::start().await.unwrap();
        Some(Self::on(Plane::Own(Box::new(plane))).await)
    }

    async fn on(plane: Plane) -> Self {
        let namespace = plane.namespace("election").await.unwrap();
        let admin = Api::namespaced(plane.admin_client().await.unwrap(), &namespace);
        let cluster = Self {
            plane,
            namespace,
            admin,
        };
        cluster.allow(USER).await;
        cluster
    }

    /// Gives a user the minimal rights.
    pub(crate) async fn allow(&self, user: &str) {
        self.plane
            .allow_lease(&self.namespace, LEASE, Account::User(user))
            .await
            .unwrap();
    }

    pub(crate) fn options(&self, user: &str, via: Option<&Link>) -> Options {
        let kubeconfig = self.plane.kubeconfig(user, via).unwrap();
        Options::lease(LEASE)
            .namespace(&self.namespace)
            .kubeconfig(kubeconfig)
    }

    pub(crate) async fn store_as(&self, user: &str) -> KubernetesStore {
        let options = self.options(user, None);
        KubernetesStore::connect(options).await.unwrap()
    }

    pub(crate) async fn elector(&self, identity: &str) -> Elector {
        elector(self.store_as(USER).await, identity, quick())
    }

    pub(crate) async fn elector_via(&self, link: &Link, identity: &str) -> Elector {
        let options = self.options(USER, Some(link));
        let store = KubernetesStore::connect(options).await.unwrap();
        elector(store, identity, quick())
    }

    /// A replica that leads and then vanishes without a word; what it was told.
    pub(crate) async fn leader_that_dies(&self, identity: &str) -> Elected {
        let config = Config {
            identity: name(identity),
            instance: InstanceId::from_random(0xdead),
            pod: None,
            timings: quick(),
            seed: 1,
        };
        let (handle, mut events) = Driver::spawn(self.store_as(USER).await, config).unwrap();
        handle.stand();
        in_time(async {
            loop {
                if let Some(DriverEvent::Elected(elected)) = events.recv().await {
                    return elected;
                }
            }
        })
        .await
    }

    pub(crate) async fn patch(&self, patch: Value) {
        let params = PatchParams::default();
        let patch = Patch::Merge(patch);
        self.admin.patch(LEASE, &params, &patch).await.unwrap();
    }

    pub(crate) async fn lease(&self) -> Lease {
        self.admin.get(LEASE).await.unwrap()
    }
}

impl Fixture for Cluster {
    type Store = KubernetesStore;

    fn store(&self) -> KubernetesStore {
        let connect = self.store_as(USER);
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(connect))
    }

    async fn delete(&self) {
        let params = DeleteParams::default();
        self.admin.delete(LEASE, &params).await.unwrap();
    }

    async fn set_holder(&self, holder: Option<&str>) {
        let holder = holder.unwrap_or_default();
        self.patch(json!({"spec": {"holderIdentity": holder}}))
            .await;
    }

    async fn annotate(&self, text: &str) -> Result<(), &'static str> {
        self.patch(json!({"metadata": {"annotations": {"note": text}}}))
            .await;
        Ok(())
    }

    async fn annotation(&self) -> Option<String> {
        let annotations = self.lease().await.metadata.annotations?;
        annotations.get("note").cloned()
    }

    async fn back_up(&self) {
        self.plane.back_up_etcd().await.unwrap();
    }

    async fn set_back(&self) {
        self.plane.set_etcd_back().await.unwrap();
    }

    async fn disturbed(&self) -> Result<(KubernetesStore, Disturb), &'static str> {
        let link = self.plane.link().unwrap();
        let options = self.options(USER, Some(&link));
        let store = KubernetesStore::connect(options).await.unwrap();
        Ok((store, disturb(link)))
    }

    async fn without_rights(&self) -> Result<KubernetesStore, &'static str> {
        Ok(self.store_as(NOBODY).await)
    }

    async fn compact(&self) -> Result<(), &'static str> {
        self.plane.compact_etcd().await.unwrap();
        Ok(())
    }
}

pub(crate) fn elector(store: KubernetesStore, identity: &str, timings: Timings) -> Elector {
    Elector::builder(store)
        .identity(name(identity))
        .timings(timings)
        .spawn()
        .unwrap()
}

pub(crate) async fn lead(elector: &Elector) -> Term {
    in_time(elector.lead()).await.unwrap()
}

/// Waits until this replica has seen that leader.
pub(crate) async fn sees(elector: &Elector, leader: &str) {
    let mut leadership = elector.leadership();
    let seen = leadership.wait_for(|l| l.leader == Some(name(leader)));
    in_time(seen).await.unwrap();
}

/// A standby that has seen who leads, and what it waits for.
pub(crate) struct Standby(tokio::task::JoinHandle<(Term, Elector)>);

impl Standby {
    pub(crate) async fn beside(elector: Elector, leader: &str) -> Self {
        let mut leadership = elector.leadership();
        let waiting = tokio::spawn(async move { (elector.lead().await.unwrap(), elector) });
        let seen = leadership.wait_for(|l| l.leader == Some(name(leader)));
        in_time(seen).await.unwrap();
        Self(waiting)
    }

    pub(crate) fn still_waits(&self) -> bool {
        !self.0.is_finished()
    }

    pub(crate) async fn leads(self) -> (Term, Elector) {
        in_time(self.0).await.unwrap()
    }
}
