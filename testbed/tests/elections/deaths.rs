//! A holder is succeeded at once when its Pod's status proves that its own container has ended, and only then.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use soloist_elector::core::election::{Claim, Config, Elected};
use soloist_elector::core::ids::{InstanceId, PodUid};
use soloist_elector::core::timings::Timings;
use soloist_elector::kubernetes::termination_message;
use soloist_elector::testing::in_time;
use soloist_elector::{Driver, DriverEvent, clock};
use testbed::Account;

use crate::harness::{Cluster, USER, name};

const DEAD: InstanceId = InstanceId::from_random(0xdead);
const STANDBY: InstanceId = InstanceId::from_random(0xbeef);
/// Of a lease of 10 s.
const AT_ONCE: Duration = Duration::from_secs(4);
const SUCCESSOR: &str = "replica-1";

struct Holder {
    cluster: Cluster,
    pods: Api<Pod>,
    uid: String,
    elected: Elected,
}

impl Holder {
    /// One that leads from a Pod, and vanishes without a word.
    async fn that_vanishes(signs_its_pod: bool) -> Option<Self> {
        let cluster = Cluster::shared().await?;
        let admin = cluster.plane.admin_client().await.unwrap();
        let pods: Api<Pod> = Api::namespaced(admin, &cluster.namespace);
        cluster
            .plane
            .service_account(&cluster.namespace, "default")
            .await
            .unwrap();
        let pod = json!({
            "metadata": { "name": "holder" },
            "spec": { "containers": [{ "name": "soloist", "image": "none" }], "nodeName": "nowhere" },
        });
        let pod = serde_json::from_value(pod).unwrap();
        let made = pods.create(&PostParams::default(), &pod).await.unwrap();
        let uid = made.uid().unwrap();
        let config = Config {
            identity: name("holder"),
            instance: DEAD,
            pod: PodUid::new(&uid).filter(|_| signs_its_pod),
            timings: timings(),
            seed: 1,
        };
        let (handle, mut events) = Driver::spawn(cluster.store_as(USER).await, config).unwrap();
        handle.stand();
        let elected = next_term(&mut events).await;
        Some(Self {
            cluster,
            pods,
            uid,
            elected,
        })
    }

    async fn set_status(&self, status: Value) {
        let patch = Patch::Merge(json!({ "status": status }));
        let params = PatchParams::default();
        self.pods
            .patch_status("holder", &params, &patch)
            .await
            .unwrap();
    }

    async fn standby(&self) -> tokio::task::JoinHandle<Elected> {
        let user = SUCCESSOR;
        self.cluster.allow(user).await;
        let store = self.cluster.store_as(user).await;
        store.believe_reported_deaths(STANDBY, &self.cluster.namespace);
        let config = Config {
            identity: name("standby"),
            instance: STANDBY,
            pod: None,
            timings: timings(),
            seed: 2,
        };
        let (handle, mut events) = Driver::spawn(store, config).unwrap();
        handle.stand();
        loop {
            if let Some(DriverEvent::Holder(Some(holder))) = in_time(events.recv()).await {
                assert_eq!(holder, name("holder"));
                break;
            }
        }
        tokio::spawn(async move {
            let elected = next_term(&mut events).await;
            drop(handle);
            elected
        })
    }

    async fn let_pods_be_watched(&self) {
        let rule = PolicyRule {
            api_groups: Some(vec![String::new()]),
            resources: Some(vec!["pods".into()]),
            verbs: vec!["watch".into()],
            ..PolicyRule::default()
        };
        let user = Account::User(SUCCESSOR);
        let namespace = &self.cluster.namespace;
        self.cluster
            .plane
            .allow(namespace, user, vec![rule])
            .await
            .unwrap();
    }

    /// How many times it has asked for Pods.
    fn requests_for_pods(&self) -> usize {
        let requests = self.cluster.plane.requests().unwrap();
        let of_standby = |r: &&testbed::Request| {
            let of_user = r.namespace == self.cluster.namespace && r.user == SUCCESSOR;
            of_user && r.resource == "pods" && r.stage == "ResponseStarted"
        };
        requests.iter().filter(of_standby).count()
    }
}

/// Long enough that everything can be said before it ends.
fn timings() -> Timings {
    let seconds = Duration::from_secs;
    Timings::try_new(seconds(10), seconds(7), seconds(1)).unwrap()
}

async fn next_term(events: &mut tokio::sync::mpsc::Receiver<DriverEvent>) -> Elected {
    in_time(async {
        loop {
            if let Some(DriverEvent::Elected(elected)) = events.recv().await {
                return elected;
            }
        }
    })
    .await
}

