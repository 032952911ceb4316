//! Replicas of the real program on one lease, and a feed server, all of which end with the test.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use tempfile::TempDir;
use testbed::Link;
pub(crate) use testbed::programs::send;
use testbed::programs::{self, is_alive};

use crate::place::Place;

/// Long enough for a loaded machine; a test that waits this long has failed.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Looks until something is there, or the limit has passed.
pub(crate) fn wait_for<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    programs::wait_for(what, LIMIT, look)
}

/// All that belongs to one test.
pub(crate) struct Stage {
    folder: TempDir,
    pub(crate) place: Place,
    replicas: Vec<Replica>,
    server: Option<Child>,
    address: SocketAddr,
}

/// One `soloist run`.
pub(crate) struct Replica {
    pub(crate) process: Child,
    pub(crate) link: Option<Link>,
    log: PathBuf,
}

/// A child that runs, and the replica that runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Running {
    pub(crate) replica: usize,
    pub(crate) pid: u32,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("soloist-feed-")
            .tempdir_in("/dev/shm")
            .or_else(|_| tempfile::tempdir())
            .unwrap();
        Self {
            place: Place::new(folder.path()),
            folder,
            replicas: Vec::new(),
            server: None,
            address: free_address(),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Where the server of this stage listens, now or later.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Starts the feed server, on the same address and store each time.
    pub(crate) fn start_server(&mut self, flags: &[&str]) {
        assert!(self.server.is_none(), "it runs");
        let ready = self.path("port");
        let _ = fs::remove_file(&ready);
        let mut command = Command::new(env!("CARGO_BIN_EXE_feed-server"));
        command
            .arg(format!("--listen={}", self.address))
            .arg(format!("--store={}", self.path("feed.redb").display()))
            .arg(format!("--port-file={}", ready.display()))
            .args(flags)
            .stdout(Stdio::null())
            .stderr(self.append("feed-server.log"));
        self.server = Some(command.spawn().unwrap());
        wait_for("the feed server", || ready.exists().then_some(()));
    }

    /// Ends the feed server, one way or the other.
    pub(crate) fn stop_server(&mut self, signal: Signal) {
        let mut server = self.server.take().expect("a server");
        send(server.id(), signal);
        server.wait().unwrap();
    }

    /// Starts a replica that runs this program.
    pub(crate) fn start_replica(&mut self, flags: &[&str], program: &str, arguments: &[String]) {
        let number = self.replicas.len();
        let identity = format!("r{number}");
        let log = self.path(&format!("{identity}.log"));
        let (place, link) = self.place.replica();
        let mut command = Command::new(env!("CARGO_BIN_EXE_feed-soloist"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("SOLOIST_") {
                command.env_remove(name);
            }
        }
        command
            .arg("run")
            .args(place)
            .arg(format!("--identity={identity}"))
            .args(flags)
            .arg("--")
            .arg(program)
            .args(arguments)
            // Who is killed leaves things behind; they go with the folder.
            .env("TMPDIR", self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap());
        self.replicas.push(Replica {
            process: command.spawn().unwrap(),
            link,
            log,
        });
    }

    /// Starts a replica that runs the worker, on the server and the output of this stage.
    pub(crate) fn start_worker(&mut self, flags: &[&str], more: &[&str]) {
        let server = format!("--server=http://{}", self.address);
        let output = format!("--output={}", self.output().display());
        let more = more.iter().map(|&argument| argument.to_owned());
        let arguments: Vec<_> = [server, output].into_iter().chain(more).collect();
        self.start_replica(flags, env!("CARGO_BIN_EXE_feed-worker"), &arguments);
    }

    /// What the workers of this stage write.
    pub(crate) fn output(&self) -> PathBuf {
        self.path("output")
    }

    /// How many messages stand in the output.
    pub(crate) fn lines(&self) -> usize {
        let output = fs::read(self.output()).unwrap_or_default();
        output.iter().filter(|&&byte| byte == b'\n').count()
    }

    pub(crate) fn wait_lines(&self, many: usize) {
        wait_for("messages", || (self.lines() >= many).then_some(()));
    }

    /// Waits until a replica or its child has logged this.
    pub(crate) fn wait_log(&self, number: usize, text: &str) {
        let replica = &self.replicas[number];
        wait_for(text, || replica.log().contains(text).then_some(()));
    }

    pub(crate) fn replica(&mut self, number: usize) -> &mut Replica {
        &mut self.replicas[number]
    }

    /// How many of the replicas have not ended.
    pub(crate) fn living(&mut self) -> usize {
        let ended = |replica: &mut Replica| replica.process.try_wait().unwrap().is_some();
        let replicas = self.replicas.iter_mut();
        replicas.map(ended).filter(|ended| !ended).count()
    }

    /// The child that runs now. Two of them end the test.
    pub(crate) fn running(&self) -> Option<Running> {
        let numbered = self.replicas.iter().enumerate();
        let running: Vec<Running> = numbered
            .filter_map(|(replica, it)| {
                let pid = it.child()?;
                is_alive(pid).then_some(Running { replica, pid })
            })
            .collect();
        assert!(running.len() < 2, "two run at once: {running:?}");
        running.first().copied()
    }

    /// A child that runs and is not this one.
    pub(crate) fn wait_running(&self, not: Option<Running>) -> Running {
        wait_for("a child that runs", || {
            self.running().filter(|running| Some(*running) != not)
        })
    }

    fn append(&self, name: &str) -> File {
        let mut options = fs::OpenOptions::new();
        let opened = options.create(true).append(true).open(self.path(name));
        opened.unwrap()
    }

    /// What all have logged, for who must find out why a test failed.
    fn story(&self) -> String {
        let mut story = String::new();
        let replicas = self.replicas.iter().map(|replica| replica.log.clone());
        for path in replicas.chain([self.path("feed-server.log")]) {
            let log = fs::read_to_string(&path).unwrap_or_default();
            let name = path.file_name().unwrap_or_default().display().to_string();
            story.push_str(&format!("--- {name}\n{log}\n"));
        }
        story
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let replicas = self.replicas.iter_mut().map(|replica| &mut replica.process);
        for process in replicas.chain(&mut self.server) {
            let _ = process.kill();
            let _ = process.wait();
        }
        programs::end_all(self.folder.path(), LIMIT);
        if thread::panicking() {
            eprintln!("{}", self.story());
        }
    }
}

impl Replica {
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        send(self.process.id(), signal);
    }

    /// Waits for its end, and says with which code.
    pub(crate) fn exit_code(&mut self) -> Option<i32> {
        let process = &mut self.process;
        wait_for("a replica's end", || process.try_wait().unwrap()).code()
    }

    /// The child that it started last.
    fn child(&self) -> Option<u32> {
        let log = self.log();
        let mut lines = log.lines().rev();
        let line = lines.find(|line| line.contains("the child has started"))?;
        let (_, rest) = line.split_once("pid=")?;
        rest.split(' ').next()?.parse().ok()
    }
}

/// An address of this stage alone: nobody listens there, and nobody's connection comes from there.
fn free_address() -> SocketAddr {
    static STAGES: AtomicU8 = AtomicU8::new(1);
    let stage = STAGES.fetch_add(1, Ordering::Relaxed);
    let [.., high, low] = std::process::id().to_be_bytes();
    (Ipv4Addr::new(127, high | 1, low, stage), 50051).into()
}
