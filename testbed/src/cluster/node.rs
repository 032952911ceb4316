//! A node: containerd, kubelet and kube-proxy on a machine of their own.

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use rustix::process::Signal;

use super::{
    files, lan,
    logind::Logind,
    machine::{Machine, network_of},
};
use crate::{Binaries, Error, Kind, process::Component};

/// One node of a [`Cluster`](crate::Cluster).
#[derive(Debug)]
pub struct Node {
    number: u8,
    name: String,
    folder: PathBuf,
    logind: Logind,
    // Dropped in this order: the machine, whose end is theirs, last.
    kube_proxy: Mutex<Option<Component>>,
    kubelet: Mutex<Option<Component>>,
    containerd: Mutex<Option<Component>>,
    machine: Machine,
}

/// Where the API server is for a node, and as whom its programs come.
pub(super) struct Credentials {
    pub kubelet: PathBuf,
    pub kube_proxy: PathBuf,
}

impl Node {
    pub(super) fn create(number: u8, folder: &Path, cgroup_prefix: &str) -> Result<Self, Error> {
        let name = name(number);
        let folder = folder.join(&name);
        fs::create_dir_all(&folder).map_err(Error::io("create", &folder))?;
        let machine = Machine::start(&name, &folder, &format!("{cgroup_prefix}{name}"))?;
        Ok(Self {
            number,
            name,
            logind: Logind::start(&folder)?,
            folder,
            kube_proxy: Mutex::default(),
            kubelet: Mutex::default(),
            containerd: Mutex::default(),
            machine,
        })
    }

    /// Its name, such as `node-1`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address on the nodes' network.
    pub fn address(&self) -> Ipv4Addr {
        lan::address(self.number)
    }

    /// Its own files, logs included.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Where the logs of its Pods are: `NAMESPACE_POD_UID/CONTAINER/RESTARTS.log`, with containerd's time in each line.
    pub fn pod_logs(&self) -> PathBuf {
        self.folder.join("var/log/pods")
    }

    /// Its network namespace, as a file.
    pub fn network(&self) -> PathBuf {
        network_of(self.machine.first_process())
    }

    /// Runs a program on the node to its end, and returns what it printed.
    pub fn run(&self, program: &str, arguments: &[&str]) -> Result<String, Error> {
        self.machine.run(program, arguments, &[])
    }

    /// Gives the node an image, as a docker-archive.
    pub fn import_image(&self, archive: &[u8]) -> Result<(), Error> {
        self.ctr(&["-n", "k8s.io", "images", "import", "-"], archive)
            .map(drop)
    }

    /// containerd's client.
    pub(super) fn ctr(&self, arguments: &[&str], input: &[u8]) -> Result<String, Error> {
        let program = Binaries::path(Kind::Ctr).display().to_string();
        let arguments = [&["-a", files::CONTAINERD_SOCKET], arguments].concat();
        self.machine.run(&program, &arguments, input)
    }

    pub(super) fn number(&self) -> u8 {
        self.number
    }

    pub(super) fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Its address, and the ways to the Pods of the others.
    pub(super) fn set_up_network(&self, nodes: u8) -> Result<(), Error> {
        let address = format!("{}/24", self.address());
        self.run("ip", &["address", "add", &address, "dev", "eth0"])?;
        self.run("ip", &["link", "set", "eth0", "up"])?;
        self.run(
            "ip",
            &["route", "add", "default", "via", &lan::GATEWAY.to_string()],
        )?;
        for other in (1..=nodes).filter(|&other| other != self.number) {
            let pods = format!("{}.0/24", lan::pod_network(other));
            let via = lan::address(other).to_string();
            self.run("ip", &["route", "add", &pods, "via", &via])?;
        }
        Ok(())
    }

    pub(super) fn start_containerd(&self) -> Result<(), Error> {
        const PATIENCE: Duration = Duration::from_secs(30);
        let root = self.folder.join("containerd");
        let config = self.write(
            "containerd.toml",
            &files::containerd(
                &root.display().to_string(),
                &Binaries::path(Kind::ContainerdShim).display().to_string(),
            ),
        )?;
        self.machine.run("mkdir", &["-p", "/run/cni/net.d"], &[])?;
        self.machine.run(
            "tee",
            &["/run/cni/net.d/pods.conflist"],
            files::cni(self.number).as_bytes(),
        )?;
        let mut containerd = self.start(
            "containerd",
            &Binaries::path(Kind::Containerd),
            &[format!("--config={config}")],
        )?;
        let deadline = Instant::now() + PATIENCE;
        while self.ctr(&["version"], &[]).is_err() {
            containerd.check()?;
            if Instant::now() >= deadline {
                return Err(containerd.not_ready(PATIENCE));
            }
            thread::sleep(Duration::from_millis(50));
        }
        *lock(&self.containerd) = Some(containerd);
        Ok(())
    }

