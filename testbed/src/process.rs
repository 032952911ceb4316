use std::{
    ffi::OsStr,
    fs::{self, File},
    io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{LazyLock, Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::{Error, error::tail};

/// A command whose process is killed when this process ends, however it ends.
///
/// The shell closes the gap in which this process dies before the parent-death signal is set.
pub(crate) fn guarded(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new("setpriv");
    command
        .args([
            "--pdeathsig",
            "KILL",
            "--",
            "sh",
            "-c",
            r#"[ "$PPID" = "$0" ] && exec "$@""#,
        ])
        .arg(std::process::id().to_string())
        .arg(program);
    command
}

/// Spawns on a thread that never ends: a parent-death signal is sent when the *thread* that forked ends.
pub(crate) fn spawn(command: Command) -> io::Result<Child> {
    type Job = (Command, mpsc::Sender<io::Result<Child>>);
    static SPAWNER: LazyLock<Mutex<mpsc::Sender<Job>>> = LazyLock::new(|| {
        let (jobs, inbox) = mpsc::channel::<Job>();
        thread::Builder::new()
            .name("testbed-spawner".to_owned())
            .spawn(move || {
                for (mut command, answer) in inbox {
                    let _ = answer.send(command.spawn());
                }
            })
            .expect("a thread can be started");
        Mutex::new(jobs)
    });
    let (answer, child) = mpsc::channel();
    let gone = || io::Error::other("the spawner thread is gone");
    SPAWNER
        .lock()
        .map_err(|_| gone())?
        .send((command, answer))
        .map_err(|_| gone())?;
    child.recv().map_err(|_| gone())?
}

/// etcd or kube-apiserver. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Component {
    name: &'static str,
    log: PathBuf,
    child: Child,
    is_wrapped: bool,
}

impl Component {
    pub(crate) fn start(
        name: &'static str,
        program: &Path,
        args: &[String],
        dir: &Path,
    ) -> Result<Self, Error> {
        let mut command = guarded(program);
        command
            .args(args)
            .env_clear()
            .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
            .env("HOME", dir);
        Self::start_command(name, command, dir, Stdio::null())
    }

    /// Starts a [guarded] command, whose log is in this folder.
    pub(crate) fn start_command(
        name: &'static str,
        mut command: Command,
        dir: &Path,
        input: Stdio,
    ) -> Result<Self, Error> {
        let log = dir.join(format!("{name}.log"));
        let output = File::options()
            .create(true)
            .append(true)
            .open(&log)
            .map_err(Error::io("open", &log))?;
        let errors = output.try_clone().map_err(Error::io("open", &log))?;
        command
            .current_dir(dir)
            .stdin(input)
            .stdout(output)
            .stderr(errors);
        // A terminal's interrupt must end the test first, and these with it.
        command.process_group(0);
        let child = spawn(command).map_err(|source| Error::Spawn {
            program: name.to_owned(),
            source,
        })?;
        tracing::debug!(component = name, pid = child.id(), "started");
        Ok(Self {
            name,
            log,
            child,
            is_wrapped: false,
        })
    }

    /// The command is `nsenter` or `unshare`, which waits for the program in other namespaces: the program is what is killed.
    ///
    /// Killed itself, it would leave a dead program to this machine's first process, which may take seconds to reap it, and until then the
    /// program's PID namespace does not end.
    pub(crate) fn wrapping_a_program(mut self) -> Self {
        self.is_wrapped = true;
        self
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The one process that it has started, if it runs: what `unshare` and `nsenter` are there for.
    pub(crate) fn child_of(&self) -> Option<u32> {
        let pid = self.child.id();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
        children.split_whitespace().next()?.parse().ok()
    }

    pub(crate) fn freeze(&self) -> Result<(), Error> {
        freeze(&self.child, self.name)
    }

    pub(crate) fn thaw(&self) -> Result<(), Error> {
        signal(&self.child, self.name, Signal::CONT)
    }

    /// A signal to the program that it wraps.
    pub(crate) fn signal_program(&self, signal: Signal) -> Result<(), Error> {
        let failed = |source| Error::Io {
            doing: "signal",
            path: self.name.into(),
            source,
        };
        let gone = || failed(io::Error::other("it does not run"));
        let program = self.program().ok_or_else(gone)?;
        kill_process(program, signal).map_err(|errno| failed(errno.into()))
    }

    fn program(&self) -> Option<Pid> {
        let program = self.is_wrapped.then(|| self.child_of()).flatten();
        program.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?))
    }

    pub(crate) fn kill(&mut self) {
        let program = self.program();
        let is_killed = program.is_some_and(|pid| kill_process(pid, Signal::KILL).is_ok());
        if !is_killed {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }

    /// An error if it has ended.
    pub(crate) fn check(&mut self) -> Result<(), Error> {
        match self.child.try_wait() {
            Ok(Some(status)) => Err(self.exited(status)),
            _ => Ok(()),
        }
    }

    pub(crate) fn not_ready(&self, waited: Duration) -> Error {
        Error::NotReady {
            component: self.name,
            waited,
            log: self.log.clone(),
            tail: self.tail(),
        }
    }

    fn exited(&self, status: ExitStatus) -> Error {
        Error::Exited {
            component: self.name,
            status,
            log: self.log.clone(),
            tail: self.tail(),
        }
    }

    fn tail(&self) -> String {
        tail(&String::from_utf8_lossy(
            &fs::read(&self.log).unwrap_or_default(),
        ))
    }
}

impl Drop for Component {
    fn drop(&mut self) {
        self.kill();
    }
}

pub(crate) fn signal(child: &Child, name: &'static str, signal: Signal) -> Result<(), Error> {
    kill_process(Pid::from_child(child), signal).map_err(|errno| Error::Io {
        doing: "signal",
        path: name.into(),
        source: errno.into(),
    })
}

/// Stops a process, and returns once every thread of it has stopped.
pub(crate) fn freeze(child: &Child, name: &'static str) -> Result<(), Error> {
    const PATIENCE: Duration = Duration::from_secs(5);
    signal(child, name, Signal::STOP)?;
    if poll(PATIENCE, || threads_are_stopped(child.id())) {
        return Ok(());
    }
    let awaited = format!("the stop of {name}");
    Err(Error::Timeout {
        awaited,
        waited: PATIENCE,
    })
}

/// Whether none of these processes runs any more once `patience` is over. Zombies count as gone.
pub fn pids_vanish(pids: &[u32], patience: Duration) -> bool {
    poll(patience, || {
        pids.iter()
            .all(|pid| matches!(state(format!("/proc/{pid}/stat")), None | Some('Z' | 'X')))
    })
}

fn threads_are_stopped(pid: u32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    threads
        .into_iter()
        .all(|thread| matches!(state(thread.path().join("stat")), None | Some('T')))
}

/// The letter by which the kernel tells how a process or thread is.
fn state(stat: impl AsRef<Path>) -> Option<char> {
    let text = fs::read_to_string(stat).ok()?;
    text.rsplit_once(") ")?.1.chars().next()
}

fn poll(patience: Duration, done: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + patience;
    while !done() {
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(2));
    }
    true
}
