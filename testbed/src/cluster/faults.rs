use std::time::Duration;

use k8s_openapi::api::core::v1 as core;
use kube::{
    Api, ResourceExt,
    api::{EvictParams, ListParams, Patch, PatchParams},
};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::{Cluster, Node, is_ready};
use crate::Error;

/// Ways to break a node.
impl Cluster {
    /// Cuts a node off from everything else, as by pulling its plug: what is sent to it or by it is lost.
    pub fn cut_off(&self, node: &Node) -> Result<(), Error> {
        self.lan.set_plugged(node.number(), false)
    }

    /// Connects it again.
    pub fn heal(&self, node: &Node) -> Result<(), Error> {
        self.lan.set_plugged(node.number(), true)
    }

    /// Marks a node as one that takes no new Pods, or as one that does.
    pub async fn cordon(&self, node: &Node, cordoned: bool) -> Result<(), Error> {
        let api: Api<core::Node> = Api::all(self.plane.admin_client().await?);
        let patch = Patch::Merge(json!({ "spec": { "unschedulable": cordoned } }));
        let patched = api
            .patch(node.name(), &PatchParams::default(), &patch)
            .await;
        patched.map(drop).map_err(Error::kube("cordon a node"))
    }

    /// Cordons a node and evicts its Pods, which respects their disruption budgets; returns once none is left.
    pub async fn drain(&self, node: &Node, patience: Duration) -> Result<(), Error> {
        const TOO_MANY_REQUESTS: u16 = 429;
        self.cordon(node, true).await?;
        let client = self.plane.admin_client().await?;
        let api: Api<core::Pod> = Api::all(client.clone());
        let here = ListParams::default().fields(&format!("spec.nodeName={}", node.name()));
        let deadline = Instant::now() + patience;
        loop {
            let pods = api
                .list(&here)
                .await
                .map_err(Error::kube("list a node's Pods"))?;
            if pods.items.is_empty() {
                return Ok(());
            }
            for pod in pods
                .iter()
                .filter(|pod| pod.metadata.deletion_timestamp.is_none())
            {
                let namespace = pod.namespace().unwrap_or_default();
                let pods: Api<core::Pod> = Api::namespaced(client.clone(), &namespace);
                match pods.evict(&pod.name_any(), &EvictParams::default()).await {
                    Ok(_) => {}
                    // A budget does not allow it yet, or it has gone meanwhile, or goes with its namespace.
                    Err(kube::Error::Api(status))
                        if [TOO_MANY_REQUESTS, 404].contains(&status.code)
                            || status.message.contains("being terminated") => {}
                    Err(error) => return Err(Error::kube("evict a Pod")(error)),
                }
            }
            if Instant::now() >= deadline {
                return Err(Error::Timeout {
                    awaited: format!("the drain of {}", node.name()),
                    waited: patience,
                });
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until the control plane holds a node for ready, or for not ready.
    pub async fn wait_until_node(
        &self,
        node: &Node,
        ready: bool,
        patience: Duration,
    ) -> Result<(), Error> {
        let api: Api<core::Node> = Api::all(self.plane.admin_client().await?);
        let deadline = Instant::now() + patience;
        loop {
            let seen = api
                .get(node.name())
                .await
                .map_err(Error::kube("get a node"))?;
            if is_ready(&seen) == ready {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(Error::Timeout {
                    awaited: format!("ready={ready} of {}", node.name()),
                    waited: patience,
                });
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Kills kube-apiserver and starts it again on the same data.
    pub async fn restart_apiserver(&self) -> Result<(), Error> {
        self.plane.kill_apiserver();
        self.plane.start_apiserver().await
    }
}

/// Ways to break it from inside.
impl Node {
    /// Stops every process on it, containers included, as when a machine hangs.
    pub fn freeze(&self) -> Result<(), Error> {
        self.machine().cgroups().freeze()
    }

    /// Lets it go on.
    pub fn thaw(&self) -> Result<(), Error> {
        self.machine().cgroups().thaw()
    }

    /// Kills the first process of a container (SIGKILL). Its id is as the Pod's status has it, with or without `containerd://`.
    pub fn kill_container(&self, id: &str) -> Result<(), Error> {
        let id = id.trim_start_matches("containerd://");
        let arguments = ["-n", "k8s.io", "tasks", "kill", "--signal", "SIGKILL", id];
        self.ctr(&arguments, &[]).map(drop)
    }
}
