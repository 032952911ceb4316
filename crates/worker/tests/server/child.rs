//! A web server as a process of its own: this very test program, started again as another user.

use std::future::pending;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use rustix::process::{Pid, Signal, kill_process};
use soloist_worker::server::Server;
use soloist_worker::{Part, Worker};

use crate::stage::PATIENCE;

const NOBODY: &str = "65534";
const ENTRY: &str = "child::this_program_as_a_child";
/// Says that we are the child.
const MARK: &str = "SERVER_TEST_CHILD";

/// As whom a child runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// As whoever runs the test.
    Own,
    /// As an ordinary user that may attach socket filters.
    NobodyWithNetAdmin,
    /// As an ordinary user: whoever runs the test, or nobody if that is root.
    Nobody,
}

impl Kind {
    fn is_ourselves(self) -> bool {
        match self {
            Self::Own => true,
            Self::Nobody => !rustix::process::geteuid().is_root(),
            Self::NobodyWithNetAdmin => false,
        }
    }

    /// Why this kind cannot be played here.
    fn obstacle(self) -> Option<&'static str> {
        if self.is_ourselves() {
            return None;
        }
        if !rustix::process::geteuid().is_root() {
            return Some("only root can give a right");
        }
        let setpriv = Command::new("setpriv").arg("--version").output();
        setpriv.err().map(|_| "setpriv is not installed")
    }

    fn command(self, program: &std::path::Path) -> Command {
        if self.is_ourselves() {
            return Command::new(program);
        }
        let mut command = Command::new("setpriv");
        command.arg(format!("--reuid={NOBODY}"));
        command.arg(format!("--regid={NOBODY}"));
        command.arg("--clear-groups");
        if self == Self::NobodyWithNetAdmin {
            command.args(["--inh-caps=-all,+net_admin", "--ambient-caps=+net_admin"]);
        } else {
            command.args(["--inh-caps=-all", "--bounding-set=-all"]);
        }
        command.arg(program);
        command
    }
}

/// Killed when it is dropped.
pub(crate) struct WebChild {
    process: Child,
    log: Receiver<String>,
    _folder: tempfile::TempDir,
}

impl WebChild {
    /// On this listener, with so much time to drain. `None`, with a word, where this kind cannot be played.
    pub(crate) fn start(kind: Kind, listener: TcpListener, drain: Duration) -> Option<Self> {
        if let Some(obstacle) = kind.obstacle() {
            println!("skipped: {kind:?}: {obstacle}");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let everyone = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.path(), everyone).unwrap();
        // The build directory need not be open to everyone.
        let program = folder.path().join("server");
        std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        let mut process = kind
            .command(&program)
            .args(["--exact", ENTRY, "--nocapture", "--quiet"])
            .env(MARK, "1")
            .env("SOLOIST_NAME", "test")
            .env("SOLOIST_IDENTITY", "test")
            .env("SOLOIST_TERM", "1")
            .env("SOLOIST_TOKEN", "1")
            .env("SOLOIST_STOP_SECONDS", drain.as_secs_f64().to_string())
            .env("SOLOIST_DRAIN_SECONDS", drain.as_secs_f64().to_string())
            .env_remove("NOTIFY_SOCKET")
            .env_remove("WATCHDOG_USEC")
            .current_dir("/")
            .stdin(OwnedFd::from(listener))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = collect(process.stderr.take().unwrap());
        Some(Self {
            process,
            log,
            _folder: folder,
        })
    }

    pub(crate) fn terminate(&self) {
        let pid = Pid::from_child(&self.process);
        kill_process(pid, Signal::TERM).unwrap();
    }

    /// Its code and its log.
    pub(crate) async fn ended(mut self) -> (Option<i32>, String) {
        let ended = tokio::task::spawn_blocking(move || {
            let mut log = String::new();
            loop {
                match self.log.recv_timeout(PATIENCE) {
                    Ok(line) => log = log + &line + "\n",
                    Err(RecvTimeoutError::Disconnected) => break,
                    Err(RecvTimeoutError::Timeout) => panic!("the child does not end\n{log}"),
                }
            }
            // Its standard error has ended, so it has or is about to.
            let code = self.process.wait().unwrap().code();
            (code, log)
        });
        ended.await.unwrap()
    }
}

impl Drop for WebChild {
    fn drop(&mut self) {
        // It may have ended.
        let _killed = self.process.kill();
        let _reaped = self.process.wait();
    }
}

fn collect(from: impl Read + Send + 'static) -> Receiver<String> {
    let (line, lines) = channel();
    thread::spawn(move || {
        for read in BufReader::new(from).lines().map_while(Result::ok) {
            if line.send(read).is_err() {
                return;
            }
        }
    });
    lines
}

/// No test of its own: what a [`WebChild`] runs.
#[test]
fn this_program_as_a_child() {
    if std::env::var_os(MARK).is_none() {
        return;
    }
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let code = runtime.block_on(serve());
    std::process::exit(i32::from(code != ExitCode::SUCCESS));
}

async fn serve() -> ExitCode {
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .init();
    let worker = Worker::from_env().unwrap();
    let app = Router::new()
        .route("/hello", get(async || "hello"))
        .route("/never", get(async || pending::<()>().await));
    let server = Server::new(listener_from_stdin());
    worker.run([Part::server("http", server, app)]).await
}

/// The listener is nobody else's afterwards.
fn listener_from_stdin() -> tokio::net::TcpListener {
    let listener = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    let nothing = std::fs::File::open("/dev/null").unwrap();
    rustix::stdio::dup2_stdin(nothing).unwrap();
    let listener = TcpListener::from(listener);
    listener.set_nonblocking(true).unwrap();
    tokio::net::TcpListener::from_std(listener).unwrap()
}
