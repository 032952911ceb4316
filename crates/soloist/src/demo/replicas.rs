//! Three replicas of this very program on one lease, and what can be done to them.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, kill_process, pidfd_open,
    set_child_subreaper, set_parent_process_death_signal, wait,
};
use soloist_core::time::Moment;
use soloist_elector::clock;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::{sleep, timeout};

pub(super) const JOURNAL: &str = "journal";
pub(super) const LOCK: &str = "lock";
pub(super) const FEED: &str = "feed";
/// The lease is in a folder of this one, to which each replica has a way of its own, a link.
const STORE: &str = "store";
const WAYS: &str = "ways";
const LEASE: &str = "lease/demo";
const NO_FOLDER: &str = "no-folder";

pub(super) const NAMES: [&str; 3] = ["a", "b", "c"];

/// The shortest lease that there is: a frozen leader is replaced soon.
const FLAGS: [&str; 11] = [
    "--lease-duration=2s",
    "--renew-deadline=1400ms",
    "--retry-period=200ms",
    "--stop-timeout=5s",
    "--grace-period=10s",
    // However often somebody crashes the child, that is no reason to give the lease away.
    "--restart-window=1s",
    // Whoever was told to hand over may soon lead again.
    "--cool-down=1s",
    "--log-status=0s",
    "--name=demo",
    "--ready=started",
    "--health=none",
];

/// What a replica that is asked to stop may take before it is killed; its child ends at once.
const STOP_LIMIT: Duration = Duration::from_secs(8);
const KILL_LIMIT: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(2);

/// All processes of the demo: what a dead replica leaves comes to us, so that none is lost.
pub(super) struct Replicas {
    folder: PathBuf,
    running: BTreeMap<&'static str, Pid>,
    /// Of those that have ended since somebody asked.
    ended: HashMap<Pid, WaitStatus>,
}

impl Replicas {
    pub(super) fn new(folder: &Path) -> anyhow::Result<Self> {
        set_child_subreaper(Some(rustix::process::getpid())).context("becoming a subreaper")?;
        for name in [STORE, WAYS] {
            let made = DirBuilder::new().mode(0o700).create(folder.join(name));
            made.with_context(|| format!("the folder {name}"))?;
        }
        File::create(folder.join(NO_FOLDER))?;
        Ok(Self {
            folder: folder.to_owned(),
            running: BTreeMap::new(),
            ended: HashMap::new(),
        })
    }

    pub(super) fn start(&mut self, name: &'static str) -> anyhow::Result<()> {
        self.reconnect(name)?;
        let log = self.folder.join(format!("{name}.log"));
        let log = File::options().append(true).create(true).open(log)?;
        let mut command = self.this_program()?;
        command.args(["demo-part", "replica"]).arg(&self.folder);
        command.arg(name).stderr(log);
        let pid = spawn(command).with_context(|| format!("starting replica {name}"))?;
        self.running.insert(name, pid);
        Ok(())
    }

