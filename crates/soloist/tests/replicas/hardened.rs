//! A container of the hardened kind: not root, no capabilities, a read-only root, nowhere to put a temporary file.

use std::fs;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::harness::{CHILD, Group, SOLOIST, send};
use crate::namespaces;

const CONTAINER: [&str; 8] = [
    "--user",
    "--map-root-user",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
    "--propagation=private",
];

/// `$1` is where lease and journal are, and becomes `/mnt`: all else is read-only. `$2` is where the programs are, which may
/// be below what is hidden, and becomes `/mnt/bin`. What comes after them is run by a user without capabilities, as the first
/// process.
const HARDEN: &str = r#"
mount --bind "$1" /mnt
mount --bind "$2" /mnt/bin
for folder in /tmp /var/tmp /run /dev/shm; do
    if test -d "$folder"; then mount -t tmpfs -o ro,size=4k tmpfs "$folder"; fi
done
mount -o remount,bind,ro /
shift 2
unset TMPDIR XDG_RUNTIME_DIR
exec unshare --user --map-user=1000 --map-group=1000 "$@"
"#;

fn hardened(group: &Group, store: &str, flags: &[&str], plan: &[&str]) -> Command {
    let programs = Path::new(SOLOIST).parent().unwrap();
    assert_eq!(Path::new(CHILD).parent(), Some(programs));
    let inside = |program: &str| {
        let name = Path::new(program).file_name().unwrap();
        Path::new("/mnt/bin").join(name)
    };
    fs::create_dir(group.path("bin")).unwrap();
    let mut command = Command::new("unshare");
    command
        .args(CONTAINER)
        .args(["sh", "-ec", HARDEN, "sh"])
        .arg(group.path(""))
        .arg(programs)
        .arg(inside(SOLOIST))
        .args(["run", "--store", store])
        .args(["--name", "test", "--identity", "r0"])
        .args(flags)
        .arg("--")
        .arg(inside(CHILD))
        .arg("/mnt")
        .args(plan);
    command
}

#[test]
fn the_child_runs_and_is_heard_in_a_hardened_container() {
    let mut group = Group::new();
    if !namespaces::are_there(&CONTAINER) {
        return;
    }
    let flags = ["--ready", "notify", "--health", "notify"];
    let mut command = hardened(
        &group,
        "file:/mnt/lease",
        &flags,
        &["env", "ready", "watchdog=1000"],
    );
    let replica = group.spawn("r0", &mut command);
    group.wait_start("r0");
    group.replica(replica).wait_log("from=PreLeader to=Leader");
    let told = fs::read_to_string(group.path("env")).unwrap();
    assert!(told.contains("NOTIFY_SOCKET=@soloist-notify-"), "{told}");
    let first = group.replica(replica).wait_log("the child has started");
    assert!(first.contains("pid="), "{first}");
    // It is the first process: so may its own child see it.
    group.replica(replica).signal(Signal::KILL);
    group.replica(replica).exit();
}

#[test]
fn without_an_election_a_hardened_container_drains_and_ends() {
    let mut group = Group::everywhere(&[]);
    if !namespaces::are_there(&CONTAINER) {
        return;
    }
    let flags = ["--ready", "notify", "--health", "notify"];
    let plan = ["ready", "watchdog=1000", "drain=100", "ending"];
    let mut command = hardened(&group, "none", &flags, &plan);
    let replica = group.spawn("r0", &mut command);
    group.replica(replica).wait_log("from=Starting to=Running");
    let soloist = group.replica(replica).child();
    send(soloist, Signal::TERM);
    assert_eq!(group.replica(replica).exit_code(), 0);
    group.wait_event("drained", "r0");
    assert_eq!(group.events("ending").len(), 1);
}
