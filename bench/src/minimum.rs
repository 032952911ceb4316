//! The least that a handover can take: one write that releases, one watch event, one write that takes over, one child
//! started.
//!
//! Done by hand over connections that are open, with the client, the TLS and the child that soloist's replicas have.

use std::path::Path;
use std::pin::Pin;
use std::process::Stdio;

use anyhow::{Context, bail};
use futures_util::{Stream, StreamExt};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::api::{GetParams, PostParams, WatchEvent, WatchParams};
use kube::client::ConfigExt;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::Request;
use kube::{Client, Config};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use tokio::time::timeout;
use tower::{BoxError, ServiceBuilder};

use crate::clock;
use crate::group::{LEASE, PATIENCE, Stage};
use crate::journal::{Journal, Life};

/// Longer than the time between two handovers, and as long as the client allows.
const WATCH_SECONDS: u32 = 290;

type Events = Pin<Box<dyn Stream<Item = Result<WatchEvent<Value>, kube::Error>>>>;

/// One bare handover, in nanoseconds.
pub(crate) struct Steps {
    /// From just before the release is sent, the old child being gone, until the watch tells of it.
    pub(crate) release: i128,
    /// From there until the takeover is answered.
    pub(crate) takeover: i128,
    /// From there to the next child's start.
    pub(crate) start: i128,
}

impl Steps {
    pub(crate) fn whole(&self) -> i128 {
        self.release + self.takeover + self.start
    }
}

/// A holder with its child, and one that waits for the Lease.
pub(crate) struct Minimum<'a> {
    stage: &'a Stage<'a>,
    holder: Session,
    waiting: Session,
    /// What the one that waits sees.
    events: Events,
    /// As it was last written.
    lease: Value,
    // Dropped before the folder that it writes to.
    child: Child,
    journal: Journal,
    _folder: tempfile::TempDir,
}

impl<'a> Minimum<'a> {
    pub(crate) async fn start(stage: &'a Stage<'a>) -> anyhow::Result<Self> {
        let namespace = stage.namespace().await?;
        let folder = tempfile::tempdir().context("a folder")?;
        let journal = Journal::new(folder.path().join("journal"));
        let holder = Session::open(stage.kubeconfig(), &namespace).await?;
        let waiting = Session::open(stage.kubeconfig(), &namespace).await?;
        let lease = holder.create(&namespace).await?;
        let events = prepare(&holder, &waiting, &lease).await?;
        let child = start_child(stage, &journal)?;
        let minimum = Self {
            stage,
            holder,
            waiting,
            events,
            lease,
            child,
            journal,
            _folder: folder,
        };
        minimum.started().await?;
        Ok(minimum)
    }

    pub(crate) async fn hand_over(&mut self) -> anyhow::Result<Steps> {
        self.stop_child().await?;
        let began = clock::now();
        let release = self.holder.update(&self.lease, "");
        let takeover = async {
            let lease = next_released(&mut self.events).await?;
            let released = clock::now();
            let lease = self.waiting.update(&lease, "next").await?;
            let taken = clock::now();
            let child = start_child(self.stage, &self.journal)?;
            Ok((lease, child, released, taken))
        };
        // The takeover does not wait for the answer to the release.
        let both = async { tokio::try_join!(release, takeover) };
        let both = timeout(PATIENCE, both).await;
        let (_, done) = both.context("the bare handover does not end")??;
        let (released, taken);
        (self.lease, self.child, released, taken) = done;
        let life = self.started().await?;
        std::mem::swap(&mut self.holder, &mut self.waiting);
        self.events = prepare(&self.holder, &self.waiting, &self.lease).await?;
        Ok(Steps {
            release: released - began,
            takeover: taken - released,
            start: life.start - taken,
        })
    }

