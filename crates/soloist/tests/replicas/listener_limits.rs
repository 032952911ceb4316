//! The listener's limits: for who is slow, large or many.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::harness::{Group, LIMIT, lease, wait_for};
use crate::http::{LISTEN, address, connect, exchange, get};
use crate::openmetrics::value;

/// How long a client may take for the head of its request.
const HEAD_WITHIN: Duration = Duration::from_secs(5);

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

#[test]
fn what_is_no_http_is_hung_up_on_at_once() {
    let mut group = Group::new();
    let (replica, _) = group.lead("r0", &[LISTEN], &[]);
    let at = address(group.replica(replica));
    let tls = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
    let h2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    let two_lengths =
        b"GET /livez HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n";
    let garbage: [&[u8]; 7] = [
        tls,
        h2,
        two_lengths,
        b"\0\0\0\0\0\0\0\0\r\n\r\n",
        b"GET /livez HTTP/9.9\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nhost : a\r\n\r\n",
        b"\xff\xfe /livez\r\n\r\n",
    ];
    for bytes in garbage {
        let since = Instant::now();
        let mut stream = connect(at);
        stream.write_all(bytes).unwrap();
        let after = closed_after(&mut stream, since);
        assert!(after < HEAD_WITHIN, "{after:?} {bytes:?}");
    }
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