fn terminated(instance: InstanceId, code: i32) -> Value {
    json!([{
        "name": "soloist", "image": "none", "imageID": "", "ready": false, "restartCount": 0,
        "state": { "terminated": {
            "exitCode": code, "reason": "Error", "containerID": "containerd://1",
            "message": termination_message(instance),
        } },
    }])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reported_end_of_the_holders_container_is_a_takeover_at_once() {
    let Some(holder) = Holder::that_vanishes(true).await else {
        return;
    };
    holder.let_pods_be_watched().await;
    let standby = holder.standby().await;
    let reported = clock::now();
    holder
        .set_status(json!({ "containerStatuses": terminated(DEAD, 137) }))
        .await;
    let next = in_time(standby).await.unwrap();
    let took = clock::now().since(reported);
    assert_eq!(next.claim, Claim::HolderGone);
    assert!(next.token > holder.elected.token);
    assert!(took < AT_ONCE, "{took:?}");
    println!("taken over {took:?} after the report");
    let requests = holder.requests_for_pods();
    assert_eq!(requests, 1, "one watch is all that it takes");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_was_reported_before_anybody_stood_by_counts_too() {
    let Some(holder) = Holder::that_vanishes(true).await else {
        return;
    };
    holder.let_pods_be_watched().await;
    let status = json!({ "containerStatuses": terminated(DEAD, 1) });
    holder.set_status(status).await;
    let began = clock::now();
    let next = in_time(holder.standby().await).await.unwrap();
    assert_eq!(next.claim, Claim::HolderGone);
    assert!(clock::now().since(began) < AT_ONCE);
}

/// Everything that is no proof, one after the other; then the lease is over.
#[tokio::test(flavor = "multi_thread")]
async fn what_looks_like_a_death_is_waited_out() {
    let Some(holder) = Holder::that_vanishes(true).await else {
        return;
    };
    holder.let_pods_be_watched().await;
    let standby = holder.standby().await;
    let another = InstanceId::from_random(0xfeed);
    for status in [
        json!({ "phase": "Failed", "reason": "NodeLost" }),
        json!({ "containerStatuses": terminated(another, 137) }),
        json!({ "containerStatuses": terminated(DEAD, 255) }),
    ] {
        holder.set_status(status).await;
    }
    let by_force = DeleteParams::default().grace_period(0);
    let deleted = holder.pods.delete("holder", &by_force).await;
    deleted.unwrap();
    let next = in_time(standby).await.unwrap();
    assert_eq!(next.claim, Claim::Expired);
    assert!(clock::now() >= holder.elected.valid_until);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_of_the_same_name_with_another_uid_proves_nothing() {
    let Some(holder) = Holder::that_vanishes(true).await else {
        return;
    };
    holder.let_pods_be_watched().await;
    let standby = holder.standby().await;
    let by_force = DeleteParams::default().grace_period(0);
    holder.pods.delete("holder", &by_force).await.unwrap();
    let pod = json!({
        "metadata": { "name": "holder" },
        "spec": { "containers": [{ "name": "soloist", "image": "none" }], "nodeName": "nowhere" },
    });
    let pod = serde_json::from_value(pod).unwrap();
    let made = holder
        .pods
        .create(&PostParams::default(), &pod)
        .await
        .unwrap();
    assert_ne!(made.uid().as_deref(), Some(holder.uid.as_str()));
    holder
        .set_status(json!({ "containerStatuses": terminated(DEAD, 137) }))
        .await;
    let next = in_time(standby).await.unwrap();
    assert_eq!(next.claim, Claim::Expired);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_holder_that_is_not_alone_in_its_container_is_waited_out() {
    let Some(holder) = Holder::that_vanishes(false).await else {
        return;
    };
    holder.let_pods_be_watched().await;
    let standby = holder.standby().await;
    holder
        .set_status(json!({ "containerStatuses": terminated(DEAD, 137) }))
        .await;
    let next = in_time(standby).await.unwrap();
    assert_eq!(next.claim, Claim::Expired);
    let requests = holder.requests_for_pods();
    assert_eq!(requests, 0, "there is nothing to look for");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_watch_pods_asks_once_and_waits_the_lease_out() {
    let Some(holder) = Holder::that_vanishes(true).await else {
        return;
    };
    let standby = holder.standby().await;
    holder
        .set_status(json!({ "containerStatuses": terminated(DEAD, 137) }))
        .await;
    let next = in_time(standby).await.unwrap();
    assert_eq!(next.claim, Claim::Expired);
    assert_eq!(holder.requests_for_pods(), 1);
}