    async fn stop_child(&mut self) -> anyhow::Result<()> {
        let pid = self.child.id().and_then(|id| Pid::from_raw(id as i32));
        kill_process(pid.context("the child has ended")?, Signal::TERM)?;
        let ended = timeout(PATIENCE, self.child.wait()).await;
        ended.context("the child does not end")??;
        Ok(())
    }

    async fn started(&self) -> anyhow::Result<Life> {
        let pid = self.child.id().context("the child has ended")?;
        let ours = |lives: &[Life]| lives.iter().find(|life| life.pid == pid).cloned();
        let lives = self
            .journal
            .wait("the bare child", PATIENCE, |lives| ours(lives).is_some());
        ours(&lives.await?).context("no life")
    }
}

/// Opens the watch of the one that waits, and a connection for the next write of each.
async fn prepare(holder: &Session, waiting: &Session, lease: &Value) -> anyhow::Result<Events> {
    let events = waiting.watch(lease).await?;
    holder.read().await?;
    waiting.read().await?;
    Ok(events)
}

async fn next_released(events: &mut Events) -> anyhow::Result<Value> {
    while let Some(event) = events.next().await {
        match event.context("the watch")? {
            WatchEvent::Modified(lease) if lease["spec"]["holderIdentity"] == "" => {
                return Ok(lease);
            }
            WatchEvent::Error(status) => bail!("the watch: {}", status.message),
            _ => {}
        }
    }
    bail!("the watch has ended")
}

fn start_child(stage: &Stage<'_>, journal: &Journal) -> anyhow::Result<Child> {
    Command::new(&stage.programs.child)
        .arg(journal.path())
        .arg("minimum")
        .arg(std::process::id().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("starting the child")
}

/// One side's client.
struct Session {
    client: Client,
    requests: Request,
}

impl Session {
    async fn open(kubeconfig: &Path, namespace: &str) -> anyhow::Result<Self> {
        let read = Kubeconfig::read_from(kubeconfig)?;
        let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await?;
        let mut http = HttpConnector::new();
        http.enforce_http(false);
        http.set_nodelay(true);
        let https = config.rustls_https_connector_with_connector(http)?;
        let client = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .build(https);
        let service = ServiceBuilder::new()
            .layer(config.base_uri_layer())
            .option_layer(config.auth_layer()?)
            .map_err(BoxError::from)
            .service(client);
        Ok(Self {
            client: Client::new(service, namespace),
            requests: Request::new(format!(
                "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
            )),
        })
    }

    async fn create(&self, namespace: &str) -> anyhow::Result<Value> {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"namespace": namespace, "name": LEASE},
            "spec": {"holderIdentity": "first", "leaseDurationSeconds": 15},
        });
        let body = serde_json::to_vec(&lease)?;
        let request = self.requests.create(&PostParams::default(), body)?;
        self.client.request(request).await.context("the creation")
    }

    /// Writes another holder over exactly the version that was seen.
    async fn update(&self, seen: &Value, holder: &str) -> anyhow::Result<Value> {
        let mut lease = seen.clone();
        lease["spec"]["holderIdentity"] = json!(holder);
        let body = serde_json::to_vec(&lease)?;
        let params = PostParams::default();
        let request = self.requests.replace(LEASE, &params, body)?;
        self.client.request(request).await.context("a write")
    }

    async fn read(&self) -> anyhow::Result<Value> {
        let request = self.requests.get(LEASE, &GetParams::default())?;
        self.client.request(request).await.context("a read")
    }

    /// Everything after this version of the Lease.
    async fn watch(&self, seen: &Value) -> anyhow::Result<Events> {
        let version = seen["metadata"]["resourceVersion"].as_str();
        let params = WatchParams::default()
            .fields(&format!("metadata.name={LEASE}"))
            .timeout(WATCH_SECONDS);
        let version = version.context("a Lease without a version")?;
        let request = self.requests.watch(&params, version)?;
        let events = self.client.request_events(request).await;
        Ok(events.context("the watch")?.boxed_local())
    }
}
