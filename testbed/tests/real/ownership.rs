use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use serde_json::Value;
use testbed::{ControlPlane, pids_vanish, skip};

use crate::{SOON, SUITE};

fn testbed(arguments: &[&str], name: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_testbed"));
    command.args(arguments).args(["--name", name]);
    command
}

/// Killed at the end of the test if it still runs.
struct Owner(Child);

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start_owner(name: &str) -> (Owner, Value) {
    let mut owner = Owner(
        testbed(&["serve"], name)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut line = String::new();
    BufReader::new(owner.0.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    (
        owner,
        serde_json::from_str(&line).expect("serve prints its state"),
    )
}

fn pids(state: &Value) -> [u32; 2] {
    ["etcd_pid", "apiserver_pid"].map(|key| u32::try_from(state[key].as_u64().unwrap()).unwrap())
}

#[tokio::test]
async fn an_owner_that_is_killed_leaves_no_process_and_its_files_are_swept_up() {
    if skip(SUITE) {
        return;
    }
    let (mut owner, state) = start_owner(&format!("killed-{}", std::process::id()));
    let pids = pids(&state);
    assert!(
        !pids_vanish(&pids, Duration::ZERO),
        "the control plane does not run"
    );

    owner.0.kill().unwrap();
    owner.0.wait().unwrap();
    assert!(pids_vanish(&pids, SOON), "{pids:?} outlived their owner");

    let folder = PathBuf::from(state["folder"].as_str().unwrap());
    let _next = ControlPlane::start().await.unwrap();
    assert!(!folder.exists(), "{} was not swept up", folder.display());
}

#[test]
fn up_status_and_down_work_on_the_same_control_plane() {
    if skip(SUITE) {
        return;
    }
    let name = format!("up-{}", std::process::id());
    let run = |command: &str| -> (Output, String) {
        let output = testbed(&[command], &name).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (output, text)
    };
    let _down = Down(&name);

    let (up, export) = run("up");
    assert!(
        up.status.success(),
        "{}",
        String::from_utf8_lossy(&up.stderr)
    );
    let kubeconfig = PathBuf::from(export.trim().strip_prefix("export KUBECONFIG=").unwrap());
    assert!(kubeconfig.is_file());
    let (again, same) = run("up");
    assert!(
        again.status.success() && same.contains(export.trim()),
        "{same}"
    );
    let (status, shown) = run("status");
    assert!(
        status.status.success() && shown.contains("kube-apiserver: pid"),
        "{shown}"
    );

    let (down, _) = run("down");
    assert!(down.status.success());
    assert!(!kubeconfig.exists());
    assert_eq!(run("status").0.status.code(), Some(3));
}

/// Ends what `up` left behind when the test fails in between.
struct Down<'a>(&'a str);

impl Drop for Down<'_> {
    fn drop(&mut self) {
        let _ = testbed(&["down"], self.0).output();
    }
}
