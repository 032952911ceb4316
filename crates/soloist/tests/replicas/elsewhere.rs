//! Replicas of one machine that are shown different things of it, as containers are.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::harness::{CHILD, Event, Group, LIMIT, send, wait_for};
use crate::namespaces;
use crate::place::is_a_file;
use crate::skipped::skipped;

const OWN_MOUNTS: [&str; 2] = ["--mount", "--propagation=private"];

/// What comes after `$1`, where `$1` is in the place of the kernel's boot id.
const WITH_BOOT_ID: &str = r#"mount --bind "$1" /proc/sys/kernel/random/boot_id; shift; exec "$@""#;

fn with_boot_id(file: &Path, command: &Command) -> Command {
    let mut by = vec!["unshare"];
    by.extend(OWN_MOUNTS);
    by.extend(["sh", "-ec", WITH_BOOT_ID, "sh", file.to_str().unwrap()]);
    Group::under(&by, command)
}

/// The holder has renewed its lease so often since.
fn wait_for_renewals(group: &Group, many: usize) {
    let mut last = String::new();
    let mut seen = 0;
    wait_for("renewals of the lease", LIMIT, || {
        let now = fs::read_to_string(group.path("lease")).ok()?;
        if now != last {
            last = now;
            seen += 1;
        }
        (seen > many).then_some(())
    });
}

/// One of them is shown another boot id than the kernel's. Each starts, neither takes the other for dead, and
/// whoever is really dead is waited out.
fn another_boot_id(shown_to: &str, boot_id: &dyn Fn(&Group) -> std::path::PathBuf) {
    if !is_a_file() || !namespaces::are_there(&OWN_MOUNTS) {
        return;
    }
    let mut group = Group::new();
    let file = boot_id(&group);
    let command = |group: &Group, identity: &str| {
        let command = group.child(identity, &[], &["drain=0"]);
        match identity == shown_to {
            true => with_boot_id(&file, &command),
            false => Group::under(&["env"], &command),
        }
    };
    let mut leader = command(&group, "r0");
    let leader = group.spawn("r0", &mut leader);
    group.wait_start("r0");
    let mut standby = command(&group, "r1");
    let standby = group.spawn("r1", &mut standby);
    group.replica(standby).wait_log("the leader is");
    wait_for_renewals(&group, 6);
    let of_standby = |event: &Event| event.identity == "r1";
    assert!(!group.journal().iter().any(of_standby));
    group.replica(leader).signal(Signal::KILL);
    group.wait_start("r1");
    let elected = group.replica(standby).wait_log("elected");
    assert!(elected.contains("claim=Expired"), "{elected}");
}

/// Mounts `/proc` so that a process is shown only to who may look into it, and runs what comes after `$1` as another user.
const HIDDEN: &str = r#"
mount -o remount,hidepid="$1" /proc
shift
exec setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
"#;

#[test]
fn a_guard_that_its_own_user_is_not_shown_is_named_all_the_same() {
    let container = [
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "--propagation=private",
    ];
    if !rustix::process::geteuid().is_root() || !namespaces::are_there(&container) {
        return skipped("to become another user needs root");
    }
    for hidden in ["2", "4"] {
        let mut group = Group::new();
        let everyone = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
        fs::set_permissions(group.path(""), everyone).unwrap();
        let mut command = group.bare();
        command
            .arg(format!("--store=file:{}", group.path("lease").display()))
            .args(["--name", "test", "--identity", "r0", "--", CHILD])
            .arg(group.path(""))
            .arg("drain=0");
        let mut by = vec!["unshare"];
        by.extend(container);
        by.extend(["sh", "-ec", HIDDEN, "sh", hidden]);
        let replica = group.spawn("r0", &mut Group::under(&by, &command));
        group.wait_start("r0");
        let lease = fs::read_to_string(group.path("lease")).unwrap();
        assert_eq!(lease.matches("\"start\"").count(), 2, "{lease}");
        let soloist = group.replica(replica).child();
        send(soloist, Signal::TERM);
        assert_eq!(group.replica(replica).exit_code(), 0);
    }
}

fn a_plain_file(group: &Group) -> std::path::PathBuf {
    let file = group.path("boot-id");
    fs::write(&file, "11111111-2222-3333-4444-555555555555\n").unwrap();
    file
}

#[test]
fn a_standby_with_a_boot_id_of_its_container_does_not_take_the_leader_for_dead() {
    another_boot_id("r1", &a_plain_file);
}

#[test]
fn a_leader_with_a_boot_id_of_its_container_is_not_taken_for_dead() {
    another_boot_id("r0", &a_plain_file);
}

#[test]
fn another_file_of_the_kernels_in_place_of_the_boot_id_proves_nothing_either() {
    another_boot_id("r1", &|_| "/proc/sys/kernel/random/uuid".into());
}
