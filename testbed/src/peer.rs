use std::{
    fs::File,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, ExitStatus, Stdio},
    thread,
    time::Duration,
};

use jiff::Timestamp;
use rustix::process::Signal;
use serde::Deserialize;
use tokio::{
    sync::mpsc,
    time::{Instant, sleep, timeout},
};

use crate::{
    Error,
    process::{freeze, guarded, signal, spawn},
};

const NAME: &str = "peer";

/// How a [`Peer`] contends.
#[derive(Debug, Clone)]
pub struct PeerOptions {
    /// Whose rights it has, and by which path.
    pub kubeconfig: PathBuf,
    /// What it holds, as client-go names it: `leases`, or with [`crate::Kind::PeerLegacy`] another.
    pub lock: String,
    /// The lock's namespace.
    pub namespace: String,
    /// The lock's name.
    pub lease: String,
    /// The peer's identity.
    pub identity: String,
    /// client-go's `LeaseDuration`.
    pub lease_duration: Duration,
    /// client-go's `RenewDeadline`.
    pub renew_deadline: Duration,
    /// client-go's `RetryPeriod`.
    pub retry_period: Duration,
    /// client-go's `ReleaseOnCancel`.
    pub release_on_cancel: bool,
    /// Whether the child outlives a peer that is killed, as the children of plain programs do.
    pub orphan_child: bool,
    /// A command to run while it leads; none if empty.
    pub command: Vec<String>,
    /// A file for client-go's own log and the child's output, appended to; otherwise both are discarded.
    pub log: Option<PathBuf>,
}

impl PeerOptions {
    /// client-go's usual 15/10/2 seconds, released on cancel, without a child.
    pub fn new(
        kubeconfig: impl Into<PathBuf>,
        namespace: &str,
        lease: &str,
        identity: &str,
    ) -> Self {
        Self {
            kubeconfig: kubeconfig.into(),
            lock: "leases".to_owned(),
            namespace: namespace.to_owned(),
            lease: lease.to_owned(),
            identity: identity.to_owned(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            release_on_cancel: true,
            orphan_child: false,
            command: Vec::new(),
            log: None,
        }
    }
}

/// A line that a [`Peer`] prints.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[expect(
    missing_docs,
    reason = "time is when it was printed; the other fields are named after what they are"
)]
pub enum PeerEvent {
    /// It leads; its child is started next.
    Started { time: Timestamp },
    /// It leads no more and its child has ended; printed at the end by a peer that never led, too.
    Stopped { time: Timestamp },
    /// It saw who leads.
    NewLeader { time: Timestamp, leader: String },
    /// Its child runs.
    ChildStarted { time: Timestamp, pid: u32 },
    /// Its child has ended.
    ChildExited {
        time: Timestamp,
        pid: u32,
        status: String,
    },
    /// Its child could not be started.
    ChildFailed { time: Timestamp, error: String },
}

/// A process with client-go's leader election. Dropping it kills it.
#[derive(Debug)]
pub struct Peer {
    child: Child,
    events: mpsc::UnboundedReceiver<PeerEvent>,
}

impl Peer {
    /// Starts a peer; `program` is [`crate::Binaries::peer`].
    pub fn start(program: &Path, options: &PeerOptions) -> Result<Self, Error> {
        let mut command = guarded(program);
        command
            .arg(format!("-kubeconfig={}", options.kubeconfig.display()))
            .arg(format!("-lock={}", options.lock))
            .arg(format!("-namespace={}", options.namespace))
            .arg(format!("-lease={}", options.lease))
            .arg(format!("-identity={}", options.identity))
            .arg(format!(
                "-lease-duration={}ms",
                options.lease_duration.as_millis()
            ))
            .arg(format!(
                "-renew-deadline={}ms",
                options.renew_deadline.as_millis()
            ))
            .arg(format!(
                "-retry-period={}ms",
                options.retry_period.as_millis()
            ))
            .arg(format!("-release-on-cancel={}", options.release_on_cancel))
            .arg(format!("-orphan-child={}", options.orphan_child))
            .arg("--")
            .args(&options.command)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log(options.log.as_deref())?);
        let mut child = spawn(command).map_err(|source| Error::Spawn {
            program: NAME.to_owned(),
            source,
        })?;
        let output = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let (sender, events) = mpsc::unbounded_channel();
        thread::spawn(move || {
            let lines = output.lines().map_while(Result::ok);
            for event in lines.filter_map(|line| serde_json::from_str(&line).ok()) {
                if sender.send(event).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, events })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The next event for which `wanted` holds; the ones before it are dropped.
    pub async fn wait_for(
        &mut self,
        patience: Duration,
        wanted: impl Fn(&PeerEvent) -> bool,
    ) -> Result<PeerEvent, Error> {
        let next = async {
            while let Some(event) = self.events.recv().await {
                if wanted(&event) {
                    return Some(event);
                }
            }
            None
        };
        let missed = || Error::Timeout {
            awaited: "the peer's event".to_owned(),
            waited: patience,
        };
        timeout(patience, next)
            .await
            .ok()
            .flatten()
            .ok_or_else(missed)
    }

    /// Asks it to end (SIGTERM).
    pub fn terminate(&self) -> Result<(), Error> {
        signal(&self.child, NAME, Signal::TERM)
    }

    /// Stops it (SIGSTOP).
    pub fn freeze(&self) -> Result<(), Error> {
        freeze(&self.child, NAME)
    }

    /// Lets it go on (SIGCONT).
    pub fn thaw(&self) -> Result<(), Error> {
        signal(&self.child, NAME, Signal::CONT)
    }

    /// Kills it (SIGKILL).
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits until it has ended.
    pub async fn exited(&mut self, patience: Duration) -> Result<ExitStatus, Error> {
        let deadline = Instant::now() + patience;
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Ok(status);
            }
            if Instant::now() >= deadline {
                return Err(Error::Timeout {
                    awaited: "the peer's end".to_owned(),
                    waited: patience,
                });
            }
            sleep(Duration::from_millis(5)).await;
        }
    }
}

fn log(path: Option<&Path>) -> Result<Stdio, Error> {
    let Some(path) = path else {
        return Ok(Stdio::null());
    };
    let file = File::options().create(true).append(true).open(path);
    Ok(file.map_err(Error::io("open", path))?.into())
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.kill();
    }
}
