//! `--listen`: what is answered to probes, people and Prometheus, and to those who misbehave.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Group, LIMIT, lease, wait_for};
use crate::http::{LISTEN, address, connect, exchange, get, request};
use crate::openmetrics::{self, value};
use crate::skipped::skipped;

/// How long a client may take for the head of its request.
const HEAD_WITHIN: Duration = Duration::from_secs(5);

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn wait_code(address: SocketAddr, path: &str, code: u16) {
    let what = format!("{code} at {path}");
    wait_for(&what, LIMIT, || {
        (get(address, path).code == code).then_some(())
    });
}

/// A leader and a standby, and where they listen.
fn pair(group: &mut Group) -> [(usize, SocketAddr); 2] {
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
    for path in ["/", "/livez/", "/metrics2", "/..%2f", "/LIVEZ"] {
        assert_eq!(get(at, path).code, 404, "{path}");
    }
    assert_eq!(get(at, "/livez?verbose").code, 200);
}

#[test]
fn the_metrics_are_those_of_the_documentation() {
    let mut group = Group::new();
    let (replica, _) = group.lead("r0", &[LISTEN], &[]);
    let at = address(group.replica(replica));
    let reply = get(at, "/metrics");
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(reply.header("content-type"), Some(kind));
    let printed: BTreeMap<String, [String; 3]> = openmetrics::parse(&reply.body)
        .iter()
        .map(|metric| {
            let labels: Vec<_> = metric.labels().into_iter().collect();
            let help = metric.help.trim_end_matches('.').to_owned();
            (
                metric.queried(),
                [metric.kind.clone(), labels.join(", "), help],
            )
        })
        .collect();
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operations.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, section) = page.split_once("\n### Metrics\n").expect("a section");
    let section = section.split("\n#").next().unwrap();
    let cells = |row: &str| {
        let cells = row
            .trim_matches('|')
            .split('|')
            .map(|cell| cell.trim().replace('`', ""));
        cells.collect::<Vec<_>>()
    };
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let documented: BTreeMap<String, [String; 3]> = rows
        .map(|row| match &cells(row)[..] {
            [name, kind, labels, help] => {
                (name.clone(), [kind.clone(), labels.clone(), help.clone()])
            }
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(documented, printed);
}

#[test]
fn a_term_with_a_crash_and_a_drain_is_counted() {
    let mut group = Group::new();
    let (replica, first) = group.lead("r0", &[LISTEN], &["drain=300"]);
    let at = address(group.replica(replica));
    first.signal(Signal::KILL);
    group.wait_many("start", 2);
    wait_code(at, "/leader", 200);
    let renewed = wait_for("a renewal", LIMIT, || {
        let text = get(at, "/metrics").body;
        (value(&text, "soloist_renew_duration_seconds_count", &[]) > 0.0).then_some(text)
    });
    let of = |name: &str, labels: &[(&str, &str)]| value(&renewed, name, labels);
    assert_eq!(
        of("leader_election_master_status", &[("name", "test")]),
        1.0
    );
    assert_eq!(of("soloist_child_restarts_total", &[]), 1.0);
    assert_eq!(of("soloist_state", &[("state", "Leader")]), 1.0);
    assert_eq!(of("soloist_state", &[("state", "Follower")]), 0.0);
    assert_eq!(of("soloist_losses_total", &[("cause", "expired")]), 0.0);
    let start = group.wait_start("r0");
    assert_eq!(of("soloist_term", &[]), start.term as f64);
    assert_eq!(of("soloist_token", &[]), start.token as f64);
    let valid = of("soloist_lease_validity_seconds", &[]);
    assert!(valid > 0.0 && valid <= lease().as_secs_f64(), "{valid}");
    // The answer comes while the child drains, and the next when nothing is left of it: by a handover, so that somebody is there
    // to be asked.
    let mut handover = group.command(&["handover"]);
    assert!(handover.output().unwrap().status.success());
    let counted = wait_for("a drain", LIMIT, || {
        let text = get(at, "/metrics").body;
        (value(&text, "soloist_drain_duration_seconds_count", &[]) > 0.0).then_some(text)
    });
    let of = |name: &str, labels: &[(&str, &str)]| value(&counted, name, labels);
    assert_eq!(of("soloist_stops_total", &[("kind", "step_down")]), 1.0);
    assert_eq!(of("soloist_stops_total", &[("kind", "terminate")]), 0.0);
    assert!(of("soloist_drain_duration_seconds_sum", &[]) >= 0.3);
    assert_eq!(of("soloist_children_killed_total", &[]), 0.0);
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
    assert!(group.journal().is_empty(), "no child was started");
}

/// Whether the other side has closed it, and after how long.
fn closed_after(stream: &mut TcpStream, since: Instant) -> Duration {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => since.elapsed(),
        Err(error) if error.kind() == ErrorKind::ConnectionReset => since.elapsed(),
        Err(error) => panic!("it is still open: {error}"),
    }
}

