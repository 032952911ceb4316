//! `/` and `/events`: the page for people, and what keeps it live.

use std::io::{BufRead, BufReader, Lines, Write};
use std::net::{SocketAddr, TcpStream};

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Group, LIMIT, wait_for};
use crate::http::{LISTEN, address, connect, get, request};
use crate::listener::pair;

/// At a time.
const STREAMS: usize = 8;

/// A reader of `/events`.
struct Events {
    head: Vec<String>,
    lines: Lines<BufReader<TcpStream>>,
}

impl Events {
    fn open(at: SocketAddr) -> Self {
        let mut stream = connect(at);
        let ask = b"GET /events HTTP/1.1\r\nhost: test\r\naccept: text/event-stream\r\n\r\n";
        stream.write_all(ask).unwrap();
        let mut lines = BufReader::new(stream).lines();
        let head = lines
            .by_ref()
            .map(Result::unwrap)
            .take_while(|line| !line.is_empty())
            .collect();
        Self { head, lines }
    }

    /// The next line that begins so. Chunks begin and end between lines.
    fn line(&mut self, begin: &str) -> String {
        let mut lines = self.lines.by_ref().map(Result::unwrap);
        let line = lines.find(|line| line.starts_with(begin));
        line.unwrap_or_else(|| panic!("the stream has ended without {begin:?}"))
    }

    /// The next event of this name.
    fn next(&mut self, name: &str) -> Value {
        self.line(&format!("event: {name}"));
        let data = self.line("data: ");
        serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap()
    }
}

/// Between these two, which are there once.
fn between<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
    let (_, rest) = text.split_once(begin).unwrap();
    rest.split_once(end).unwrap().0
}

fn sha256(text: &str) -> String {
    use base64::Engine;
    use sha2::{Digest, Sha256};
    let digest = Sha256::digest(text);
    base64::engine::general_purpose::STANDARD.encode(digest)
}

#[test]
fn the_page_may_run_its_own_style_and_script_and_nothing_else() {
    let mut group = Group::new();
    let (replica, _) = group.lead("r0", &[LISTEN], &[]);
    let at = address(group.replica(replica));
    let page = get(at, "/");
    assert_eq!(page.code, 200);
    for (name, value) in [
        ("content-type", "text/html; charset=utf-8"),
        ("cache-control", "no-store"),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
    ] {
        assert_eq!(page.header(name), Some(value), "{name}");
    }
    let policy = page.header("content-security-policy").unwrap();
    let rules: Vec<_> = policy.split("; ").collect();
    let style = sha256(between(&page.body, "<style>", "</style>"));
    let script = sha256(between(&page.body, "<script>", "</script>"));
    for rule in [
        "default-src 'none'",
        &format!("style-src 'sha256-{style}'"),
        &format!("script-src 'sha256-{script}'"),
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ] {
        assert!(rules.contains(&rule), "{rule}: {policy}");
    }
    let head = request(at, "HEAD", "/");
    assert_eq!(head.header("content-security-policy"), Some(policy));
    let length = page.body.len().to_string();
    assert_eq!(head.header("content-length"), Some(length.as_str()));
}

#[test]
fn the_events_begin_with_how_it_is_and_how_it_came_to_be() {
    let mut group = Group::new();
    let [(_, leader), (_, standby)] = pair(&mut group);
    let mut events = Events::open(leader);
    assert!(events.head[0].contains("200"), "{:?}", events.head);
    for header in [
        "content-type: text/event-stream",
        "cache-control: no-store",
        "x-content-type-options: nosniff",
    ] {
        assert!(events.head.iter().any(|line| line == header), "{header}");
    }
    assert_eq!(events.line("retry: "), "retry: 1000");
    let timeline = events.next("timeline");
    let changes = timeline.as_array().unwrap();
    assert_eq!(changes[0]["child"]["state"], "none");
    let last = changes.last().unwrap();
    assert_eq!(last["leader"], "r0");
    assert_eq!(last["child"]["state"], "up");
    assert_eq!(last["term"], group.wait_start("r0").term);
    let ago: Vec<_> = changes
        .iter()
        .map(|one| one["seconds_ago"].as_f64())
        .collect();
    assert!(
        ago.is_sorted_by(|earlier, later| earlier >= later),
        "{ago:?}"
    );
    let status = events.next("status");
    assert_eq!(status["state"], "Leader");
    assert_eq!(status["lease"]["term"], last["term"]);
    // A renewal is a status of its own.
    assert_eq!(events.next("status")["state"], "Leader");
    let mut events = Events::open(standby);
    events.next("timeline");
    assert_eq!(events.next("status")["leader"], "r0");
    let head = request(leader, "HEAD", "/events");
    assert_eq!((head.code, head.body.as_str()), (200, ""));
    assert_eq!(head.header("content-type"), Some("text/event-stream"));
    for method in ["POST", "PUT", "DELETE"] {
        assert_eq!(request(leader, method, "/events").code, 405, "{method}");
    }
}

