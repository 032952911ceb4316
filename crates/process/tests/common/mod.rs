//! A stage for one test: a supervisor, and a socket on which the helper tells what it does.

// Not every test uses everything, and none is a library.
#![allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    unused_imports,
    clippy::unwrap_used
)]

mod skipped;

use std::cell::OnceCell;
use std::collections::VecDeque;
use std::future::Future;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use soloist_process::{Command, Exit, Supervisor, Tree, TreeEvent, now};
use tempfile::TempDir;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::UnixDatagram;

pub(crate) use skipped::skipped;

pub const HELPER: &str = env!("CARGO_BIN_EXE_process-test-helper");

/// Long enough for a loaded machine; a test that waits this long has failed.
pub const LIMIT: Duration = Duration::from_secs(30);

pub struct Stage {
    pub dir: TempDir,
    supervisor: OnceCell<Supervisor>,
    socket: UnixDatagram,
    reports: VecDeque<String>,
}

pub async fn within<T>(what: &str, work: impl Future<Output = T>) -> T {
    match tokio::time::timeout(LIMIT, work).await {
        Ok(done) => done,
        Err(_) => panic!("waited too long for {what}"),
    }
}

impl Stage {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(dir.path().join("report")).unwrap();
        Self {
            dir,
            supervisor: OnceCell::new(),
            socket,
            reports: VecDeque::new(),
        }
    }

    /// From the first call on this process reaps what it did not start.
    pub fn supervisor(&self) -> &Supervisor {
        self.supervisor
            .get_or_init(|| Supervisor::with_guard_program(HELPER).unwrap())
    }

    pub fn report_path(&self) -> PathBuf {
        self.dir.path().join("report")
    }

    pub fn helper(&self, args: &[&str]) -> Command {
        Command::new(HELPER)
            .args(args)
            .env("REPORT", self.report_path())
    }

    /// A tree that is let live until the test is over.
    pub fn spawn(&self, args: &[&str]) -> Tree {
        self.spawn_for(args, 2 * LIMIT)
    }

    pub fn spawn_for(&self, args: &[&str], validity: Duration) -> Tree {
        let tree = self
            .supervisor()
            .spawn(&self.helper(args), now() + validity);
        tree.unwrap()
    }

    /// What the helper says after this word.
    pub async fn hear(&mut self, word: &str) -> String {
        let report = self.hear_report(&[word]).await;
        let (_, rest) = report.split_once(' ').unwrap_or_default();
        rest.to_owned()
    }

    /// Which of these words comes first.
    pub async fn hear_any(&mut self, words: &[&str]) -> String {
        let report = self.hear_report(words).await;
        report.split(' ').next().unwrap_or_default().to_owned()
    }

    async fn hear_report(&mut self, words: &[&str]) -> String {
        let mut buffer = [0; 4096];
        within(&words.join(" or "), async {
            loop {
                let said = |report: &String| {
                    let word = report.split(' ').next();
                    word.is_some_and(|word| words.contains(&word))
                };
                if let Some(at) = self.reports.iter().position(said) {
                    return self.reports.remove(at).unwrap();
                }
                let length = self.socket.recv(&mut buffer).await.unwrap();
                let report = String::from_utf8(buffer[..length].to_vec()).unwrap();
                self.reports.push_back(report);
            }
        })
        .await
    }

    /// The process that says this word.
    pub async fn hear_process(&mut self, word: &str) -> Process {
        Process::of(self.hear(word).await.parse().unwrap())
    }
}

pub async fn next(tree: &mut Tree) -> Option<TreeEvent> {
    within("an event", tree.next_event()).await
}

pub async fn started(tree: &mut Tree) -> Process {
    match next(tree).await {
        Some(TreeEvent::Started { pid }) => {
            assert_eq!(tree.child_pid(), Some(pid));
            Process::of(pid)
        }
        other => panic!("not started: {other:?}"),
    }
}

/// The child ends like this, and then nothing is left.
pub async fn ends(tree: &mut Tree, exit: Exit) {
    assert_eq!(next(tree).await, Some(TreeEvent::Exited(exit)));
    assert_eq!(next(tree).await, Some(TreeEvent::Empty));
    assert_eq!(next(tree).await, None);
}

/// The tree is killed, in whatever way.
pub async fn killed(tree: &mut Tree) {
    ends(tree, Exit::Signal(9)).await;
}

/// Whatever comes before it: nothing is left in the end.
pub async fn empty(tree: &mut Tree) {
    let mut last = None;
    while let Some(event) = next(tree).await {
        last = Some(event);
    }
    assert_eq!(last, Some(TreeEvent::Empty));
}

/// Somebody's process, told from a later one with the same number.
pub struct Process {
    pub pid: u32,
    handle: Option<OwnedFd>,
}

impl Process {
    pub fn of(pid: u32) -> Self {
        Self {
            pid,
            handle: pidfd_open(raw(pid), PidfdFlags::empty()).ok(),
        }
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(raw(self.pid), signal).unwrap();
    }

    /// Waits for its end.
    pub async fn gone(mut self) {
        let Some(handle) = self.handle.take() else {
            return;
        };
        #[allow(deprecated)]
        let handle = AsyncFd::with_interest(handle, Interest::READABLE).unwrap();
        let what = format!("the end of process {}", self.pid);
        drop(within(&what, handle.readable()).await.unwrap());
    }

    pub fn is_alive(&self) -> bool {
        let Some(handle) = &self.handle else {
            return false;
        };
        let flags = rustix::event::PollFlags::IN;
        let mut fds = [rustix::event::PollFd::new(handle, flags)];
        let now = rustix::event::Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        rustix::event::poll(&mut fds, Some(&now)).unwrap() == 0
    }
}

fn raw(pid: u32) -> Pid {
    Pid::from_raw(pid.cast_signed()).unwrap()
}

/// The processor time of a process, in ticks of a hundredth of a second.
pub fn cpu_time(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let field = |at: usize| fields.split(' ').nth(at).unwrap().parse::<u64>().unwrap();
    field(11) + field(12)
}

/// The helper as a soloist of its own, which is killed and reaped at the end of the test.
pub struct Soloist(pub std::process::Child);

impl Soloist {
    pub fn start(report: &std::path::Path, args: &[&str]) -> Self {
        let mut command = std::process::Command::new(HELPER);
        Self(command.args(args).env("REPORT", report).spawn().unwrap())
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(raw(self.0.id()), signal).unwrap();
    }
}

impl Drop for Soloist {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
