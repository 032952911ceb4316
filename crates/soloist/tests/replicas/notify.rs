//! The notify socket: who can write to it, who is believed, and what is left of it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

use rustix::process::{Pid, Resource, Rlimit, Signal, prlimit};

use crate::harness::{CHILD, Group, LIMIT, wait_for};
use crate::privileges::is_root;

const READY: [&str; 2] = ["--ready", "notify"];

/// Where the child is to write to.
pub(crate) fn socket(group: &Group) -> PathBuf {
    let told = fs::read_to_string(group.path("env")).unwrap();
    let path = told
        .lines()
        .find_map(|line| line.strip_prefix("NOTIFY_SOCKET="));
    PathBuf::from(path.unwrap())
}

#[test]
fn only_the_childs_tree_is_believed() {
    let mut group = Group::with(&READY);
    let (replica, child) = group.lead("r0", &[], &["env"]);
    let outside = UnixDatagram::unbound().unwrap();
    outside.send_to(b"READY=1", socket(&group)).unwrap();
    let log = group.replica(replica).wait_log("is not believed");
    let us = format!("pid={}", std::process::id());
    assert!(log.contains(&us), "{log}");
    assert!(!group.replica(replica).log().contains("to=Leader"));
    child.signal(Signal::KILL);
}

#[test]
fn a_descendant_that_has_spoken_for_the_child_and_is_gone_is_believed() {
    let mut group = Group::with(&READY);
    let mut command = group.soloist("r0", &[]);
    let script = "\"$0\" \"$1\" messenger; exec \"$0\" \"$1\"";
    command
        .args(["--", "sh", "-c", script, CHILD])
        .arg(group.path(""));
    let replica = group.spawn("r0", &mut command);
    group.replica(replica).wait_log("from=PreLeader to=Leader");
}

#[test]
fn a_child_that_has_changed_its_user_is_heard_whatever_the_umask() {
    let mut group = Group::with(&READY);
    if !is_root() {
        return;
    }
    // The build directory need not be open to everyone.
    let child = group.path("child");
    fs::copy(CHILD, &child).unwrap();
    fs::set_permissions(group.path(""), fs::Permissions::from_mode(0o1777)).unwrap();
    let soloist = group.soloist("r0", &[]);
    let mut command = std::process::Command::new("sh");
    command
        .args(["-c", "umask 0277; exec \"$@\"", "sh"])
        .arg(soloist.get_program())
        .args(soloist.get_args())
        .args([
            "--",
            "setpriv",
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
        ])
        .args(["sh", "-c", "umask 022; exec \"$@\"", "sh"])
        .arg(&child)
        .arg(group.path(""))
        .arg("ready")
        .env("XDG_RUNTIME_DIR", group.path(""));
    let replica = group.spawn("r0", &mut command);
    group.replica(replica).wait_log("from=PreLeader to=Leader");
}

#[test]
fn what_a_killed_one_leaves_behind_is_removed_by_the_next() {
    let mut group = Group::new();
    let (replica, child) = group.lead("r0", &[], &["env"]);
    let left = socket(&group);
    assert!(left.starts_with(group.path("")), "{left:?}");
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let folder = left.parent().unwrap();
    assert_eq!((mode(folder), mode(&left)), (0o711, 0o666));
    group.replica(replica).signal(Signal::KILL);
    child.wait_dead();
    // Only when all of it is gone does nobody have the socket open.
    group.replica(replica).exit();
    assert!(left.exists());
    group.lead("r1", &[], &[]);
    wait_for("the folder to go", LIMIT, || {
        (!folder.exists()).then_some(())
    });
}

#[test]
fn a_flood_of_statuses_does_not_fill_the_log_and_its_last_one_is_told() {
    let mut group = Group::new();
    let (replica, _) = group.lead("r0", &[], &["chatter=20000"]);
    let replica = group.replica(replica);
    replica.wait_log("status=\"at 19999\"");
    let told = replica.log().matches("the child says").count();
    // About one for each second that it may have taken.
    let most = usize::try_from(LIMIT.as_secs()).unwrap();
    assert!(told <= most, "{told}");
}

#[test]
fn without_descriptors_no_folder_is_left_behind() {
    let mut group = Group::new();
    let (replica, child) = group.lead("r0", &["--log-level", "debug"], &["env"]);
    let folders = |group: &Group| {
        let entries = fs::read_dir(group.path("")).unwrap().flatten();
        let names = entries.map(|entry| entry.path());
        let is_folder = |path: &PathBuf| path.is_dir() && path.to_string_lossy().contains("notify");
        names.filter(is_folder).collect::<Vec<_>>()
    };
    let before = folders(&group);
    let soloist = Pid::from_raw(group.replica(replica).pid().cast_signed());
    let none = Rlimit {
        current: Some(3),
        maximum: Some(4096),
    };
    prlimit(soloist, Resource::Nofile, none).unwrap();
    child.signal(Signal::KILL);
    group
        .replica(replica)
        .wait_log("no socket for the child's notices");
    let after = folders(&group);
    assert!(
        after.iter().all(|folder| before.contains(folder)),
        "{after:?}"
    );
}
