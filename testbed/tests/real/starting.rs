use testbed::{ControlPlane, kubernetes_version, pids_vanish, shared, skip};

use crate::{SOON, SUITE, leases};

#[tokio::test]
async fn a_control_plane_answers_and_says_its_version() {
    let Some(plane) = shared(SUITE).await else {
        return;
    };
    let client = plane.admin_client().await.unwrap();
    let version = client.apiserver_version().await.unwrap();
    assert_eq!(version.git_version, kubernetes_version());
}

#[tokio::test]
async fn two_control_planes_run_side_by_side() {
    if skip(SUITE) {
        return;
    }
    let (one, two) = tokio::try_join!(ControlPlane::start(), ControlPlane::start()).unwrap();
    let lease = |plane| leases::api(plane, "default");
    let (in_one, in_two) = (
        lease(one.admin_client().await.unwrap()),
        lease(two.admin_client().await.unwrap()),
    );
    leases::create(&in_one, "only-in-one").await.unwrap();
    assert!(in_one.get_opt("only-in-one").await.unwrap().is_some());
    assert!(in_two.get_opt("only-in-one").await.unwrap().is_none());
}

#[tokio::test]
async fn a_restarted_api_server_serves_the_same_data() {
    if skip(SUITE) {
        return;
    }
    let plane = ControlPlane::start().await.unwrap();
    let before = leases::create(
        &leases::api(plane.admin_client().await.unwrap(), "default"),
        "kept",
    )
    .await
    .unwrap();
    let (first_pid, url) = (plane.apiserver_pid().unwrap(), plane.server_url());

    plane.kill_apiserver();
    let client = plane.admin_client().await.unwrap();
    assert!(
        client.apiserver_version().await.is_err(),
        "a killed API server answers"
    );
    plane.start_apiserver().await.unwrap();

    let after = leases::api(plane.admin_client().await.unwrap(), "default")
        .get("kept")
        .await
        .unwrap();
    assert_eq!(before.metadata.uid, after.metadata.uid);
    assert_eq!(
        before.metadata.resource_version,
        after.metadata.resource_version
    );
    assert_ne!(plane.apiserver_pid(), Some(first_pid));
    assert_eq!(plane.server_url(), url);
}

#[tokio::test]
async fn stopping_ends_both_processes_and_removes_their_files() {
    if skip(SUITE) {
        return;
    }
    let plane = ControlPlane::start().await.unwrap();
    let pids = [plane.etcd_pid(), plane.apiserver_pid().unwrap()];
    let folder = plane.folder().to_owned();
    plane.freeze_etcd().unwrap();
    plane.stop().await;
    assert!(pids_vanish(&pids, SOON), "{pids:?} still run");
    assert!(!folder.exists(), "{} is still there", folder.display());
}

#[tokio::test]
async fn an_api_server_that_cannot_start_is_reported_with_its_log() {
    if skip(SUITE) {
        return;
    }
    let options = testbed::Options {
        apiserver_flags: vec!["--no-such-flag".to_owned()],
        ..testbed::Options::default()
    };
    let error = ControlPlane::start_with(options)
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("kube-apiserver ended"), "{error}");
    assert!(error.contains("no-such-flag"), "{error}");
    assert!(error.contains("kube-apiserver.log"), "{error}");
}
