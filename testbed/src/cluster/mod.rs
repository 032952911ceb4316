//! A control plane with nodes: each one a kubelet, a containerd and a kube-proxy, in namespaces of its own on this machine.

mod cgroups;
mod controllers;
mod faults;
mod files;
pub(crate) mod lan;
mod logind;
mod machine;
mod node;
pub(crate) mod sweep;

use std::{
    fs,
    net::SocketAddr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use image::{File, Image};
use k8s_openapi::api::core::v1 as core;
use kube::{Api, api::ListParams};
use tokio::time::{Instant, sleep};

use crate::{Binaries, ControlPlane, Error, Kind, Options, missing_for_nodes, progress_on_stderr};
use controllers::Controllers;
use lan::Lan;
use node::Credentials;
pub use node::Node;
use sweep::Sweeper;

/// How a cluster is to be.
#[derive(Debug, Clone)]
pub struct ClusterOptions {
    /// How many nodes, from 1 to 50. Default: 2.
    pub nodes: u8,
    /// How long a node may be silent before it counts as not ready. Default: 20 s.
    pub node_grace: Duration,
    /// How long all nodes may take to become ready. Default: 2 minutes.
    pub patience: Duration,
    /// The control plane. Its users are extended by those of the nodes.
    pub plane: Options,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self {
            nodes: 2,
            node_grace: Duration::from_secs(20),
            patience: Duration::from_secs(120),
            plane: Options::default(),
        }
    }
}

/// A running cluster: [`ControlPlane`], kube-controller-manager, kube-scheduler and nodes.
///
/// All of it ends when this is dropped. When this process is killed, the kernel kills the nodes with it, and a process that waits for that
/// removes their cgroups and files.
#[derive(Debug)]
pub struct Cluster {
    // Dropped in this order, after `Drop::drop`.
    nodes: Vec<Node>,
    lan: Lan,
    controllers: Mutex<Controllers>,
    _sweeper: Sweeper,
    plane: ControlPlane,
}

const KUBE_PROXY: &str = "system:kube-proxy";

impl Cluster {
    /// Starts a cluster with the default [`ClusterOptions`]; builds first what the cache lacks.
    pub async fn start() -> Result<Self, Error> {
        Self::start_with(ClusterOptions::default()).await
    }

    /// Starts a cluster, and waits until every node is ready.
    ///
    /// # Errors
    /// [`Error::Missing`] where nodes cannot run: without root, or without containerd and its like.
    pub async fn start_with(options: ClusterOptions) -> Result<Self, Error> {
        if let Some(missing) = missing_for_nodes().into_iter().next() {
            return Err(missing.into());
        }
        let build = || Kind::OF_NODES.map(|kind| Binaries::build(kind, &mut progress_on_stderr()));
        let built = tokio::task::spawn_blocking(build)
            .await
            .expect("building does not panic");
        built.into_iter().collect::<Result<Vec<_>, _>>()?;

        let count = options.nodes.clamp(1, 50);
        let mut plane = options.plane;
        plane.nodes = true;
        let users = [
            controllers::CONTROLLER_MANAGER,
            controllers::SCHEDULER,
            KUBE_PROXY,
        ]
        .map(str::to_owned);
        plane.users.extend(users);
        plane.users.extend((1..=count).map(kubelet_user));
        let plane = ControlPlane::start_with(plane).await?;
        let start = move || Self::start_nodes(plane, count, options.node_grace);
        let cluster = tokio::task::spawn_blocking(start)
            .await
            .expect("starting does not panic")?;
        cluster.wait_until_ready(options.patience).await?;
        Ok(cluster)
    }

    fn start_nodes(plane: ControlPlane, count: u8, node_grace: Duration) -> Result<Self, Error> {
        let sweeper = Sweeper::start(plane.folder())?;
        let controllers = Controllers::start(&plane, node_grace)?;
        let mut cluster = Self {
            lan: Lan::start(plane.folder(), plane.address())?,
            nodes: Vec::new(),
            controllers: Mutex::new(controllers),
            _sweeper: sweeper,
            plane,
        };
        let folder = cluster.plane.folder().to_owned();
        let prefix = sweep::cgroup_prefix(&folder);
        for number in 1..=count {
            cluster.nodes.push(Node::create(number, &folder, &prefix)?);
        }
        let pause = pause_image()?;
        for node in &cluster.nodes {
            cluster
                .lan
                .connect(node.number(), node.machine().first_process())?;
            node.set_up_network(count)?;
            node.start_containerd()?;
            node.import_image(&pause)?;
            let apiserver: SocketAddr = (lan::GATEWAY, cluster.plane.address().port()).into();
            node.start_agents(&Credentials {
                kubelet: cluster
                    .plane
                    .kubeconfig_at(&kubelet_user(node.number()), apiserver)?,
                kube_proxy: cluster.plane.kubeconfig_at(KUBE_PROXY, apiserver)?,
            })?;
        }
        Ok(cluster)
    }

    /// Ends everything and removes its files. Dropping does the same.
    pub async fn stop(self) {
        let _ = tokio::task::spawn_blocking(move || drop(self)).await;
    }

    /// etcd and kube-apiserver.
    pub fn plane(&self) -> &ControlPlane {
        &self.plane
    }

    /// The nodes, in the order of their numbers.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The node with this name.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name() == name)
    }

    /// Gives every node an image, as a docker-archive.
    pub fn import_image(&self, archive: &[u8]) -> Result<(), Error> {
        self.nodes
            .iter()
            .try_for_each(|node| node.import_image(archive))
    }

    /// An error if something that should run has ended by itself.
    pub fn check(&self) -> Result<(), Error> {
        self.nodes.iter().try_for_each(Node::check)?;
        self.controllers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .check()
    }

    /// Waits until every node is ready.
    pub async fn wait_until_ready(&self, patience: Duration) -> Result<(), Error> {
        let api: Api<core::Node> = Api::all(self.plane.admin_client().await?);
        let deadline = Instant::now() + patience;
        loop {
            self.check()?;
            let listed = api
                .list(&ListParams::default())
                .await
                .map_err(Error::kube("list the nodes"))?;
            if listed.iter().filter(|node| takes_pods(node)).count() == self.nodes.len() {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(Error::Timeout {
                    awaited: format!("the readiness of {} nodes", self.nodes.len()),
                    waited: patience,
                });
            }
            sleep(Duration::from_millis(100)).await;
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for node in &self.nodes {
            // What is frozen cannot die.
            let _ = node.machine().cgroups().thaw();
        }
        self.nodes.clear();
        sweep::now(self.plane.folder());
    }
}

fn kubelet_user(number: u8) -> String {
    format!("system:node:{}", node::name(number))
}

/// A node that has just become ready is tainted for a moment longer, and everything is scheduled to another one.
fn takes_pods(node: &core::Node) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    is_ready(node) && taints.is_none_or(Vec::is_empty)
}

pub(crate) fn is_ready(node: &core::Node) -> bool {
    let conditions = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|one| one.type_ == "Ready" && one.status == "True")
}

fn pause_image() -> Result<Vec<u8>, Error> {
    let path = Binaries::path(Kind::Pause);
    let content = fs::read(&path).map_err(Error::io("read", &path))?;
    let image = Image {
        name: files::PAUSE_IMAGE.to_owned(),
        files: vec![File {
            path: "pause".to_owned(),
            content,
        }],
        entrypoint: vec!["/pause".to_owned()],
        user: Some(65535),
        created: 0,
        labels: Vec::new(),
    };
    Ok(image.docker_archive())
}
