//! `--listen`: what is answered to probes and people.

use std::collections::BTreeSet;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Group, LIMIT, lease, wait_for};
use crate::held_lease::HeldLease;
use crate::http::{LISTEN, address, get, request};
use crate::openmetrics::value;
use crate::place::is_a_file;
use crate::skipped::skipped;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

pub(crate) fn wait_code(address: SocketAddr, path: &str, code: u16) {
    let what = format!("{code} at {path}");
    wait_for(&what, LIMIT, || {
        (get(address, path).code == code).then_some(())
    });
}

/// A leader and a standby, and where they listen.
pub(crate) fn pair(group: &mut Group) -> [(usize, SocketAddr); 2] {
    let (leader, _) = group.lead("r0", &[LISTEN], &["drain=1000"]);
    group.replica(leader).wait_log("to=Leader");
    let standby = group.follow("r1", &[LISTEN], &[]);
    let both = [leader, standby];
    both.map(|replica| (replica, address(group.replica(replica))))
}

#[test]
fn leader_and_standby_are_both_alive_and_ready_and_one_of_them_leads() {
    let mut group = Group::new();
    let [(_, leader), (_, standby)] = pair(&mut group);
    for at in [leader, standby] {
        for path in ["/livez", "/readyz", "/startupz"] {
            let reply = get(at, path);
            assert_eq!((reply.code, reply.body.as_str()), (200, "ok\n"), "{path}");
        }
        assert_eq!(json(&get(at, "/leader").body), json(r#"{"name": "r0"}"#));
    }
    assert_eq!(get(leader, "/leader").code, 200);
    assert_eq!(get(standby, "/leader").code, 503);
}

#[test]
fn the_status_is_json_with_a_version() {
    let mut group = Group::new();
    let [(_, leader), (_, standby)] = pair(&mut group);
    let reply = get(leader, "/status");
    assert_eq!(reply.header("content-type"), Some("application/json"));
    let status = json(&reply.body);
    let start = group.wait_start("r0");
    for (path, expected) in [
        ("/version", Value::from(1)),
        ("/name", "test".into()),
        ("/identity", "r0".into()),
        ("/state", "Leader".into()),
        ("/leader", "r0".into()),
        ("/alive", true.into()),
        ("/ready", true.into()),
        ("/store_answers", true.into()),
        ("/child/state", "up".into()),
        ("/child/restarts", 0.into()),
        ("/child/pid", start.pid.into()),
        ("/child/ready", true.into()),
        ("/child/health", "not_checked".into()),
        ("/child/failed_checks", 0.into()),
        ("/ladder/grace_seconds", 30.0.into()),
        ("/ladder/stop_seconds", 25.0.into()),
        ("/lease/term", start.term.into()),
        ("/lease/token", start.token.to_string().into()),
    ] {
        assert_eq!(status.pointer(path), Some(&expected), "{path} of {status}");
    }
    let valid = status.pointer("/lease/valid_seconds").unwrap().as_f64();
    assert!(valid.unwrap() > 0.0 && valid.unwrap() <= lease().as_secs_f64());
    let status = json(&get(standby, "/status").body);
    assert_eq!(status["state"], "Follower");
    assert_eq!(status["leader"], "r0");
    assert_eq!(status["lease"], Value::Null);
    assert_eq!(status["child"]["state"], "none");
    assert_eq!(status["child"]["pid"], Value::Null);
}

/// The names of all fields, with those that they are in.
fn fields(value: &Value, path: &str, into: &mut BTreeSet<String>) {
    for (name, value) in value.as_object().into_iter().flatten() {
        let path = format!("{path}/{name}");
        fields(value, &path, into);
        into.insert(path);
    }
}

#[test]
fn the_status_has_the_fields_of_the_documentation() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operations.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, example) = page.split_once("### `/status`\n\n```json\n").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    let mut group = Group::new();
    let [(_, leader), _] = pair(&mut group);
    let [documented, printed] = [example, &get(leader, "/status").body].map(|text| {
        let mut names = BTreeSet::new();
        fields(&json(text), "", &mut names);
        names
    });
    assert_eq!(documented, printed);
}

#[test]
fn whoever_ends_is_not_ready_and_still_alive() {
    let mut group = Group::new();
    let [(replica, leader), (_, standby)] = pair(&mut group);
    group.replica(replica).signal(Signal::TERM);
    group.wait_event("TERM", "r0");
    let reply = get(leader, "/readyz");
    assert_eq!((reply.code, reply.body.as_str()), (503, "terminating\n"));
    assert_eq!(get(leader, "/leader").code, 503);
    assert_eq!(get(leader, "/livez").code, 200);
    assert_eq!(get(leader, "/startupz").code, 200);
    assert_eq!(json(&get(leader, "/status").body)["state"], "Terminating");
    assert_eq!(group.replica(replica).exit_code(), 0);
    wait_code(standby, "/leader", 200);
    assert_eq!(json(&get(standby, "/leader").body)["name"], "r1");
}

