//! A machine of its own as far as a node can see: namespaces for its processes, mounts, network, names and cgroups.

use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::cgroups::Cgroups;
use crate::{
    Error,
    process::{Component, guarded, spawn},
};

const INIT: &str = include_str!("init.sh");
/// Joins the cgroups whose files come before `--`, then becomes the rest.
const JOIN: &str = r#"while [ "$1" != -- ]; do echo $$ >"$1"; shift; done; shift; exec "$@""#;

/// Its processes are killed with its first one, which is killed with the process that started it.
#[derive(Debug)]
pub(crate) struct Machine {
    name: String,
    first_process: u32,
    cgroups: Cgroups,
    _first: Component,
}

impl Machine {
    /// Starts its first process, and waits until its mounts are there.
    pub(crate) fn start(name: &str, folder: &Path, cgroups_name: &str) -> Result<Self, Error> {
        const PATIENCE: Duration = Duration::from_secs(20);
        let cgroups = Cgroups::create(cgroups_name)?;
        let script = folder.join("init.sh");
        fs::write(&script, INIT).map_err(Error::io("write", &script))?;
        let mounts = folder.join("cgroups");
        fs::write(&mounts, cgroups.mounts()).map_err(Error::io("write", &mounts))?;

        let mut command = guarded("sh");
        command.args(["-c", JOIN, "join"]).args(cgroups.members());
        command.args([
            "--", "unshare", "--cgroup", "--ipc", "--mount", "--net", "--pid", "--uts",
        ]);
        command.args(["--fork", "--kill-child", "--mount-proc", "--", "sh"]);
        command.arg(&script).arg(folder).arg(name);
        let input = File::open(&mounts).map_err(Error::io("open", &mounts))?;
        let first = Component::start_command("init", command, folder, input.into())?;
        let mut first = first.wrapping_a_program();

        let deadline = Instant::now() + PATIENCE;
        while !folder.join("up").exists() {
            first.check()?;
            if Instant::now() >= deadline {
                return Err(first.not_ready(PATIENCE));
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(Self {
            name: name.to_owned(),
            first_process: first.child_of().ok_or_else(|| first.not_ready(PATIENCE))?,
            cgroups,
            _first: first,
        })
    }

    /// The id of its first process, as seen from outside.
    pub(crate) fn first_process(&self) -> u32 {
        self.first_process
    }

    pub(crate) fn cgroups(&self) -> &Cgroups {
        &self.cgroups
    }

    /// A command whose process runs on it, killed when this process ends.
    pub(crate) fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = guarded("sh");
        command
            .args(["-c", JOIN, "join"])
            .args(self.cgroups.members());
        command
            .args(["--", "nsenter", "--target"])
            .arg(self.first_process.to_string());
        command.args([
            "--cgroup", "--ipc", "--mount", "--net", "--pid", "--uts", "--",
        ]);
        command
            .args(["setpriv", "--pdeathsig", "KILL", "--"])
            .arg(program.as_ref());
        command
    }

    /// Runs a program on it to its end, and returns what it printed.
    pub(crate) fn run(
        &self,
        program: &str,
        arguments: &[&str],
        input: &[u8],
    ) -> Result<String, Error> {
        let mut command = self.command(program);
        command.args(arguments);
        run(
            command,
            &format!("{program} {} on {}", arguments.join(" "), self.name),
            input,
        )
    }
}

/// Runs a command to its end, and returns what it printed.
pub(crate) fn run(mut command: Command, what: &str, input: &[u8]) -> Result<String, Error> {
    let failed = |source| Error::Spawn {
        program: what.to_owned(),
        source,
    };
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = spawn(command).map_err(failed)?;
    let mut stdin = child.stdin.take().expect("stdin is piped");
    // Who does not want all of it says why by its exit code.
    let _ = stdin.write_all(input);
    drop(stdin);
    let output = child.wait_with_output().map_err(failed)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(Error::Command {
            command: what.to_owned(),
            status: output.status,
            output: text(&output.stderr).trim().to_owned(),
        }),
    }
}

/// The network namespace of a process, as a file.
pub(crate) fn network_of(pid: u32) -> PathBuf {
    format!("/proc/{pid}/ns/net").into()
}