    pub(super) fn start_agents(&self, credentials: &Credentials) -> Result<(), Error> {
        self.write("kubelet.yaml", &files::kubelet())?;
        let kubeconfig = self.folder.join("kubelet.kubeconfig");
        fs::copy(&credentials.kubelet, &kubeconfig).map_err(Error::io("write", &kubeconfig))?;
        self.start_kubelet()?;
        let arguments =
            files::kube_proxy(&credentials.kube_proxy.display().to_string(), &self.name);
        let proxy = self.start("kube-proxy", &Binaries::path(Kind::KubeProxy), &arguments)?;
        *lock(&self.kube_proxy) = Some(proxy);
        Ok(())
    }

    /// Starts the kubelet again. Does nothing while it runs.
    pub fn start_kubelet(&self) -> Result<(), Error> {
        let mut running = lock(&self.kubelet);
        if running.is_some() {
            return Ok(());
        }
        let path = |name: &str| self.folder.join(name).display().to_string();
        let arguments = [
            ("config", path("kubelet.yaml")),
            ("kubeconfig", path("kubelet.kubeconfig")),
            ("cert-dir", path("kubelet-certificates")),
            ("hostname-override", self.name.clone()),
            ("node-ip", self.address().to_string()),
        ]
        .map(|(flag, value)| format!("--{flag}={value}"));
        *running = Some(self.start("kubelet", &Binaries::path(Kind::Kubelet), &arguments)?);
        Ok(())
    }

    /// Kills the kubelet (SIGKILL); containers go on without it. Undone by [`Self::start_kubelet`].
    pub fn stop_kubelet(&self) {
        drop(lock(&self.kubelet).take());
    }

    /// Stops kube-proxy (SIGSTOP): what it has written stays, and no change of an endpoint gets here. Undone by
    /// [`Self::release_kube_proxy`].
    pub fn hold_kube_proxy(&self) -> Result<(), Error> {
        lock(&self.kube_proxy)
            .as_ref()
            .map_or(Ok(()), |proxy| proxy.signal_program(Signal::STOP))
    }

    /// Lets kube-proxy go on.
    pub fn release_kube_proxy(&self) -> Result<(), Error> {
        let proxy = lock(&self.kube_proxy);
        proxy.as_ref().map_or(Ok(()), |proxy| {
            proxy.signal_program(Signal::CONT)?;
            // `nsenter` stops with its program.
            proxy.thaw()
        })
    }

    /// Tells the kubelet that the machine is about to shut down, as systemd-logind does it: it ends all its Pods, each within its
    /// own grace period or [`Self::SHUTDOWN_GRACE`]. With `false` the shutdown is called off, and the node takes Pods again.
    pub fn shut_down(&self, is_near: bool) -> Result<(), Error> {
        let told = self.logind.prepare_for_shutdown(is_near);
        told.map_err(Error::io("tell of a shutdown on", &self.folder))
    }

    /// What a Pod has at most when its node shuts down.
    pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(files::SHUTDOWN_GRACE_SECONDS);

    /// An error if one of its programs has ended by itself.
    pub fn check(&self) -> Result<(), Error> {
        for component in [&self.containerd, &self.kubelet, &self.kube_proxy] {
            lock(component).as_mut().map_or(Ok(()), Component::check)?;
        }
        Ok(())
    }

    fn start(
        &self,
        name: &'static str,
        program: &Path,
        arguments: &[String],
    ) -> Result<Component, Error> {
        let mut command = self.machine.command(program);
        let temporary = self.folder.join("tmp");
        fs::create_dir_all(&temporary).map_err(Error::io("create", &temporary))?;
        command.args(arguments).env_clear();
        command.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        command.env("HOME", &self.folder).env("TMPDIR", temporary);
        command.env("DBUS_SYSTEM_BUS_ADDRESS", self.logind.address());
        let component = Component::start_command(name, command, &self.folder, Stdio::null())?;
        Ok(component.wrapping_a_program())
    }

    fn write(&self, name: &str, text: &str) -> Result<String, Error> {
        let path = self.folder.join(name);
        fs::write(&path, text).map_err(Error::io("write", &path))?;
        Ok(path.display().to_string())
    }
}

/// The name of the node with this number.
pub(super) fn name(number: u8) -> String {
    format!("node-{number}")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
