//! The service account's token that a Pod has.

use std::time::{Duration, Instant};

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::{Api, api::PostParams};
use testbed::Node;
use tokio::time::sleep;

use crate::{PATIENCE, group::Group};

/// The key is replaced as in a cluster that lives on: a new one beside the old one, then new tokens by the kubelets, then the old key
/// is forgotten, and with it what any process still has of the old token.
#[tokio::test(flavor = "multi_thread")]
async fn a_rotated_token_costs_no_leadership_once_the_old_one_is_refused() {
    let Some(group) = Group::create("rotated").await else {
        return;
    };
    let plane = group.cluster.plane();
    let first = group.start_three(&[], "low-load").await;
    let node = group.node_of(&first.identity).await;
    let pod = group.pods().get(&first.identity).await.unwrap();
    let uid = pod.metadata.uid.unwrap();
    let old = token(node, &uid);
    assert!(!is_refused(&group, &old).await);
    plane.renew_token_key().await.unwrap();
    for node in group.cluster.nodes() {
        // A kubelet keeps its tokens until they are old, but not over its own end.
        node.stop_kubelet();
        node.start_kubelet().unwrap();
    }
    let deadline = Instant::now() + PATIENCE;
    while token(node, &uid) == old {
        assert!(Instant::now() < deadline, "the token stays the same");
        sleep(Duration::from_millis(100)).await;
    }
    plane.refuse_tokens_of_old_keys().await.unwrap();
    assert!(
        is_refused(&group, &old).await,
        "the old token is still good"
    );
    let renewed = group.await_renewals(2).await;
    assert_eq!(renewed, first.identity);
    group.cluster.wait_until_ready(PATIENCE).await.unwrap();
    group.await_ready(3).await;
    group.finish_without_a_gap("token rotated", &first).await;
}

/// The token in the Pod's volume, which only its node has.
fn token(node: &Node, pod_uid: &str) -> String {
    let volume = format!("/var/lib/kubelet/pods/{pod_uid}/volumes/kubernetes.io~projected");
    let script = format!("cat {volume}/*/token");
    node.run("sh", &["-c", &script]).unwrap()
}

async fn is_refused(group: &Group, token: &str) -> bool {
    let review = TokenReview {
        spec: TokenReviewSpec {
            token: token.to_owned(),
            ..TokenReviewSpec::default()
        },
        ..TokenReview::default()
    };
    let api: Api<TokenReview> = Api::all(group.cluster.plane().admin_client().await.unwrap());
    let answer = api.create(&PostParams::default(), &review).await.unwrap();
    answer.status.unwrap().authenticated != Some(true)
}