    fn this_program(&self) -> anyhow::Result<Command> {
        let mut command = Command::new(std::env::current_exe().context("this program's path")?);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("SOLOIST_") {
                command.env_remove(name);
            }
        }
        // Whoever is killed leaves sockets behind: they go with the folder.
        command
            .env("TMPDIR", &self.folder)
            .env("XDG_RUNTIME_DIR", &self.folder)
            .env_remove("NOTIFY_SOCKET")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C on the terminal is for us alone.
            .process_group(0);
        Ok(command)
    }

    pub(super) fn pid(&self, name: &str) -> anyhow::Result<Pid> {
        let pid = self.running.get(name).copied();
        pid.ok_or_else(|| anyhow!("there is no replica {name}"))
    }

    /// `soloist handover` to whoever is ready; its log has what it said.
    pub(super) async fn hand_over(&mut self) -> anyhow::Result<()> {
        let mut command = self.this_program()?;
        command
            .args(["handover", "--name=demo"])
            .arg(store(&self.folder.join(STORE)));
        let said = File::create(self.folder.join("handover.log"))?;
        let pid = spawn(command.stderr(said)).context("starting soloist handover")?;
        let status = self.end_of(pid, STOP_LIMIT).await?;
        if status.exit_status() != Some(0) {
            bail!("soloist handover failed: {}", self.log("handover"));
        }
        Ok(())
    }

    /// What it does with the lease fails from now on.
    pub(super) fn cut_off(&self, name: &str) -> anyhow::Result<()> {
        self.lead(name, NO_FOLDER)
    }

    pub(super) fn reconnect(&self, name: &str) -> anyhow::Result<()> {
        self.lead(name, STORE)
    }

    /// In one step, so that there is a way at any moment.
    fn lead(&self, name: &str, to: &str) -> anyhow::Result<()> {
        let ways = self.folder.join(WAYS);
        let next = ways.join(format!("{name}.next"));
        let led =
            symlink(self.folder.join(to), &next).and_then(|()| fs::rename(&next, ways.join(name)));
        led.with_context(|| format!("the way of replica {name} to the lease"))
    }

    /// Waits for a replica that is about to end, which is no longer one then.
    pub(super) async fn wait_end(&mut self, name: &str) -> anyhow::Result<WaitStatus> {
        let pid = self.pid(name)?;
        let status = self.end_of(pid, STOP_LIMIT).await?;
        self.running.remove(name);
        Ok(status)
    }

    async fn end_of(&mut self, pid: Pid, limit: Duration) -> anyhow::Result<WaitStatus> {
        let deadline = clock::now() + limit;
        loop {
            self.reap();
            if let Some(status) = self.ended.remove(&pid) {
                return Ok(status);
            }
            if clock::now() > deadline {
                bail!("process {} does not end", pid.as_raw_nonzero());
            }
            sleep(LOOK).await;
        }
    }

    /// Nobody ends without having been told to.
    pub(super) fn check(&mut self) -> anyhow::Result<()> {
        self.reap();
        for (name, pid) in &self.running {
            if let Some(status) = self.ended.get(pid) {
                bail!("replica {name} ended ({status:?}): {}", self.log(name));
            }
        }
        // The rest are orphans.
        self.ended.clear();
        Ok(())
    }

    fn reap(&mut self) -> bool {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => self.ended.insert(pid, status),
                Err(Errno::INTR) => continue,
                Ok(None) => return false,
                Err(_) => return true,
            };
        }
    }

    /// The last lines of somebody's log.
    pub(super) fn log(&self, name: &str) -> String {
        let log = fs::read_to_string(self.folder.join(format!("{name}.log")));
        let log = log.unwrap_or_default();
        let lines: Vec<&str> = log.lines().rev().take(5).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// Nothing is left when this returns, or it says what.
    pub(super) async fn end(&mut self) -> anyhow::Result<()> {
        for pid in self.running.values() {
            send(*pid, Signal::CONT);
            send(*pid, Signal::TERM);
        }
        let begun = clock::now();
        while !self.reap() {
            let waited = clock::now().since(begun);
            if waited > STOP_LIMIT {
                self.living()
                    .into_iter()
                    .for_each(|pid| send(pid, Signal::KILL));
            }
            if waited > STOP_LIMIT + KILL_LIMIT {
                bail!("some processes do not end: {:?}", self.living());
            }
            sleep(LOOK).await;
        }
        Ok(())
    }

    /// Our children: replicas, and what became ours.
    fn living(&self) -> Vec<Pid> {
        let ours = std::process::id();
        let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let pids = pids.filter(|pid| parent(*pid) == Some(ours));
        pids.filter_map(|pid: u32| Pid::from_raw(pid.cast_signed()))
            .collect()
    }
}

/// Waiting is `Replicas`' business, for orphans and its own alike.
#[allow(clippy::zombie_processes)]
fn spawn(mut command: impl std::borrow::BorrowMut<Command>) -> io::Result<Pid> {
    let child = command.borrow_mut().spawn()?;
    Ok(Pid::from_child(&child))
}

fn store(folder: &Path) -> String {
    format!("--store=file:{}", folder.join(LEASE).display())
}

/// Becomes a replica, which is killed when the demo is: its guard kills the child then.
pub(super) fn become_replica(folder: &Path, name: &str) -> anyhow::Error {
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        return anyhow!(error).context("asking for a signal at the demo's end");
    }
    let this = match std::env::current_exe() {
        Ok(this) => this,
        Err(error) => return anyhow!(error).context("this program's path"),
    };
    let mut command = Command::new(&this);
    command
        .arg("run")
        .args(FLAGS)
        .arg(store(&folder.join(WAYS).join(name)));
    command.args(["--identity", name, "--"]).arg(&this);
    command.args(["demo-part", "child"]).arg(folder);
    anyhow!(command.exec()).context("becoming soloist run")
}

pub(super) fn send(pid: Pid, signal: Signal) {
    // Who is dead already needs none.
    let _ = kill_process(pid, signal);
}

fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(1)?.parse().ok()
}

/// The guard of a child.
pub(super) fn guard_of(child: Pid) -> anyhow::Result<Pid> {
    let guard = parent(child.as_raw_nonzero().get().unsigned_abs());
    let is_guard = |pid: &u32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm"));
        name.is_ok_and(|name| name.trim() == "soloist-guard")
    };
    let guard = guard.filter(is_guard);
    let guard = guard.and_then(|pid| Pid::from_raw(pid.cast_signed()));
    guard.context("the child's guard is not there")
}

/// A process whose end the kernel tells.
pub(super) struct Watched(AsyncFd<std::os::fd::OwnedFd>);

impl Watched {
    pub(super) fn open(pid: Pid) -> anyhow::Result<Self> {
        let descriptor = pidfd_open(pid, PidfdFlags::empty()).context("watching a child")?;
        // Its successor is `unsafe` because of types whose descriptor may change under tokio: an `OwnedFd`'s does not.
        #[allow(deprecated)]
        let watched = AsyncFd::with_interest(descriptor, Interest::READABLE)?;
        Ok(Self(watched))
    }

    /// When it ended.
    pub(super) async fn end(&self, limit: Duration) -> anyhow::Result<Moment> {
        let end = timeout(limit, self.0.readable()).await;
        let _ready = end.context("the child lives on")??;
        Ok(clock::now())
    }
}
