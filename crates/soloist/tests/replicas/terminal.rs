//! soloist and its child on a terminal.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::Stdio;

use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use testbed::programs::stat_field;

use crate::harness::{Group, LIMIT, SOLOIST, is_alive, send, wait_for};

const INTERRUPT: &[u8] = b"\x03";
const END_OF_FILE: &[u8] = b"\x04";

/// A new terminal: what its user holds, and what programs see.
pub(crate) fn terminal() -> (File, File) {
    let master: OwnedFd =
        openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let path = ptsname(&master, Vec::new()).unwrap();
    let open = fs::OpenOptions::new().read(true).write(true).clone();
    let slave = open.open(path.to_str().unwrap()).unwrap();
    (File::from(master), slave)
}

/// Runs `cat`, which copies from the terminal into the file `out`.
fn cat_on_a_terminal(group: &mut Group, flags: &[&str]) -> (File, usize) {
    cat_by(&["setsid", "--ctty"], group, flags)
}

fn cat_by(by: &[&str], group: &mut Group, flags: &[&str]) -> (File, usize) {
    let (user, programs) = terminal();
    let mut command = group.soloist("r0", flags);
    let mut command = Group::under(by, command.args(["--", "cat"]));
    command.stdin(Stdio::from(programs));
    command.stdout(File::create(group.path("out")).unwrap());
    let replica = group.spawn("r0", &mut command);
    // The command has the terminal open as well, and it is not closed before.
    drop(command);
    group.replica(replica).wait_log("the child has started");
    (user, replica)
}

fn wait_copied(group: &Group, text: &str) {
    wait_for("what was typed", LIMIT, || {
        let out = fs::read_to_string(group.path("out")).unwrap();
        out.contains(text).then_some(())
    });
}

/// What a soloist that runs to its end says on a terminal.
fn said_on_a_terminal(kind: &str, no_color: &str) -> String {
    let group = Group::new();
    let (mut user, programs) = terminal();
    let mut command = group.soloist("r0", &["--once"]);
    command
        .args(["--", "true"])
        .env("TERM", kind)
        .env("NO_COLOR", no_color)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::from(programs));
    assert!(command.status().unwrap().success());
    // It has the terminal open as well.
    drop(command);
    let (mut said, mut part) = (Vec::new(), [0; 65536]);
    while let Ok(read @ 1..) = user.read(&mut part) {
        said.extend_from_slice(&part[..read]);
    }
    String::from_utf8(said).unwrap()
}

#[test]
fn the_log_has_colours_on_a_terminal_that_shows_them_and_where_nobody_says_no() {
    let coloured = said_on_a_terminal("xterm", "");
    assert!(coloured.contains("\x1b[32m INFO\x1b[0m"), "{coloured:?}");
    for (kind, no_color) in [("dumb", ""), ("xterm", "1")] {
        let plain = said_on_a_terminal(kind, no_color);
        assert!(plain.contains(" INFO elected term="), "{plain:?}");
        assert!(!plain.contains('\x1b'), "{plain:?}");
    }
}

#[test]
fn a_child_can_read_from_the_terminal() {
    let mut group = Group::new();
    let (mut user, replica) = cat_on_a_terminal(&mut group, &["--once"]);
    user.write_all(b"hello\n").unwrap();
    wait_copied(&group, "hello");
    user.write_all(END_OF_FILE).unwrap();
    assert_eq!(group.replica(replica).exit_code(), 0);
}

#[test]
fn a_child_can_ask_on_the_terminal_though_its_input_is_a_pipe() {
    let mut group = Group::new();
    let (mut user, programs) = terminal();
    let mut command = group.soloist("r0", &["--once"]);
    let question = "echo up; read x </dev/tty; echo \"got:$x\"; cat";
    let command = command.args(["--", "sh", "-c", question]);
    let shell = "echo piped | \"$0\" \"$@\"";
    let mut command = Group::under(&["setsid", "--ctty", "sh", "-c", shell], command);
    command.stdin(Stdio::from(programs));
    command.stdout(File::create(group.path("out")).unwrap());
    let replica = group.spawn("r0", &mut command);
    drop(command);
    wait_copied(&group, "up");
    user.write_all(b"hello\n").unwrap();
    wait_copied(&group, "got:hello\npiped");
    assert_eq!(group.replica(replica).exit_code(), 0);
}

#[test]
fn an_interrupt_typed_there_stops_both() {
    let mut group = Group::new();
    let (mut user, replica) = cat_on_a_terminal(&mut group, &[]);
    user.write_all(b"hello\n").unwrap();
    wait_copied(&group, "hello");
    user.write_all(INTERRUPT).unwrap();
    assert_eq!(group.replica(replica).exit_code(), 0);
}