#[test]
fn a_handover_is_an_event() {
    let mut group = Group::new();
    let [(replica, _), (_, standby)] = pair(&mut group);
    let mut events = Events::open(standby);
    events.next("timeline");
    assert_eq!(events.next("status")["leader"], "r0");
    group.replica(replica).signal(Signal::TERM);
    let changes = loop {
        let timeline = events.next("timeline");
        let changes = timeline.as_array().unwrap().clone();
        let last = changes.last().unwrap();
        if last["leader"] == "r1" && last["child"]["state"] == "up" {
            break changes;
        }
    };
    assert_eq!(events.next("status")["leader"], "r1");
    let of = |identity: &str| changes.iter().position(|one| one["leader"] == identity);
    assert!(of("r0") < of("r1"), "{changes:?}");
    assert_eq!(changes.last().unwrap()["term"], group.wait_start("r1").term);
    assert_eq!(group.replica(replica).exit_code(), 0);
}

#[test]
fn streams_are_few_and_leave_the_connections_to_probes() {
    let mut group = Group::new();
    let (replica, _) = group.lead("r0", &[LISTEN], &[]);
    let at = address(group.replica(replica));
    let mut streams: Vec<_> = (0..STREAMS).map(|_| Events::open(at)).collect();
    for stream in &mut streams {
        stream.next("status");
    }
    let refused = get(at, "/events");
    assert_eq!(refused.code, 503);
    assert!(
        refused.body.contains("close another page"),
        "{}",
        refused.body
    );
    for path in ["/livez", "/readyz", "/metrics", "/"] {
        assert_eq!(get(at, path).code, 200, "{path}");
    }
    streams.pop();
    let mut next = wait_for("the place of who has gone", LIMIT, || {
        let events = Events::open(at);
        events.head[0].contains("200").then_some(events)
    });
    next.next("status");
    streams[0].next("status");
}

#[test]
fn readers_that_read_nothing_cost_no_renewal() {
    let mut group = Group::new();
    let (replica, start) = group.lead("r0", &[LISTEN], &[]);
    let at = address(group.replica(replica));
    let _mute: Vec<_> = (1..STREAMS).map(|_| Events::open(at)).collect();
    let mut events = Events::open(at);
    for _ in 0..20 {
        let status = events.next("status");
        assert_eq!(status["lease"]["term"], start.term);
    }
    assert_eq!(group.events("start").len(), 1);
}

#[test]
fn without_an_election_the_events_name_no_leader() {
    let mut group = Group::everywhere(&[LISTEN]);
    let (replica, _) = group.lead("r0", &[], &[]);
    group.replica(replica).wait_log("to=Running");
    let mut events = Events::open(address(group.replica(replica)));
    let timeline = events.next("timeline");
    let status = events.next("status");
    for told in [timeline.as_array().unwrap().last().unwrap(), &status] {
        assert_eq!(told["state"], "Running");
        assert_eq!(told.get("leader"), None);
    }
}

#[test]
fn a_stream_without_news_is_kept_alive() {
    let mut group = Group::everywhere(&[LISTEN]);
    let (replica, _) = group.lead("r0", &[], &[]);
    group.replica(replica).wait_log("to=Running");
    let mut events = Events::open(address(group.replica(replica)));
    assert_eq!(events.line(":"), ":");
    assert_eq!(events.next("status")["state"], "Running");
}
