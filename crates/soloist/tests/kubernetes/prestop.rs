//! `soloist prestop` and a Pod's real grace period, on the real API server.

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use testbed::{Account, ControlPlane, Link, shared};

use super::PATIENCE;

const SOLOIST: &str = env!("CARGO_BIN_EXE_soloist");
const POD: &str = "web-1";

struct Place {
    plane: &'static ControlPlane,
    namespace: String,
    kubeconfig: PathBuf,
    user: &'static str,
}

impl Place {
    /// `None` where the suite is skipped.
    async fn new(user: &'static str) -> Option<Self> {
        let plane = shared("soloist prestop on a real API server").await?;
        Some(Self {
            plane,
            namespace: plane.namespace("prestop").await.unwrap(),
            kubeconfig: plane.kubeconfig(user, None).unwrap(),
            user,
        })
    }

    /// From now on its requests take this way.
    fn through_a_link(&mut self) -> Link {
        let link = Link::to(self.plane.address()).unwrap();
        self.kubeconfig = self.plane.kubeconfig(self.user, Some(&link)).unwrap();
        link
    }

    async fn allow(&self, group: &str, resource: &str, verbs: &[&str]) {
        let rule = PolicyRule {
            api_groups: Some(vec![group.to_owned()]),
            resources: Some(vec![resource.to_owned()]),
            verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
            ..PolicyRule::default()
        };
        let allowed = self
            .plane
            .allow(&self.namespace, Account::User(self.user), vec![rule]);
        allowed.await.unwrap();
    }

    async fn api<T>(&self) -> Api<T>
    where
        T: kube::Resource<Scope = kube::core::NamespaceResourceScope>,
        T::DynamicType: Default,
    {
        let client = self.plane.admin_client().await.unwrap();
        Api::namespaced(client, &self.namespace)
    }

    /// A slice that shows this Pod and another one.
    async fn slice(&self, name: &str, pod: &str) {
        let endpoint = |pod: &str, address: &str| {
            json!({
                "addresses": [address],
                "conditions": { "ready": true },
                "targetRef": { "kind": "Pod", "name": pod, "namespace": self.namespace },
            })
        };
        let slice = json!({
            "metadata": { "name": name },
            "addressType": "IPv4",
            "endpoints": [endpoint(pod, "10.1.0.7"), endpoint("web-2", "10.1.0.8")],
        });
        let slices = self.api::<EndpointSlice>().await;
        slices
            .create(
                &PostParams::default(),
                &serde_json::from_value(slice).unwrap(),
            )
            .await
            .unwrap();
    }

    /// One that stays, for its node does not exist.
    async fn pod(&self, more: &serde_json::Value) {
        let mut pod = json!({
            "metadata": { "name": POD },
            "spec": { "nodeName": "nowhere", "containers": [{ "name": "web", "image": "none" }],
                "automountServiceAccountToken": false },
        });
        for (name, value) in more.as_object().unwrap() {
            pod["spec"][name] = value.clone();
        }
        let account = self.plane.service_account(&self.namespace, "default");
        account.await.ok();
        let pods = self.api::<Pod>().await;
        let pod = serde_json::from_value(pod).unwrap();
        pods.create(&PostParams::default(), &pod).await.unwrap();
    }

    /// It stays, since nobody ends it.
    async fn delete_pod(&self, grace: u32) {
        let pods = self.api::<Pod>().await;
        let how = DeleteParams::default().grace_period(grace);
        pods.delete(POD, &how).await.unwrap();
    }

