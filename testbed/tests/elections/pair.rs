//! An old lock and a Lease at once.

use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Endpoints};
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use soloist_elector::core::election::Purpose;
use soloist_elector::kubernetes::{Options, PairStore};
use soloist_elector::testing::{Disturb, Disturbance, Fixture, absent, held_by, in_time};
use soloist_elector::{LeaseStore, StoreError};
use testbed::Account;

use crate::disturb::disturb;
use crate::harness::{ADMIN, LEASE, USER};
use crate::legacy::{Legacy, Object};

/// An old lock beside a Lease.
struct Both<K: Object> {
    legacy: Legacy<K>,
    lease: Api<Lease>,
}

impl<K: Object> Both<K> {
    async fn with(legacy: Option<Legacy<K>>) -> Option<Self> {
        let legacy = legacy?;
        let client = legacy.plane.admin_client().await.unwrap();
        Some(Self {
            lease: Api::namespaced(client, &legacy.namespace),
            legacy,
        })
    }

    async fn shared() -> Option<Self> {
        Self::with(Legacy::shared().await).await
    }

    async fn own() -> Option<Self> {
        Self::with(Legacy::own().await).await
    }

    async fn connect(&self, kubeconfig: PathBuf) -> PairStore {
        let options = Options::lease(LEASE)
            .resource(K::RESOURCE)
            .namespace(&self.legacy.namespace)
            .kubeconfig(kubeconfig);
        PairStore::connect(options).await.unwrap()
    }
}

impl<K: Object> Fixture for Both<K> {
    type Store = PairStore;

    fn store(&self) -> PairStore {
        let connect = self.connect(self.legacy.plane.admin_kubeconfig().unwrap());
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(connect))
    }

    async fn delete(&self) {
        self.legacy.delete().await;
        let params = DeleteParams::default();
        self.lease.delete(LEASE, &params).await.unwrap();
    }

    async fn set_holder(&self, holder: Option<&str>) {
        self.legacy.set_holder(holder).await;
        let patch = json!({"spec": {"holderIdentity": holder.unwrap_or_default()}});
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        self.lease.patch(LEASE, &params, &patch).await.unwrap();
    }

    async fn annotate(&self, text: &str) -> Result<(), &'static str> {
        self.legacy.annotate(text).await?;
        let patch = json!({"metadata": {"annotations": {"note": text}}});
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        self.lease.patch(LEASE, &params, &patch).await.unwrap();
        Ok(())
    }

    async fn annotation(&self) -> Option<String> {
        let annotations = self.lease.get(LEASE).await.unwrap().metadata.annotations;
        let on_lease = annotations?.get("note").cloned();
        let on_legacy = self.legacy.annotation().await;
        on_lease.filter(|on_lease| Some(on_lease) == on_legacy.as_ref())
    }

    async fn back_up(&self) {
        self.legacy.back_up().await;
    }

    async fn set_back(&self) {
        self.legacy.set_back().await;
    }

    async fn disturbed(&self) -> Result<(PairStore, Disturb), &'static str> {
        let link = self.legacy.plane.link().unwrap();
        let kubeconfig = self.legacy.plane.kubeconfig(ADMIN, Some(&link)).unwrap();
        Ok((self.connect(kubeconfig).await, disturb(link)))
    }

    async fn without_rights(&self) -> Result<PairStore, &'static str> {
        let kubeconfig = self.legacy.plane.kubeconfig(USER, None).unwrap();
        Ok(self.connect(kubeconfig).await)
    }

    async fn compact(&self) -> Result<(), &'static str> {
        self.legacy.compact().await
    }
}

/// All but two: an edit or a deletion of both by hand is two changes, and an answer may be lost when the first of the two was written.
macro_rules! pair_conformance {
    ($($module:ident: $kind:ident),*) => { $(
        mod $module {
            use super::{Both, $kind};
            soloist_elector::conformance_tests!(
                Both::<$kind>::own().await;
                a_store_that_was_set_back_can_be_written_again,
                of_two_states_with_one_version_the_present_one_is_written_back,
            );
            soloist_elector::conformance_tests!(
                Both::<$kind>::shared().await;
                absence_has_a_version,
                creates_only_what_is_absent,
                one_of_thirty_creators_wins,
                one_of_thirty_writers_wins,
                a_stale_write_loses,
                a_write_over_an_unseen_edit_loses,
                the_version_grows_across_deletion,
                a_record_survives_being_written_and_read,
                a_release_is_read_as_one,
                an_order_leaves_the_record_as_it_is,
                what_others_keep_beside_the_record_survives_a_write,
                the_watch_never_skips,
                thirty_watches_see_a_release,
                a_read_shows_what_a_silent_watch_did_not,
                a_slow_writer_wins_or_loses_like_any_other,
                what_is_refused_is_said_with_what_to_do,
                a_watch_of_what_was_compacted_away_never_skips,
            );
        }
    )* };
}

pair_conformance! { configmap_and_lease: ConfigMap, endpoints_and_lease: Endpoints }

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_whose_first_answer_is_lost_has_not_landed_and_the_next_one_does() {
    let Some(both) = Both::<ConfigMap>::shared().await else {
        return;
    };
    let (store, disturb) = both.disturbed().await.unwrap();
    let [first, renewal, last] = [1, 2, 3].map(|write| held_by("a", 1, write));
    let missing = absent();
    let write = store.write(&missing, &first, Purpose::Acquire);
    let created = in_time(write).await.unwrap();
    disturb(Disturbance::LostAnswers);
    let renewed = store.write(&created, &renewal, Purpose::Renew);
    let renewed = tokio::time::timeout(Duration::from_secs(1), renewed).await;
    assert!(renewed.is_err(), "{renewed:?}");
    disturb(Disturbance::None);
    store.abandon_connections();
    let found = in_time(store.read()).await.unwrap();
    assert!(found.version > created.version);
    let shown = found.record.clone().unwrap().signature.unwrap();
    assert_eq!(shown.write.get(), 1, "it reached the old lock only");
    let next = store.write(&found, &last, Purpose::Renew);
    let next = in_time(next).await.unwrap();
    assert_eq!(in_time(store.read()).await.unwrap().version, next.version);
}

/// Else whoever knows the old lock only would wait for it again and again.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_got_the_old_lock_only_is_taken_back() {
    let Some(both) = Both::<ConfigMap>::shared().await else {
        return;
    };
    let rule = PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec!["configmaps".into()]),
        verbs: ["create", "list", "watch", "update"]
            .map(str::to_owned)
            .into(),
        ..PolicyRule::default()
    };
    let readable = PolicyRule {
        api_groups: Some(vec!["coordination.k8s.io".into()]),
        resources: Some(vec!["leases".into()]),
        verbs: vec!["list".into()],
        ..PolicyRule::default()
    };
    let namespace = &both.legacy.namespace;
    let allowed = both
        .legacy
        .plane
        .allow(namespace, Account::User(USER), vec![rule, readable]);
    allowed.await.unwrap();
    let store = both.without_rights().await.unwrap();
    let found = in_time(store.read()).await.unwrap();
    assert_eq!(found.record, None);
    let claim = held_by("a", 1, 1);
    let missing = absent();
    let write = store.write(&missing, &claim, Purpose::Acquire);
    let Err(StoreError::Refused(told)) = in_time(write).await else {
        panic!("not refused");
    };
    assert!(told.to_string().contains("leases"), "{told}");
    let record = both.legacy.record().await;
    assert_eq!(record["holderIdentity"], "");
    assert_eq!(record["leaseDurationSeconds"], 1);
}