#[test]
fn who_is_slow_or_idle_is_not_waited_for() {
    let mut group = Group::new();
    let (replica, _) = group.lead("r0", &[LISTEN], &[]);
    let at = address(group.replica(replica));
    let since = Instant::now();
    let (mut mute, mut slow, mut idle) = (connect(at), connect(at), connect(at));
    slow.write_all(b"GET /livez HTTP/1.1\r\nhost: te").unwrap();
    idle.write_all(b"GET /livez HTTP/1.1\r\nhost: test\r\n\r\n")
        .unwrap();
    for stream in [&mut mute, &mut slow, &mut idle] {
        let after = closed_after(stream, since);
        assert!(after >= HEAD_WITHIN, "{after:?}");
    }
}

#[test]
fn a_head_that_is_too_large_is_refused() {
    let mut group = Group::new();
    let (replica, _) = group.lead("r0", &[LISTEN], &[]);
    let at = address(group.replica(replica));
    let long = "x".repeat(9 << 10);
    let large = format!("GET /livez HTTP/1.1\r\nhost: test\r\nlong: {long}\r\n\r\n");
    assert_eq!(exchange(at, &large).code, 431);
    let many: String = (0..100).map(|number| format!("h{number}: x\r\n")).collect();
    let many = format!("GET /livez HTTP/1.1\r\nhost: test\r\n{many}\r\n");
    assert_eq!(exchange(at, &many).code, 431);
    assert_eq!(get(at, "/livez").code, 200);
}

/// The sockets that a process has open.
fn sockets(pid: u32) -> usize {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let names = links.filter_map(|link| fs::read_link(link.ok()?.path()).ok());
    names
        .filter(|name| name.to_string_lossy().starts_with("socket:"))
        .count()
}

#[test]
fn the_oldest_goes_when_there_are_too_many() {
    let mut group = Group::new();
    let (replica, _) = group.lead("r0", &[LISTEN], &[]);
    let at = address(group.replica(replica));
    let before = sockets(group.replica(replica).pid());
    let since = Instant::now();
    let mut many: Vec<_> = (0..150).map(|_| connect(at)).collect();
    assert_eq!(get(at, "/livez").code, 200);
    let pid = group.replica(replica).pid();
    wait_for("64 connections at most", LIMIT, || {
        (sockets(pid) <= before + 64).then_some(())
    });
    let after = closed_after(&mut many[0], since);
    assert!(after < HEAD_WITHIN, "not because it was slow: {after:?}");
}

#[test]
fn a_thousand_connections_and_slow_clients_cost_no_renewal() {
    let mut group = Group::new();
    let (replica, _) = group.lead("r0", &[LISTEN], &[]);
    let at = address(group.replica(replica));
    let (mut connections, mut answered) = (0, 0);
    let begin = Instant::now();
    let mut slow: Vec<TcpStream> = Vec::new();
    // Three leases of it, and a thousand connections at the least.
    while begin.elapsed() < 3 * lease() || connections < 1000 {
        for _ in 0..100 {
            let mut stream = connect(at);
            // A head that never ends. Who has been thrown out already cannot say it.
            let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: te");
            slow.push(stream);
            connections += 1;
        }
        for path in ["/livez", "/readyz", "/metrics"] {
            assert_eq!(get(at, path).code, 200, "{path}");
            answered += 1;
        }
        if slow.len() > 300 {
            slow.drain(..100);
        }
    }
    let text = get(at, "/metrics").body;
    let of = |name: &str, labels: &[(&str, &str)]| value(&text, name, labels);
    for cause in ["renew_deadline", "expired", "taken"] {
        assert_eq!(
            of("soloist_losses_total", &[("cause", cause)]),
            0.0,
            "{cause}"
        );
    }
    assert_eq!(group.events("start").len(), 1);
    let renewals = of("soloist_renew_duration_seconds_count", &[]);
    assert!(renewals >= 3.0, "{renewals}");
    println!(
        "{connections} connections of slow clients in {:?}, {answered} requests beside them answered, {renewals} renewals took {} s",
        begin.elapsed(),
        of("soloist_renew_duration_seconds_sum", &[]),
    );
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
