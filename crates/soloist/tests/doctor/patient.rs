//! A namespace of the real API server, what is put into it, and the doctor's look at it.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use http::{Method, Request};
use serde_json::{Value, json};
use testbed::{ControlPlane, shared};

pub(crate) const LEASE: &str = "demo";

/// What `soloist doctor` found.
#[derive(Debug)]
pub(crate) struct Findings {
    pub(crate) code: i32,
    pub(crate) text: String,
}

impl Findings {
    /// There is such a line, and what is under it contains all of this.
    pub(crate) fn assert_says(&self, line: &str, parts: &[&str]) {
        let (_, rest) = self
            .text
            .split_once(line)
            .unwrap_or_else(|| panic!("no {line:?} in {}", self.text));
        let rest: String = rest
            .split_inclusive('\n')
            .enumerate()
            .take_while(|(n, l)| *n == 0 || l.starts_with("    "))
            .map(|(_, l)| l)
            .collect();
        for part in parts {
            assert!(
                rest.contains(part),
                "no {part:?} under {line:?}: {rest}\n{}",
                self.text
            );
        }
    }
}

/// Runs it with nothing in its environment that could speak for another cluster or Pod.
pub(crate) fn doctor(arguments: &[&str]) -> Findings {
    let mut command = Command::new(env!("CARGO_BIN_EXE_soloist"));
    findings(command.arg("doctor").args(arguments).env_remove("POD_NAME"))
}

/// Of a doctor that no variable of ours leads to another cluster.
pub(crate) fn findings(command: &mut Command) -> Findings {
    let output = command
        .env_remove("KUBECONFIG")
        .env_remove("KUBERNETES_SERVICE_HOST")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr);
    Findings {
        code: output.status.code().unwrap(),
        text,
    }
}

pub(crate) struct Patient {
    pub(crate) plane: &'static ControlPlane,
    pub(crate) namespace: String,
}

impl Patient {
    /// `None` where the suite is skipped.
    pub(crate) async fn new(name: &str) -> Option<Self> {
        let plane = shared("soloist doctor on a real API server").await?;
        let namespace = plane.namespace(name).await.unwrap();
        Some(Self { plane, namespace })
    }

    pub(crate) fn examine(&self, kubeconfig: &Path, more: &[&str]) -> Findings {
        let kubeconfig = kubeconfig.to_str().unwrap();
        let mut arguments = vec!["--kubeconfig", kubeconfig, "--namespace", &self.namespace];
        if !more.contains(&"--deployment") {
            arguments.extend(["--name", LEASE]);
        }
        arguments.extend(more);
        doctor(&arguments)
    }

    pub(crate) fn examine_as_admin(&self, more: &[&str]) -> Findings {
        self.examine(&self.plane.admin_kubeconfig().unwrap(), more)
    }

    /// Creates an object under `/apis/GROUP/namespaces/OURS/RESOURCE`.
    pub(crate) async fn create(&self, place: &str, object: &Value) -> Value {
        self.ask(Method::POST, place, "application/json", object)
            .await
    }

    /// Creates an object that belongs to no namespace.
    pub(crate) async fn create_in_cluster(&self, place: &str, object: &Value) {
        let request = Request::post(format!("/{place}"))
            .header("Content-Type", "application/json")
            .body(serde_json::to_vec(object).unwrap())
            .unwrap();
        let client = self.plane.admin_client().await.unwrap();
        client.request::<Value>(request).await.unwrap();
    }

    pub(crate) async fn patch(&self, place: &str, object: &Value) -> Value {
        self.ask(Method::PATCH, place, "application/merge-patch+json", object)
            .await
    }

    async fn ask(&self, method: Method, place: &str, form: &str, object: &Value) -> Value {
        let (group, resource) = place.rsplit_once("//").unwrap();
        let request = Request::builder()
            .method(method)
            .uri(format!(
                "/{group}/namespaces/{}/{resource}?fieldManager=somebody",
                self.namespace
            ))
            .header("Content-Type", form)
            .body(serde_json::to_vec(object).unwrap())
            .unwrap();
        let client = self.plane.admin_client().await.unwrap();
        client.request(request).await.unwrap()
    }

    pub(crate) async fn lease(&self) -> Option<Value> {
        let place = format!("leases/{LEASE}");
        self.get("apis/coordination.k8s.io/v1", &place).await
    }

    pub(crate) async fn list(&self, place: &str) -> Vec<Value> {
        let (group, resource) = place.rsplit_once("//").unwrap();
        let list = self.get(group, resource).await.unwrap();
        list["items"].as_array().unwrap().clone()
    }

    async fn get(&self, group: &str, resource: &str) -> Option<Value> {
        let path = format!("/{group}/namespaces/{}/{resource}", self.namespace);
        let request = Request::get(path).body(Vec::new()).unwrap();
        let client = self.plane.admin_client().await.unwrap();
        client.request(request).await.ok()
    }

    /// A lease that somebody holds who is not soloist.
    pub(crate) async fn foreign_lease(&self, spec: Value) {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": LEASE}, "spec": spec,
        });
        self.create("apis/coordination.k8s.io/v1//leases", &lease)
            .await;
    }

    pub(crate) async fn patch_lease(&self, spec: Value) {
        let place = format!("apis/coordination.k8s.io/v1//leases/{LEASE}");
        self.patch(&place, &json!({"spec": spec})).await;
    }

    /// A replica with a quick lease.
    pub(crate) fn replica(&self, kubeconfig: &Path, identity: &str) -> Replica {
        self.replica_with(kubeconfig, identity, &QUICK)
    }

    pub(crate) fn replica_with(
        &self,
        kubeconfig: &Path,
        identity: &str,
        timings: &[&str],
    ) -> Replica {
        let child = Command::new(env!("CARGO_BIN_EXE_soloist"))
            .args(["run", "--store", "kubernetes", "--name", LEASE])
            .args(["--namespace", &self.namespace, "--identity", identity])
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(timings)
            .args(["--", "sleep", "1000"])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Replica(child.unwrap())
    }
}

pub(crate) const QUICK: [&str; 6] = [
    "--lease-duration",
    "4s",
    "--renew-deadline",
    "3s",
    "--retry-period",
    "300ms",
];

pub(crate) struct Replica(Child);

impl Replica {
    /// In order.
    pub(crate) fn stop(mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
