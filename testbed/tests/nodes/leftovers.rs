//! What is left of a cluster whose owner was killed: nothing.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use rustix::process::Signal;
use serde_json::Value;
use testbed::{
    programs::{send, wait_for},
    skip_nodes,
};

use crate::{PATIENCE, SUITE, group::ALONE};

/// Killed at the end of the test if it still runs.
struct Owner(Child);

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(name: &str) -> (Owner, PathBuf) {
    let mut owner = Owner(
        Command::new(env!("CARGO_BIN_EXE_testbed"))
            .args(["serve", "--nodes", "1", "--name", name])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let mut line = String::new();
    BufReader::new(owner.0.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let state: Value = serde_json::from_str(&line).expect("serve prints its state");
    (owner, state["folder"].as_str().unwrap().into())
}

/// Everything that bears the folder's name: processes by their arguments and cgroups, cgroups, mounts, the folder.
fn traces(folder: &Path) -> Vec<String> {
    let name = folder.file_name().unwrap().to_str().unwrap();
    let mut traces = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let path = entry.path();
        let read = |file: &str| fs::read_to_string(path.join(file)).unwrap_or_default();
        if read("cmdline").contains(name) || read("cgroup").contains(name) {
            traces.push(format!("{} {}", path.display(), read("comm")));
        }
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    traces.extend(
        mounts
            .lines()
            .filter(|line| line.contains(name))
            .map(str::to_owned),
    );
    let roots = mounts
        .lines()
        .filter(|line| line.contains(" - cgroup"))
        .filter_map(|line| line.split(' ').nth(4));
    for group in roots.flat_map(|root| fs::read_dir(root).into_iter().flatten().flatten()) {
        if group.file_name().to_string_lossy().contains(name) {
            traces.push(group.path().display().to_string());
        }
    }
    traces.extend(folder.exists().then(|| folder.display().to_string()));
    traces
}

/// The network namespaces that some process is in.
fn networks() -> BTreeSet<PathBuf> {
    let of = |entry: fs::DirEntry| fs::read_link(entry.path().join("ns/net")).ok();
    fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(of)
        .collect()
}

fn leaves_nothing_behind(name: &str, before_the_kill: impl FnOnce(&Path)) {
    let _alone = ALONE.blocking_lock();
    let (mut owner, folder) = start(&format!("{name}-{}", std::process::id()));
    let of_first = |trace: &String| trace.ends_with("kubelet\n");
    assert!(traces(&folder).iter().any(of_first), "no kubelet runs");
    before_the_kill(&folder);
    owner.0.kill().unwrap();
    owner.0.wait().unwrap();
    let gone = || traces(&folder).is_empty().then_some(());
    wait_for("the end of all that the owner started", PATIENCE, gone);
}

#[test]
fn an_owner_that_is_asked_to_end_leaves_nothing_either() {
    if skip_nodes(SUITE) {
        return;
    }
    let _alone = ALONE.blocking_lock();
    let (mut owner, folder) = start(&format!("ended-{}", std::process::id()));
    send(owner.0.id(), Signal::TERM);
    assert!(owner.0.wait().unwrap().success());
    assert_eq!(traces(&folder), Vec::<String>::new());
}

#[test]
fn an_owner_that_is_killed_leaves_no_process_mount_cgroup_or_file() {
    if skip_nodes(SUITE) {
        return;
    }
    leaves_nothing_behind("killed", |_| assert!(networks().len() > 1));
}

#[test]
fn an_owner_that_is_killed_while_a_node_is_frozen_leaves_nothing_either() {
    if skip_nodes(SUITE) {
        return;
    }
    leaves_nothing_behind("frozen", |folder| {
        let name = folder.file_name().unwrap().to_str().unwrap();
        let group = format!("soloist-testbed-{name}-node-1");
        let version_1 = Path::new("/sys/fs/cgroup/freezer").join(&group);
        match version_1.is_dir() {
            true => fs::write(version_1.join("freezer.state"), "FROZEN").unwrap(),
            false => fs::write(
                Path::new("/sys/fs/cgroup")
                    .join(&group)
                    .join("cgroup.freeze"),
                "1",
            )
            .unwrap(),
        }
    });
}
