//! Children that become another user, by themselves or by soloist, and what they may do to it.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::harness::{Group, LIMIT, is_alive, lease, send, wait_for};
use crate::place::is_a_file;
use crate::skipped::skipped;

const NOBODY: &str = "65534";
/// root, but without CAP_KILL.
const MAY_NOT_KILL: [&str; 3] = ["setpriv", "--bounding-set=-kill", "--inh-caps=-kill"];
/// Stop timeout 3 s.
const FLAGS: [&str; 4] = ["--grace-period", "4s", "--log-status", "0s"];
/// A program that becomes another user.
const CHILD: [&str; 7] = [
    "--",
    "setpriv",
    "--reuid=65534",
    "--clear-groups",
    "--inh-caps=-all",
    "sleep",
    "300",
];

pub(crate) fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        skipped("to become another user needs root");
    }
    root
}

/// The number of the child that has become its program.
fn started(group: &mut Group, replica: usize) -> u32 {
    let line = group.replica(replica).wait_log("the child has started");
    let pid = line.split_once("pid=").unwrap().1;
    pid.split(' ').next().unwrap().parse().unwrap()
}

/// It has become another user.
fn wait_for_other_user(pid: u32) {
    wait_for("the other user", LIMIT, || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        status.contains(&format!("Uid:\t{NOBODY}")).then_some(())
    });
}

fn descendants(pid: u32) -> Vec<u32> {
    let list = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = list.unwrap_or_default();
    let children = children.split_whitespace().map(|pid| pid.parse().unwrap());
    children
        .flat_map(|pid| [vec![pid], descendants(pid)].concat())
        .collect()
}

#[test]
fn a_child_that_may_not_be_killed_is_named_with_what_to_do_and_its_lease_is_kept() {
    if !is_root() {
        return;
    }
    let mut group = Group::with(&FLAGS);
    let mut command = group.soloist("r0", &[]);
    let mut command = Group::under(&MAY_NOT_KILL, command.args(CHILD));
    let replica = group.spawn("r0", &mut command);
    let warning = group.replica(replica).wait_log("CAP_KILL");
    assert!(warning.contains("WARN"), "said at the start: {warning}");
    let child = started(&mut group, replica);
    wait_for_other_user(child);
    let standby = group.follow("r1", &[], &[]);
    group.replica(replica).signal(Signal::TERM);
    let line = group.replica(replica).wait_log("may not be signalled");
    for part in [
        "ERROR",
        &format!("process {child}"),
        NOBODY,
        "CAP_KILL",
        "--user",
    ] {
        assert!(line.contains(part), "{part} in {line}");
    }
    group.replica(replica).wait_log("not empty");
    assert!(is_alive(child));
    assert!(group.events("start").is_empty(), "nobody else starts");
    send(child, Signal::KILL);
    assert_eq!(group.replica(replica).exit_code(), 1);
    group.wait_start("r1");
    let log = group.replica(replica).log();
    assert_eq!(log.matches("may not be signalled").count(), 1, "{log}");
    assert!(!group.replica(standby).has_ended());
}

#[test]
fn as_the_first_process_of_a_container_it_exits_in_time_and_the_kernel_kills_what_it_may_not() {
    if is_root() {
        // The stop timeout, then a lease.
        let longest = Duration::from_secs(3) + lease();
        exits_as_first_process(longest, |_, soloist| send(soloist, Signal::TERM));
    }
}

#[test]
fn as_the_first_process_of_a_container_it_exits_before_a_lost_lease_ends() {
    if is_root() && is_a_file() {
        exits_as_first_process(lease(), |group, _| {
            std::fs::remove_file(group.path("lease")).unwrap();
        });
    }
}

fn exits_as_first_process(longest: Duration, end: impl FnOnce(&Group, u32)) {
    let mut group = Group::with(&FLAGS);
    let mut command = group.soloist("r0", &[]);
    let namespace = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let by = [&namespace[..], &MAY_NOT_KILL].concat();
    let mut command = Group::under(&by, command.args(CHILD));
    let replica = group.spawn("r0", &mut command);
    started(&mut group, replica);
    let soloist = group.replica(replica).child();
    let sleep = wait_for("the program", LIMIT, || {
        let named = |pid: &u32| {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm"));
            name.is_ok_and(|name| name.trim() == "sleep")
        };
        descendants(soloist).into_iter().find(named)
    });
    let begun = Instant::now();
    end(&group, soloist);
    assert_eq!(group.replica(replica).exit_code(), 1);
    let taken = begun.elapsed();
    // And time for a machine with other things to do.
    assert!(taken < longest + Duration::from_secs(2), "{taken:?}");
    wait_for("the kernel's kill", LIMIT, || {
        (!is_alive(sleep)).then_some(())
    });
    // It was not released: the kernel may have been slower than we.
    let log = group.replica(replica).log();
    assert!(!log.contains("released"), "{log}");
    group.lead("r1", &[], &[]);
}