#[test]
fn without_an_election_the_childs_readiness_is_the_replicas() {
    let mut group = Group::everywhere(&[LISTEN, "--ready=notify"]);
    let (replica, _) = group.lead("r0", &[], &[]);
    let at = address(group.replica(replica));
    let reply = get(at, "/readyz");
    assert_eq!(
        (reply.code, reply.body.as_str()),
        (503, "the child is not up\n")
    );
    assert_eq!(get(at, "/startupz").code, 503);
    assert_eq!(get(at, "/livez").code, 200);
    assert_eq!(json(&get(at, "/status").body)["state"], "Starting");
    let reply = get(at, "/leader");
    assert_eq!(reply.code, 404);
    assert!(reply.body.contains("nobody is elected"), "{}", reply.body);
    let metrics = get(at, "/metrics").body;
    assert_eq!(
        value(&metrics, "soloist_state", &[("state", "Starting")]),
        1.0
    );
    assert!(!metrics.contains("leader_election"), "{metrics}");
    drop(group);

    let mut group = Group::everywhere(&[LISTEN, "--ready=notify"]);
    let (replica, _) = group.lead("r0", &[], &["ready", "drain=1000"]);
    let at = address(group.replica(replica));
    wait_code(at, "/readyz", 200);
    assert_eq!(get(at, "/startupz").code, 200);
    group.replica(replica).signal(Signal::TERM);
    group.wait_event("TERM", "r0");
    assert_eq!(get(at, "/readyz").code, 503);
    assert_eq!(get(at, "/startupz").code, 200);
    assert_eq!(group.replica(replica).exit_code(), 0);
}

#[test]
fn heads_are_answered_without_a_body_and_all_else_is_refused() {
    let mut group = Group::new();
    let (replica, _) = group.lead("r0", &[LISTEN], &[]);
    let at = address(group.replica(replica));
    for path in [
        "/",
        "/livez",
        "/readyz",
        "/startupz",
        "/leader",
        "/status",
        "/metrics",
    ] {
        let (whole, head) = (get(at, path), request(at, "HEAD", path));
        assert_eq!(head.code, whole.code, "{path}");
        assert_eq!(head.header("content-type"), whole.header("content-type"));
        assert!(head.header("content-length").is_some(), "{path}");
        assert_eq!(head.body, "", "{path}");
        for method in [
            "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "NONSENSE",
        ] {
            let reply = request(at, method, path);
            assert_eq!(reply.code, 405, "{method} {path}");
            assert_eq!(reply.header("allow"), Some("GET, HEAD"));
        }
    }
    for path in ["//", "/livez/", "/metrics2", "/..%2f", "/LIVEZ"] {
        assert_eq!(get(at, path).code, 404, "{path}");
    }
    assert_eq!(get(at, "/livez?verbose").code, 200);
}

#[test]
fn a_port_that_is_taken_is_bad_configuration() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let group = Group::new();
    let mut command = group.child("r0", &[&format!("--listen={address}")], &[]);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    let expected = format!("--listen {address}: the address is in use");
    assert!(said.contains(&expected), "{said}");
    let elsewhere = group
        .child("r0", &["--listen=192.0.2.1:80"], &[])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&elsewhere.stderr);
    assert_eq!(elsewhere.status.code(), Some(2), "{said}");
    assert!(
        said.contains("Name an address of this machine and a port that this user may have"),
        "{said}"
    );
    assert!(group.journal().is_empty(), "no child was started");
}

#[test]
fn a_main_loop_that_stands_still_is_not_alive() {
    let mut group = Group::everywhere(&[LISTEN]);
    let (replica, _) = group.lead("r0", &[], &[]);
    let at = address(group.replica(replica));
    wait_code(at, "/readyz", 200);
    let pid = group.replica(replica).pid().to_string();
    // Stops the first thread alone, where the loop is, whenever it has slept.
    let waits = "epoll_wait,epoll_pwait,epoll_pwait2";
    let inject = format!("inject={waits}:delay_exit=60000000");
    let mut tracer = Command::new("strace");
    tracer.args([
        "-q",
        "-o",
        "/dev/null",
        "-e",
        &format!("trace={waits}"),
        "-e",
        &inject,
        "-p",
        &pid,
    ]);
    let spawned = tracer.stdin(Stdio::null()).stderr(Stdio::null()).spawn();
    let Ok(mut tracer) = spawned else {
        return skipped("there is no strace");
    };
    wait_code(at, "/livez", 503);
    let reply = get(at, "/livez");
    assert!(reply.body.contains("has stood still for"), "{}", reply.body);
    assert_eq!(get(at, "/readyz").code, 503);
    tracer.kill().unwrap();
    tracer.wait().unwrap();
    wait_code(at, "/livez", 200);
    wait_code(at, "/readyz", 200);
}

#[test]
fn a_standby_is_not_ready_while_its_store_does_not_answer() {
    if !is_a_file() {
        return;
    }
    let mut group = Group::new();
    let [(_, leader), (_, standby)] = pair(&mut group);
    let held = HeldLease::of(&group);
    for at in [leader, standby] {
        wait_code(at, "/readyz", 503);
        assert_eq!(get(at, "/livez").code, 200);
    }
    let reply = get(standby, "/readyz");
    assert_eq!(reply.body, "the store does not answer\n");
    assert_eq!(json(&get(standby, "/status").body)["store_answers"], false);
    drop(held);
    for at in [leader, standby] {
        wait_code(at, "/readyz", 200);
    }
}
