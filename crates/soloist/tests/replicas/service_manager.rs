//! What soloist tells the service manager that has started it, and the unit for systemd.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::harness::{Group, LIMIT, SOLOIST};
use crate::skipped::skipped;

fn hear(socket: &UnixDatagram) -> String {
    let mut message = [0; 256];
    let length = socket.recv(&mut message).expect("it says something");
    String::from_utf8_lossy(&message[..length]).into_owned()
}

#[test]
fn a_service_manager_hears_ready_then_signs_of_life_then_stopping() {
    let mut group = Group::new();
    let path = group.path("manager");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let mut command = group.child("a", &[], &[]);
    command
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "400000");
    let replica = group.spawn("a", &mut command);
    assert_eq!(hear(&socket), "READY=1");
    for _ in 0..3 {
        assert_eq!(hear(&socket), "WATCHDOG=1");
    }
    group.wait_start("a");
    group.replica(replica).signal(Signal::TERM);
    while hear(&socket) != "STOPPING=1" {}
    assert_eq!(group.replica(replica).exit_code(), 0);
}

#[test]
fn a_watchdog_that_is_meant_for_another_process_is_not_fed() {
    let mut group = Group::new();
    let path = group.path("manager");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let mut command = group.child("a", &[], &[]);
    command
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "100000")
        .env("WATCHDOG_PID", "1");
    let replica = group.spawn("a", &mut command);
    assert_eq!(hear(&socket), "READY=1");
    group.wait_start("a");
    group.replica(replica).signal(Signal::TERM);
    assert_eq!(hear(&socket), "STOPPING=1");
}

#[test]
fn systemd_finds_nothing_wrong_with_the_unit() {
    let is_there = Command::new("systemd-analyze").arg("--version").output();
    if is_there.is_err() {
        return skipped("there is no systemd-analyze");
    }
    let group = Group::new();
    let source =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/systemd/soloist@.service");
    let unit = fs::read_to_string(source).unwrap();
    // It looks whether the program is there.
    let unit = unit.replace("/usr/local/bin/soloist ", &format!("{SOLOIST} "));
    let path = group.path("soloist@feed.service");
    fs::write(&path, unit).unwrap();
    let mut verify = Command::new("systemd-analyze");
    verify
        .args(["verify", "--man=no", "--recursive-errors=no"])
        .arg(&path);
    let output = verify.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && !told.contains("soloist@feed"),
        "{told}"
    );
}
