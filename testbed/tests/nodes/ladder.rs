//! The time that a Pod really has for its end.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ContainerStateTerminated;
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use testbed::Account;
use tokio::time::sleep;

use crate::PATIENCE;
use crate::group::{ACCOUNT, Group};

/// Keeps the Pod after its containers have ended, for its status.
pub(crate) const KEPT: &str = "testbed.local/kept";
const GRACE: u32 = 10;

#[tokio::test(flavor = "multi_thread")]
async fn a_shorter_grace_period_is_kept_by_a_child_that_drains_and_exits_0() {
    let Some(group) = Group::create("hurried").await else {
        return;
    };
    let (end, took) = end_leader(&group, "drain=3000").await;
    assert_eq!(end.exit_code, 0, "{end:?}");
    assert!(took < Duration::from_secs(GRACE.into()), "{took:?}");
    eprintln!(
        "--grace-period={GRACE}, drains for 3 s: exit code 0 after {:.2} s",
        took.as_secs_f64()
    );
    group.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_ignores_sigterm_is_killed_before_the_kubelet_would() {
    let Some(group) = Group::create("ignoring").await else {
        return;
    };
    let (end, took) = end_leader(&group, "deaf").await;
    assert_eq!(end.exit_code, 1, "{end:?}");
    assert!(end.signal.is_none(), "{end:?}");
    eprintln!(
        "--grace-period={GRACE}, ignores SIGTERM: exit code 1 after {:.2} s",
        took.as_secs_f64()
    );
    group.end().await;
}

/// Deletes the leader's Pod, with less time than its manifest says; how its container ended, and after how long.
async fn end_leader(group: &Group, child: &str) -> (ContainerStateTerminated, Duration) {
    let rule = PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec!["pods".into()]),
        verbs: vec!["get".into()],
        ..PolicyRule::default()
    };
    let plane = group.cluster.plane();
    let to = Account::ServiceAccount(ACCOUNT);
    plane.allow(&group.namespace, to, vec![rule]).await.unwrap();
    let leader = group.start_three(&[child], "standard").await.identity;
    set_finalizers(group, &leader, &[KEPT]).await;
    let hurried = DeleteParams::default().grace_period(GRACE);
    group.pods().delete(&leader, &hurried).await.unwrap();
    let began = Instant::now();
    let end = loop {
        let pod = group.pods().get(&leader).await.unwrap();
        let status = pod
            .status
            .and_then(|status| status.container_statuses?.pop());
        if let Some(end) = status.and_then(|status| status.state?.terminated) {
            break end;
        }
        assert!(began.elapsed() < PATIENCE, "{leader} does not end");
        sleep(Duration::from_millis(50)).await;
    };
    let took = began.elapsed();
    set_finalizers(group, &leader, &[]).await;
    (end, took)
}

pub(crate) async fn set_finalizers(group: &Group, pod: &str, finalizers: &[&str]) {
    let change = Patch::Merge(json!({ "metadata": { "finalizers": finalizers } }));
    let how = PatchParams::default();
    group.pods().patch(pod, &how, &change).await.unwrap();
}