#[test]
fn a_closed_terminal_is_a_stop() {
    let mut group = Group::new();
    let (mut user, replica) = cat_on_a_terminal(&mut group, &[]);
    user.write_all(b"hello\n").unwrap();
    wait_copied(&group, "hello");
    drop(user);
    assert_eq!(group.replica(replica).exit_code(), 0);
    let log = group.replica(replica).log();
    assert_eq!(log.matches("the child has started").count(), 1, "{log}");
}

/// Runs a script under soloist on a terminal, and waits for its first line.
fn script_on_a_terminal(group: &mut Group, flags: &[&str], program: &[&str]) -> (File, usize) {
    let (user, programs) = terminal();
    let mut command = group.soloist("r0", flags);
    let command = command.arg("--").args(program);
    let mut command = Group::under(&["setsid", "--ctty"], command);
    command.stdin(Stdio::from(programs));
    command.stdout(File::create(group.path("out")).unwrap());
    let replica = group.spawn("r0", &mut command);
    drop(command);
    wait_copied(group, "up");
    (user, replica)
}

#[test]
fn a_child_in_a_session_of_its_own_hears_the_stop_signal() {
    let mut group = Group::new();
    let script = "trap 'exit 7' TERM; echo up; while :; do sleep 0.05; done";
    let program = ["setsid", "sh", "-c", script];
    let (_user, replica) = script_on_a_terminal(&mut group, &["--once"], &program);
    send(group.replica(replica).pid(), Signal::TERM);
    assert_eq!(group.replica(replica).exit_code(), 7);
}

#[test]
fn one_interrupt_lets_a_child_under_two_soloists_drain() {
    let mut group = Group::new();
    let script = "trap 'n=1' INT TERM; echo up; while test -z \"$n\"; do sleep 0.05; done; sleep 0.3; echo drained";
    let store = format!("file:{}", group.path("inner").display());
    let inner = ["run", "--name", "inner", "--store", &store, "--"];
    let program = [&[SOLOIST][..], &inner, &["sh", "-c", script]].concat();
    let (mut user, replica) = script_on_a_terminal(&mut group, &[], &program);
    user.write_all(INTERRUPT).unwrap();
    assert_eq!(group.replica(replica).exit_code(), 0);
    wait_copied(&group, "drained");
    let log = group.replica(replica).log();
    assert!(!log.contains("killing the child's tree"), "{log}");
}

#[test]
fn who_was_told_to_ignore_a_hang_up_outlives_the_terminal() {
    let mut group = Group::new();
    let (user, programs) = terminal();
    let mut command = group.soloist("r0", &[]);
    let command = command.args(["--", "sleep", "60"]);
    // As nohup: it reads from elsewhere, and ignores SIGHUP.
    let shell = "trap '' HUP; \"$0\" \"$@\" </dev/null & wait";
    let mut command = Group::under(&["setsid", "--ctty", "sh", "-c", shell], command);
    command.stdin(Stdio::from(programs));
    let replica = group.spawn("r0", &mut command);
    drop(command);
    group.replica(replica).wait_log("the child has started");
    let soloist = group.replica(replica).child();
    drop(user);
    // The kernel has told everybody when the shell, which leads the session, has been told; HUP again is no other case.
    send(soloist, Signal::HUP);
    send(soloist, Signal::USR1);
    group
        .replica(replica)
        .wait_log("the child has ended exit=Signal(10)");
    let log = group.replica(replica).log();
    assert!(!log.contains("asked to stop"), "{log}");
    send(soloist, Signal::TERM);
    group.replica(replica).exit();
}

#[test]
fn in_the_background_the_child_alone_is_stopped_when_it_wants_to_read() {
    let mut group = Group::new();
    // With job control the shell gives what it starts a process group of its own, which is not the terminal's.
    let shell = [
        "setsid",
        "--ctty",
        "sh",
        "-c",
        "set -m; \"$0\" \"$@\" & wait",
    ];
    let (_user, replica) = cat_by(&shell, &mut group, &[]);
    let soloist = group.replica(replica).child();
    let line = group.replica(replica).wait_log("the child has started");
    let pid = line.split_once("pid=").unwrap().1;
    let cat = pid.split(' ').next().unwrap().parse().unwrap();
    let state = |pid| stat_field(pid, 0).unwrap_or_default();
    wait_for("a stopped child", LIMIT, || {
        (state(cat) == "T").then_some(())
    });
    assert_ne!(state(soloist), "T", "soloist renews its lease");
    send(soloist, Signal::TERM);
    wait_for("its end", LIMIT, || (!is_alive(soloist)).then_some(()));
    assert!(!is_alive(cat));
}
