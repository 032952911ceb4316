use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    process::{Command, ExitCode, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process, setsid};
use testbed::{Binaries, ControlPlane, Options, kubernetes_version, progress_on_stderr};
use tokio::signal::unix::{SignalKind, signal};

use crate::state::{Place, State};

const NOT_RUNNING: u8 = 3;

pub(crate) fn up(name: &str, port: Option<u16>) -> anyhow::Result<()> {
    let place = Place::of(name)?;
    if place.try_own()?.is_none() {
        println!("# already running");
        show(&place.read()?);
        return Ok(());
    }
    Binaries::prepare(&mut progress_on_stderr())?;
    let log = place.log();
    let errors = File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    command.args(["serve", "--detach", "--name", name]);
    command.args(port.map(|port| format!("--port={port}")));
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(errors);
    let mut serve = command
        .spawn()
        .context("cannot start the control plane's process")?;
    let mut line = String::new();
    BufReader::new(serve.stdout.take().expect("stdout is piped")).read_line(&mut line)?;
    if line.is_empty() {
        serve.wait()?;
        bail!(
            "{}",
            fs::read_to_string(&log)?
                .trim()
                .trim_start_matches("error: ")
        );
    }
    show(&serde_json::from_str(&line)?);
    Ok(())
}

pub(crate) fn status(name: &str) -> anyhow::Result<ExitCode> {
    let place = Place::of(name)?;
    if place.try_own()?.is_some() {
        println!("no control plane named {name:?} runs; `testbed up` starts one");
        return Ok(ExitCode::from(NOT_RUNNING));
    }
    let state = place.read()?;
    println!("Kubernetes {} at {}", kubernetes_version(), state.server);
    println!("data and logs in {}", state.folder.display());
    let components = [
        ("etcd", Some(state.etcd_pid)),
        ("kube-apiserver", state.apiserver_pid),
    ];
    for (component, pid) in components {
        match pid.and_then(|pid| Some((pid, resident_megabytes(pid)?))) {
            Some((pid, megabytes)) => println!("{component}: pid {pid}, {megabytes} MB resident"),
            None => println!("{component}: ended"),
        }
    }
    show(&state);
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn down(name: &str) -> anyhow::Result<()> {
    const PATIENCE: Duration = Duration::from_secs(20);
    let place = Place::of(name)?;
    if place.try_own()?.is_some() {
        println!("no control plane named {name:?} runs");
        return Ok(());
    }
    let state = place.read()?;
    let pid = Pid::from_raw(state.pid).context("the state file has no pid")?;
    kill_process(pid, Signal::TERM).context("cannot signal the control plane's process")?;
    let deadline = Instant::now() + PATIENCE;
    while place.try_own()?.is_none() {
        if Instant::now() >= deadline {
            kill_process(pid, Signal::KILL).context("cannot kill the control plane's process")?;
            bail!("it did not end within {PATIENCE:?} and was killed");
        }
        thread::sleep(Duration::from_millis(20));
    }
    println!("ended");
    Ok(())
}

#[tokio::main]
pub(crate) async fn serve(name: &str, port: Option<u16>, detach: bool) -> anyhow::Result<()> {
    if detach {
        setsid().context("cannot leave the session")?;
    }
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let place = Place::of(name)?;
    let Some(_owned) = place.try_own()? else {
        bail!("a control plane named {name:?} runs already; see `testbed status`");
    };
    let plane = tokio::select! {
        plane = ControlPlane::start_with(Options { port, ..Options::default() }) => plane?,
        _ = terminate.recv() => return Ok(()),
        _ = interrupt.recv() => return Ok(()),
    };
    let state = State {
        pid: i32::try_from(std::process::id())?,
        etcd_pid: plane.etcd_pid(),
        apiserver_pid: plane.apiserver_pid(),
        server: plane.server_url(),
        kubeconfig: plane.admin_kubeconfig()?,
        folder: plane.folder().to_owned(),
    };
    place.write(&state)?;
    println!("{}", serde_json::to_string(&state)?);
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    place.remove();
    plane.stop().await;
    Ok(())
}

fn show(state: &State) {
    println!("export KUBECONFIG={}", state.kubeconfig.display());
}

fn resident_megabytes(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace()
        .next()?
        .parse::<u64>()
        .ok()
        .map(|kilobytes| kilobytes / 1024)
}