/// What the program of this replica has written.
fn run_to_its_end(group: &mut Group, flags: &[&str], program: &str) -> String {
    let mut command = group.soloist("r0", flags);
    command.args(["--once", "--", "sh", "-c", program]);
    output_of(group, command)
}

fn output_of(group: &mut Group, mut command: Command) -> String {
    let out = group.path("out");
    command.stdout(std::fs::File::create(&out).unwrap());
    let replica = group.spawn("r0", &mut command);
    assert_eq!(group.replica(replica).exit_code(), 0);
    std::fs::read_to_string(out).unwrap()
}

#[test]
fn the_child_can_run_as_another_user() {
    if !is_root() {
        return;
    }
    let mut group = Group::new();
    let flags = ["--user", NOBODY, "--group", "65533"];
    let said = run_to_its_end(&mut group, &flags, "id -u; id -g; id -G");
    assert_eq!(said, "65534\n65533\n65533\n");
}

#[test]
fn a_child_of_another_user_dies_with_its_guard_and_is_stopped_in_order() {
    if !is_root() {
        return;
    }
    let mut group = Group::new();
    let mut command = group.soloist("r0", &["--user", NOBODY, "--group", NOBODY]);
    let replica = group.spawn("r0", command.args(["--", "sleep", "300"]));
    let child = started(&mut group, replica);
    wait_for_other_user(child);
    let line = group.replica(replica).wait_log("the child has started");
    let guard = line.split_once("guard=").unwrap().1.trim().parse().unwrap();
    send(guard, Signal::KILL);
    wait_for("its end", LIMIT, || (!is_alive(child)).then_some(()));
    wait_for("the next one", LIMIT, || {
        let log = group.replica(replica).log();
        (log.matches("the child has started").count() == 2).then_some(())
    });
    group.replica(replica).signal(Signal::TERM);
    assert_eq!(group.replica(replica).exit_code(), 0);
}

#[test]
fn a_user_that_the_child_could_not_become_or_be_stopped_as_is_refused_at_the_start() {
    if !is_root() {
        return;
    }
    let become_nobody = [
        "setpriv",
        "--reuid=65534",
        "--clear-groups",
        "--regid=65534",
    ];
    for (by, user, missing) in [
        (&become_nobody[..], "0", "CAP_SETUID"),
        (&MAY_NOT_KILL, NOBODY, "CAP_KILL"),
    ] {
        let mut group = Group::new();
        let mut command = group.soloist("r0", &["--user", user, "--group", user]);
        let mut command = Group::under(by, command.args(["--", "true"]));
        let replica = group.spawn("r0", &mut command);
        assert_eq!(group.replica(replica).exit_code(), 2);
        let log = group.replica(replica).log();
        assert!(log.contains("the child cannot become user"), "{log}");
        assert!(log.contains(missing), "{log}");
    }
}

#[test]
fn a_child_of_the_same_user_cannot_read_soloist_or_its_guard() {
    if !is_root() {
        return;
    }
    let mut group = Group::new();
    let everyone = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
    std::fs::set_permissions(group.path(""), everyone).unwrap();
    let nobody = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
    ];
    let program = "g=$PPID; s=$(cut -d' ' -f4 /proc/$g/stat); \
                   for p in $g $s; do cat /proc/$p/comm; cat /proc/$p/environ >/dev/null 2>&1 && echo read; done; \
                   tr '\\0' ' ' </proc/$g/cmdline";
    // Whichever store the others use: nobody cannot read their kubeconfig.
    let mut command = group.bare();
    command.arg(format!("--store=file:{}", group.path("lease").display()));
    command.args(["--once", "--", "sh", "-c", program]);
    let said = output_of(&mut group, Group::under(&nobody, &command));
    assert!(said.starts_with("soloist-guard\nsoloist\n"), "{said}");
    assert!(said.contains("soloist-guard --socket="), "{said}");
    assert!(said.contains(" -- sh -c g=$PPID;"), "{said}");
}
