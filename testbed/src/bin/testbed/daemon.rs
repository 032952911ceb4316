use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    process::{Command, ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process, setsid};
use testbed::{
    Binaries, Cluster, ClusterOptions, ControlPlane, Kind, Node, Options, kubernetes_version,
    missing_for_nodes, progress_on_stderr,
};
use tokio::signal::unix::{SignalKind, signal};

use crate::state::{Place, State};

const NOT_RUNNING: u8 = 3;

pub(crate) fn up(name: &str, port: Option<u16>, nodes: u8) -> anyhow::Result<()> {
    let place = Place::of(name)?;
    if place.try_own()?.is_none() {
        println!("# already running");
        show(&place.read()?);
        return Ok(());
    }
    prepare(nodes)?;
    let log = place.log();
    let errors = File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    command.args(["serve", "--detach", "--name", name]);
    command.arg(format!("--nodes={nodes}"));
    command.args(port.map(|port| format!("--port={port}")));
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(errors);
    let mut serve = command
        .spawn()
        .context("cannot start the control plane's process")?;
    let mut line = String::new();
    BufReader::new(serve.stdout.take().expect("stdout is piped")).read_line(&mut line)?;
    if line.is_empty() {
        serve.wait()?;
        bail!(
            "{}",
            fs::read_to_string(&log)?
                .trim()
                .trim_start_matches("error: ")
        );
    }
    show(&serde_json::from_str(&line)?);
    Ok(())
}

pub(crate) fn status(name: &str) -> anyhow::Result<ExitCode> {
    let place = Place::of(name)?;
    if place.try_own()?.is_some() {
        println!("no control plane named {name:?} runs; `testbed up` starts one");
        return Ok(ExitCode::from(NOT_RUNNING));
    }
    let state = place.read()?;
    println!("Kubernetes {} at {}", kubernetes_version(), state.server);
    println!("data and logs in {}", state.folder.display());
    if !state.nodes.is_empty() {
        println!("nodes: {}", state.nodes.join(", "));
    }
    let components = [
        ("etcd", Some(state.etcd_pid)),
        ("kube-apiserver", state.apiserver_pid),
    ];
    for (component, pid) in components {
        match pid.and_then(|pid| Some((pid, resident_megabytes(pid)?))) {
            Some((pid, megabytes)) => println!("{component}: pid {pid}, {megabytes} MB resident"),
            None => println!("{component}: ended"),
        }
    }
    show(&state);
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn down(name: &str) -> anyhow::Result<()> {
    const PATIENCE: Duration = Duration::from_secs(20);
    let place = Place::of(name)?;
    if place.try_own()?.is_some() {
        println!("no control plane named {name:?} runs");
        return Ok(());
    }
    let state = place.read()?;
    let pid = Pid::from_raw(state.pid).context("the state file has no pid")?;
    kill_process(pid, Signal::TERM).context("cannot signal the control plane's process")?;
    let deadline = Instant::now() + PATIENCE;
    while place.try_own()?.is_none() {
        if Instant::now() >= deadline {
            kill_process(pid, Signal::KILL).context("cannot kill the control plane's process")?;
            bail!("it did not end within {PATIENCE:?} and was killed");
        }
        thread::sleep(Duration::from_millis(20));
    }
    println!("ended");
    Ok(())
}

#[tokio::main]
pub(crate) async fn serve(
    name: &str,
    port: Option<u16>,
    nodes: u8,
    detach: bool,
) -> anyhow::Result<()> {
    if detach {
        setsid().context("cannot leave the session")?;
    }
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let place = Place::of(name)?;
    let Some(_owned) = place.try_own()? else {
        bail!("a control plane named {name:?} runs already; see `testbed status`");
    };
    let running = tokio::select! {
        running = Running::start(port, nodes) => running?,
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    };
    let plane = running.plane();
    let state = State {
        pid: i32::try_from(std::process::id())?,
        etcd_pid: plane.etcd_pid(),
        apiserver_pid: plane.apiserver_pid(),
        server: plane.server_url(),
        kubeconfig: plane.admin_kubeconfig()?,
        folder: plane.folder().to_owned(),
        nodes: running.nodes(),
    };
    place.write(&state)?;
    println!("{}", serde_json::to_string(&state)?);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    place.remove();
    running.stop().await;
    Ok(())
}

/// What is served.
enum Running {
    Plane(Box<ControlPlane>),
    Cluster(Box<Cluster>),
}

impl Running {
    async fn start(port: Option<u16>, nodes: u8) -> Result<Self, testbed::Error> {
        let plane = Options {
            port,
            ..Options::default()
        };
        if nodes == 0 {
            let plane = ControlPlane::start_with(plane).await?;
            return Ok(Self::Plane(Box::new(plane)));
        }
        let options = ClusterOptions {
            nodes,
            plane,
            ..ClusterOptions::default()
        };
        let cluster = Cluster::start_with(options).await?;
        Ok(Self::Cluster(Box::new(cluster)))
    }

    fn plane(&self) -> &ControlPlane {
        match self {
            Self::Plane(plane) => plane,
            Self::Cluster(cluster) => cluster.plane(),
        }
    }

    fn nodes(&self) -> Vec<String> {
        let name = |node: &Node| node.name().to_owned();
        match self {
            Self::Plane(_) => Vec::new(),
            Self::Cluster(cluster) => cluster.nodes().iter().map(name).collect(),
        }
    }

    async fn stop(self) {
        match self {
            Self::Plane(plane) => plane.stop().await,
            Self::Cluster(cluster) => cluster.stop().await,
        }
    }
}

/// Says what is missing, and builds with progress, before anything goes to the background.
fn prepare(nodes: u8) -> anyhow::Result<()> {
    let mut progress = progress_on_stderr();
    Binaries::prepare(&mut progress)?;
    if nodes == 0 {
        return Ok(());
    }
    let missing: Vec<String> = missing_for_nodes()
        .iter()
        .map(ToString::to_string)
        .collect();
    if !missing.is_empty() {
        bail!("nodes cannot run here: {}", missing.join("; "));
    }
    for kind in Kind::OF_NODES {
        Binaries::build(kind, &mut progress)?;
    }
    Ok(())
}

fn show(state: &State) {
    println!("export KUBECONFIG={}", state.kubeconfig.display());
}

fn resident_megabytes(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace()
        .next()?
        .parse::<u64>()
        .ok()
        .map(|kilobytes| kilobytes / 1024)
}
