//! A web server as a process of its own: this very test program, started again as another user.

use std::future::pending;
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
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
use tokio::net::TcpListener;

use crate::stage::PATIENCE;

const NOBODY: &str = "65534";
const ENTRY: &str = "child::this_program_as_a_child";
/// Says that we are the child, and which.
const KIND: &str = "SERVER_TEST_CHILD";

/// As whom a child runs, and on what it listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// As whoever runs the test.
    Own,
    /// As an ordinary user that may attach socket filters.
    NobodyWithNetAdmin,
    /// As an ordinary user.
    Nobody,
    /// As an ordinary user, with a listener that is bound to an interface: nothing keeps new connections out.
    NobodyOnInterface,
}

impl Kind {
    fn name(self) -> String {
        format!("{self:?}")
    }

    /// Why this kind cannot be played here.
    fn obstacle(self) -> Option<&'static str> {
        if self == Self::Own {
            return None;
        }
        if !rustix::process::geteuid().is_root() {
            return Some("only root can become another user");
        }
        let setpriv = Command::new("setpriv").arg("--version").output();
        setpriv.err().map(|_| "setpriv is not installed")
    }

    fn command(self, program: &std::path::Path) -> Command {
        if self == Self::Own {
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
    pub(crate) address: SocketAddr,
    process: Child,
    log: Receiver<String>,
    _folder: tempfile::TempDir,
}

impl WebChild {
    /// With so much time to drain. `None`, with a word, where this kind cannot be played.
    pub(crate) fn start(kind: Kind, drain: Duration) -> Option<Self> {
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
            .env(KIND, kind.name())
            .env("SOLOIST_NAME", "test")
            .env("SOLOIST_IDENTITY", "test")
            .env("SOLOIST_TERM", "1")
            .env("SOLOIST_TOKEN", "1")
            .env("SOLOIST_STOP_SECONDS", drain.as_secs_f64().to_string())
            .env("SOLOIST_DRAIN_SECONDS", drain.as_secs_f64().to_string())
            .env_remove("NOTIFY_SOCKET")
            .env_remove("WATCHDOG_USEC")
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = collect(process.stdout.take().unwrap());
        let log = collect(process.stderr.take().unwrap());
        let address = loop {
            let line = lines.recv_timeout(PATIENCE).expect("the child's address");
            if let Some((_, address)) = line.split_once("listening on ") {
                break address.parse().unwrap();
            }
        };
        Some(Self {
            address,
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
    let Ok(kind) = std::env::var(KIND) else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let code = runtime.block_on(serve(&kind));
    std::process::exit(i32::from(code != ExitCode::SUCCESS));
}

async fn serve(kind: &str) -> ExitCode {
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .init();
    let worker = Worker::from_env().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    #[cfg(target_os = "linux")]
    if kind == Kind::NobodyOnInterface.name() {
        let socket = socket2::SockRef::from(&listener);
        socket.bind_device(Some(b"lo")).unwrap();
    }
    println!("listening on {}", listener.local_addr().unwrap());
    let app = Router::new()
        .route("/hello", get(async || "hello"))
        .route("/never", get(async || pending::<()>().await));
    worker
        .run([Part::server("http", Server::new(listener), app)])
        .await
}
