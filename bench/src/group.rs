//! Replicas of one kind on one Lease.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};
use testbed::{Account, ControlPlane, Peer, PeerOptions};
use tokio::time::{Instant, sleep};

use crate::journal::{Journal, Life};
use crate::programs::Programs;

/// Where nothing else is said.
pub(crate) const REPLICAS: usize = 3;
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
const USER: &str = "replica-0";
pub(crate) const LEASE: &str = "bench";
const POLL: Duration = Duration::from_millis(5);

/// Where groups perform.
pub(crate) struct Stage<'a> {
    pub(crate) plane: &'a ControlPlane,
    pub(crate) programs: Programs,
    kubeconfig: PathBuf,
}

impl<'a> Stage<'a> {
    pub(crate) fn new(plane: &'a ControlPlane, programs: Programs) -> anyhow::Result<Self> {
        let kubeconfig = plane.kubeconfig(USER, None)?;
        Ok(Self {
            plane,
            programs,
            kubeconfig,
        })
    }

    /// What the replicas find the cluster with.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A new namespace, with the rights on its Lease that a replica needs.
    pub(crate) async fn namespace(&self) -> anyhow::Result<String> {
        let namespace = self.plane.namespace("bench").await?;
        let user = Account::User(USER);
        self.plane.allow_lease(&namespace, LEASE, user).await?;
        Ok(namespace)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Soloist,
    /// With `--listen`, each on a free port.
    Listening,
    Peer,
}

/// Replicas with their child, and a namespace of their own.
pub(crate) struct Group<'a> {
    stage: &'a Stage<'a>,
    kind: Kind,
    pub(crate) namespace: String,
    // Dropped before the folder that they write to.
    replicas: Vec<Replica>,
    pub(crate) journal: Journal,
    folder: tempfile::TempDir,
    started: usize,
}

impl<'a> Group<'a> {
    /// Starts the replicas and waits until one leads.
    pub(crate) async fn start(
        stage: &'a Stage<'a>,
        kind: Kind,
        replicas: usize,
    ) -> anyhow::Result<Self> {
        let namespace = stage.namespace().await?;
        let folder = tempfile::tempdir().context("a folder")?;
        let mut group = Self {
            stage,
            kind,
            namespace,
            replicas: Vec::new(),
            journal: Journal::new(folder.path().join("journal")),
            folder,
            started: 0,
        };
        for _ in 0..replicas {
            group.add()?;
        }
        group.led().await?;
        Ok(group)
    }

    /// Starts one more replica.
    pub(crate) fn add(&mut self) -> anyhow::Result<()> {
        self.started += 1;
        let name = format!("replica-{}", self.started);
        let replica = match self.kind {
            Kind::Soloist => self.soloist(name, &[]),
            Kind::Listening => self.soloist(name, &["--listen", "127.0.0.1:0"]),
            Kind::Peer => self.peer(name),
        };
        self.replicas.push(replica?);
        Ok(())
    }

    /// What a replica has said until now.
    pub(crate) fn log(&self, name: &str) -> std::io::Result<String> {
        std::fs::read_to_string(self.log_of(name))
    }

    fn log_of(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.log"))
    }

    fn soloist(&self, name: String, flags: &[&str]) -> anyhow::Result<Replica> {
        let log = self.log_of(&name);
        let mut command = guarded(&self.stage.programs.soloist);
        command
            .args(["run", "--store", "kubernetes", "--name", LEASE])
            .args(["--namespace", &self.namespace, "--identity", &name])
            .arg("--kubeconfig")
            .arg(&self.stage.kubeconfig)
            .args(flags)
            .arg("--")
            .arg(&self.stage.programs.child)
            .arg(self.journal.path())
            .arg(&name)
            .env("TMPDIR", self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(log)?);
        let child = command.spawn().context("starting soloist")?;
        let process = Process::Soloist(Soloist(child));
        Ok(Replica { name, process })
    }

    fn peer(&self, name: String) -> anyhow::Result<Replica> {
        let (kubeconfig, namespace) = (&self.stage.kubeconfig, &self.namespace);
        let mut options = PeerOptions::new(kubeconfig, namespace, LEASE, &name);
        options.log = Some(self.log_of(&name));
        let program: &Path = &self.stage.programs.child;
        let command = [
            program.as_os_str(),
            self.journal.path().as_os_str(),
            name.as_ref(),
        ];
        options.command = command
            .map(|word| word.to_string_lossy().into_owned())
            .into();
        let peer = Peer::start(&self.stage.plane.binaries().peer, &options)?;
        let process = Process::Peer(Box::new(peer));
        Ok(Replica { name, process })
    }

    /// Waits until a child runs; the newest.
    pub(crate) async fn led(&self) -> anyhow::Result<Life> {
        let runs = |life: &Life| life.end.is_none();
        let lives = self
            .journal
            .wait("a leader", PATIENCE, |lives| lives.last().is_some_and(runs));
        let lives = lives.await?;
        lives.last().cloned().context("no life")
    }

    /// The leading replica and the others.
    pub(crate) async fn roles(&self) -> anyhow::Result<(&Replica, Vec<&Replica>)> {
        let leader = self.led().await?.replica;
        let (mut leading, standing): (Vec<_>, Vec<_>) = self
            .replicas
            .iter()
            .partition(|replica| replica.name == leader);
        Ok((leading.pop().context("the leader is not ours")?, standing))
    }

    /// Takes a replica out of the group.
    pub(crate) fn take(&mut self, name: &str) -> anyhow::Result<Replica> {
        let index = self
            .replicas
            .iter()
            .position(|replica| replica.name == name);
        Ok(self.replicas.swap_remove(index.context("no such replica")?))
    }
}

/// One replica. Dropping it ends it.
pub(crate) struct Replica {
    pub(crate) name: String,
    process: Process,
}

enum Process {
    Soloist(Soloist),
    Peer(Box<Peer>),
}

impl Replica {
    pub(crate) fn pid(&self) -> u32 {
        match &self.process {
            Process::Soloist(soloist) => soloist.0.id(),
            Process::Peer(peer) => peer.pid(),
        }
    }

    /// Asks it to end.
    pub(crate) fn terminate(&self) -> anyhow::Result<()> {
        match &self.process {
            Process::Soloist(soloist) => soloist.terminate()?,
            Process::Peer(peer) => peer.terminate()?,
        }
        Ok(())
    }

    /// Waits until it has ended by itself.
    pub(crate) async fn exited(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        match &mut self.process {
            Process::Peer(peer) => {
                peer.exited(PATIENCE).await?;
            }
            Process::Soloist(soloist) => {
                while soloist.0.try_wait()?.is_none() {
                    anyhow::ensure!(Instant::now() < deadline, "{} does not end", self.name);
                    sleep(POLL).await;
                }
            }
        }
        Ok(())
    }
}

struct Soloist(Child);

impl Soloist {
    fn terminate(&self) -> anyhow::Result<()> {
        kill_process(Pid::from_child(&self.0), Signal::TERM).context("SIGTERM to soloist")
    }
}

/// Killed, not asked: its guard ends the child.
impl Drop for Soloist {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A command whose process is killed when this one ends, however it ends.
///
/// The shell closes the gap in which this process dies before the parent-death signal is set.
pub(crate) fn guarded(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args(["--pdeathsig", "KILL", "--", "sh", "-c"])
        .arg(r#"[ "$PPID" = "$0" ] && exec "$@""#)
        .arg(std::process::id().to_string())
        .arg(program);
    command
}