    async fn terminate_in(&self, slice: &str) {
        let slices = self.api::<EndpointSlice>().await;
        let mut changed = serde_json::to_value(slices.get(slice).await.unwrap()).unwrap();
        changed["endpoints"][0]["conditions"] =
            json!({ "ready": false, "serving": true, "terminating": true });
        let patch = Patch::Merge(json!({ "endpoints": changed["endpoints"] }));
        slices
            .patch(slice, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    fn in_pod(&self, command: &mut Command) {
        command
            .env("KUBECONFIG", &self.kubeconfig)
            .env("POD_NAME", POD)
            .env("POD_NAMESPACE", &self.namespace)
            .env_remove("SOLOIST_IDENTITY");
    }

    fn prestop(&self, flags: &[&str]) -> Child {
        let mut command = Command::new(SOLOIST);
        // Nobody is to be told, and what other tests connect to is no concern of this one.
        command
            .args(["prestop", "--identity", "nobody"])
            .args(flags);
        if !flags.contains(&"--settle") {
            command.args(["--settle", "1ms"]);
        }
        self.in_pod(&mut command);
        command.stderr(Stdio::piped()).spawn().unwrap()
    }

    /// It has asked for this.
    async fn await_request(&self, verb: &str, code: u16) {
        let asked = self.plane.wait_for_requests(PATIENCE, |requests| {
            requests.iter().any(|request| {
                request.namespace == self.namespace
                    && request.resource == "endpointslices"
                    && request.user == self.user
                    && (request.verb.as_str(), request.code) == (verb, code)
            })
        });
        asked.await.unwrap();
    }
}

fn said(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hook_waits_until_no_endpoint_slice_shows_its_pod_as_ready() {
    let Some(place) = Place::new("replica-0").await else {
        return;
    };
    place
        .allow(
            "discovery.k8s.io",
            "endpointslices",
            &["get", "list", "watch"],
        )
        .await;
    place.slice("a", POD).await;
    place.slice("b", POD).await;
    place.slice("other", "web-3").await;
    let mut hook = place.prestop(&["--max", "30s"]);
    place.await_request("watch", 200).await;
    place.terminate_in("a").await;
    assert!(hook.try_wait().unwrap().is_none(), "b still shows it");
    place.terminate_in("b").await;
    let changed = Instant::now();
    let said = said(&hook.wait_with_output().unwrap());
    assert!(
        said.contains("out of its EndpointSlices (2) after"),
        "{said}"
    );
    assert!(changed.elapsed() < Duration::from_secs(20), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hook_says_which_right_is_missing_and_waits_the_time_that_it_was_told() {
    let Some(place) = Place::new("replica-1").await else {
        return;
    };
    place.slice("a", POD).await;
    let began = Instant::now();
    let hook = place.prestop(&["--max", "30s", "--fallback", "2s"]);
    place.await_request("list", 403).await;
    let said = said(&hook.wait_with_output().unwrap());
    assert!(began.elapsed() >= Duration::from_secs(2), "{said}");
    assert!(
        said.contains("get, list and watch on endpointslices"),
        "{said}"
    );
    assert!(said.contains("2s instead of the EndpointSlices"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_in_no_slice_is_not_waited_for_and_one_that_stays_is_waited_for_until_the_maximum() {
    let Some(place) = Place::new("replica-2").await else {
        return;
    };
    place
        .allow(
            "discovery.k8s.io",
            "endpointslices",
            &["get", "list", "watch"],
        )
        .await;
    let none = said(&place.prestop(&["--max", "30s"]).wait_with_output().unwrap());
    assert!(none.contains("in no EndpointSlice;"), "{none}");
    place.slice("a", POD).await;
    let stays = said(&place.prestop(&["--max", "2s"]).wait_with_output().unwrap());
    assert!(stays.contains("still in the EndpointSlices"), "{stays}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_falls_silent_in_the_middle_of_the_watch_is_not_waited_for_until_the_maximum()
{
    let Some(mut place) = Place::new("replica-1").await else {
        return;
    };
    let link = place.through_a_link();
    place
        .allow(
            "discovery.k8s.io",
            "endpointslices",
            &["get", "list", "watch"],
        )
        .await;
    place.slice("a", POD).await;
    let began = Instant::now();
    let hook = place.prestop(&["--max", "60s", "--fallback", "2s"]);
    place.await_request("watch", 200).await;
    link.stall().unwrap();
    let said = said(&hook.wait_with_output().unwrap());
    assert!(began.elapsed() < Duration::from_secs(40), "{said}");
    assert!(said.contains("2s instead of the EndpointSlices"), "{said}");
}

/// Whoever connects to this machine meanwhile, and they do.
#[tokio::test(flavor = "multi_thread")]
async fn on_its_nodes_network_a_pod_does_not_listen_for_everybodys_silence() {
    let Some(place) = Place::new("replica-0").await else {
        return;
    };
    place.allow("", "pods", &["get"]).await;
    place
        .allow("discovery.k8s.io", "endpointslices", &["list"])
        .await;
    place.pod(&json!({ "hostNetwork": true })).await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let others = std::thread::spawn({
        let over = over.clone();
        move || {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                drop(std::net::TcpStream::connect(address).unwrap());
                drop(listener.accept().unwrap());
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    });
    let settle = ["--settle", "500ms", "--max", "60s"];
    let alone = said(&place.prestop(&settle).wait_with_output().unwrap());
    let named = [&settle[..], &["--ports", "1"]].concat();
    let named = said(&place.prestop(&named).wait_with_output().unwrap());
    over.store(true, std::sync::atomic::Ordering::Relaxed);
    others.join().unwrap();
    assert!(alone.contains("on its node's network"), "{alone}");
    assert!(named.contains("silence after"), "{named}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_down_is_tried_for_the_time_that_the_hook_waits_instead() {
    let Some(mut place) = Place::new("replica-2").await else {
        return;
    };
    let link = place.through_a_link();
    link.cut().unwrap();
    let began = Instant::now();
    let hook = place.prestop(&["--max", "60s", "--fallback", "2s"]);
    let said = said(&hook.wait_with_output().unwrap());
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(2), "{took:?} {said}");
    assert!(took < Duration::from_secs(40), "{took:?} {said}");
    assert!(said.contains("2s instead of the EndpointSlices"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shorter_grace_period_of_the_deletion_shortens_the_stop() {
    let Some(place) = Place::new("replica-0").await else {
        return;
    };
    place.allow("", "pods", &["get"]).await;
    place.pod(&json!({})).await;
    place.delete_pod(4).await;
    // What the kubelet gives by itself does not matter then.
    let (took, log) = stopped_deaf_child(&place, &["--kubelet-grace-period", "3s"]).await;
    // 4 s less a quarter, instead of 25 s.
    assert!(
        took >= Duration::from_millis(2900) && took < Duration::from_secs(10),
        "{took:?} {log}"
    );
    assert!(
        log.contains("the Pod has a shorter grace period grace=4s"),
        "{log}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_that_its_kubelet_ends_by_itself_has_as_long_as_soloist_was_told() {
    let Some(place) = Place::new("replica-0").await else {
        return;
    };
    place.allow("", "pods", &["get"]).await;
    place.pod(&json!({})).await;
    let (took, log) = stopped_deaf_child(&place, &["--kubelet-grace-period", "4s"]).await;
    assert!(
        took >= Duration::from_millis(2900) && took < Duration::from_secs(10),
        "{took:?} {log}"
    );
    assert!(
        log.contains("the Pod has a shorter grace period grace=4s"),
        "{log}"
    );
}

/// How long it takes until it is killed after SIGTERM, and what soloist has to say; its exit code is 1.
async fn stopped_deaf_child(place: &Place, flags: &[&str]) -> (Duration, String) {
    let folder = tempfile::tempdir().unwrap();
    let ready = folder.path().join("ready");
    let mut command = Command::new(SOLOIST);
    command
        .args(["run", "--name", "test", "--grace-period", "30s"])
        .args(flags)
        .arg(format!(
            "--store=file:{}",
            folder.path().join("lease").display()
        ))
        .args([
            "--",
            "sh",
            "-c",
            "trap '' TERM; touch \"$0\"; while :; do sleep 0.1; done",
        ])
        .arg(&ready)
        .stderr(Stdio::piped());
    place.in_pod(&mut command);
    let soloist = command.spawn().unwrap();
    let deadline = Instant::now() + PATIENCE;
    while !ready.exists() {
        assert!(Instant::now() < deadline, "the child does not start");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let asked = Instant::now();
    let pid = soloist.id().to_string();
    assert!(Command::new("kill").arg(&pid).status().unwrap().success());
    let output = tokio::task::spawn_blocking(move || soloist.wait_with_output().unwrap());
    let output = output.await.unwrap();
    let (took, log) = (
        asked.elapsed(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    assert_eq!(output.status.code(), Some(1), "it had to be killed: {log}");
    (took, log)
}
