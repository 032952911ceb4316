//! How a worker begins and ends: in flight messages, readiness, and a handler that is stuck.

use feed::payload::DEFAULT_SEED;
use feed::store::Store;
use feed::verify;
use rustix::process::Signal;

use crate::stage::Stage;

/// All of them are sent at once: what is not handled is in flight.
const IN_FLIGHT: usize = 1000;
const SERVER: [&str; 1] = ["--messages=1000"];
/// 5 s for all of them.
const WORK: &str = "--work=5ms";
/// Messages that are handled before the end begins; by then the server has long sent the others.
const BEGUN: usize = 100;

/// These, and the grace period.
fn flags(grace: &str) -> [&str; 5] {
    [
        grace,
        "--ready=notify",
        "--health=notify",
        "--log-status=0s",
        "--log-level=info",
    ]
}

#[test]
fn what_cannot_be_handled_in_time_is_left_to_the_next_leader() {
    let mut stage = Stage::new();
    stage.start_server(&SERVER);
    // 1 s to drain.
    let flags = flags("--grace-period=4s");
    stage.start_worker(&flags, &[WORK]);
    stage.wait_lines(BEGUN);
    stop(&mut stage, 0);
    let [received, handled, acknowledged] = counts(&stage.replica(0).log(), "the time ran out");
    let report = verify::file(&stage.output(), DEFAULT_SEED, None).unwrap();
    assert!(report.findings.is_empty(), "{report}");
    assert!(report.last < IN_FLIGHT as u64, "all were handled in time");
    assert_eq!(report.last, handled);
    assert!(acknowledged <= handled && handled <= received);
    let acked = acked(&mut stage);
    assert!((acknowledged..=handled).contains(&acked), "{acked}");
    println!("{handled} handled, {acked} acknowledged, the others left to the next one");

    stage.start_server(&SERVER);
    stage.start_worker(&flags, &[]);
    stage.wait_lines(IN_FLIGHT);
    stop(&mut stage, 1);
    let report = verify::file(&stage.output(), DEFAULT_SEED, Some(IN_FLIGHT as u64)).unwrap();
    assert!(report.findings.is_empty(), "{report}");
    assert_eq!(report.lines, IN_FLIGHT as u64);
    assert_eq!(report.spans.len(), 2, "{report}");
}

#[test]
fn with_time_enough_all_that_is_in_flight_is_handled_and_the_server_confirms_the_end() {
    let mut stage = Stage::new();
    stage.start_server(&SERVER);
    // 45 s to drain.
    stage.start_worker(&flags("--grace-period=60s"), &[WORK]);
    stage.wait_lines(BEGUN);
    stop(&mut stage, 0);
    let log = stage.replica(0).log();
    let all = IN_FLIGHT as u64;
    assert_eq!(counts(&log, "the server confirmed the end"), [all; 3]);
    let report = verify::file(&stage.output(), DEFAULT_SEED, Some(all)).unwrap();
    assert!(report.findings.is_empty(), "{report}");
    assert_eq!(acked(&mut stage), all);
}

#[test]
fn a_replica_leads_only_when_the_stream_of_its_worker_is_open() {
    let mut stage = Stage::new();
    let flags = flags("--grace-period=4s");
    let waits = ["--backoff=50ms", "--backoff-most=400ms"];
    stage.start_worker(&flags, &waits);
    stage.wait_log(0, "trying again in 400ms");
    assert_eq!(stage.replica(0).log().find("to=Leader"), None);
    stage.start_server(&SERVER);
    stage.wait_log(0, "to=Leader");
    let log = stage.replica(0).log();
    let order = ["the child has started", "the stream of", "to=Leader"];
    let order = order.map(|text| log.find(text).expect(text));
    assert!(order.is_sorted(), "{order:?}");
    stage.wait_lines(IN_FLIGHT);
    stop(&mut stage, 0);
}

#[test]
fn a_replica_whose_worker_finds_no_server_steps_down_after_the_start_limit() {
    let mut stage = Stage::new();
    let mut flags = flags("--grace-period=4s").to_vec();
    flags.extend(["--start-limit=1s", "--cool-down=3s"]);
    for _ in 0..2 {
        stage.start_worker(&flags, &["--backoff=200ms"]);
    }
    let first = stage.wait_running(None);
    stage.wait_log(first.replica, "the lease is released");
    let next = stage.wait_running(Some(first));
    assert_ne!(next.replica, first.replica, "another one tries");
    let log = stage.replica(first.replica).log();
    assert!(log.contains("from=PreLeader to=PreFollower"), "{log}");
    assert_eq!(log.find("to=Leader"), None);
    stage.start_server(&SERVER);
    stage.wait_lines(IN_FLIGHT);
    let report = verify::file(&stage.output(), DEFAULT_SEED, Some(IN_FLIGHT as u64)).unwrap();
    assert!(report.findings.is_empty(), "{report}");
}

#[test]
fn a_worker_whose_handler_is_stuck_is_restarted() {
    let mut stage = Stage::new();
    stage.start_server(&SERVER);
    let mut flags = flags("--grace-period=4s").to_vec();
    flags.push("--health-interval=300ms");
    stage.start_worker(&flags, &["--work=1h"]);
    let stuck = stage.wait_running(None);
    let next = stage.wait_running(Some(stuck));
    assert_eq!(next.replica, stuck.replica, "the same replica leads on");
    let log = stage.replica(0).log();
    let order = [
        "to=Leader",
        "the work does not go on: no more heartbeats",
        "asking the child to stop",
        "the time ran out: 1 received, 0 handled, 0 acknowledged",
    ];
    let order = order.map(|text| log.find(text).expect(text));
    assert!(order.is_sorted(), "{order:?}");
    assert_eq!(log.find("the lease is released"), None);
    assert_eq!(stage.lines(), 0);
}

fn stop(stage: &mut Stage, number: usize) {
    let replica = stage.replica(number);
    replica.signal(Signal::TERM);
    assert_eq!(
        replica.exit_code(),
        Some(0),
        "a planned stop is a clean one"
    );
}

/// Ends the server, and looks at what it knows to be handled.
fn acked(stage: &mut Stage) -> u64 {
    stage.stop_server(Signal::TERM);
    Store::open(stage.path("feed.redb")).unwrap().acked()
}

/// Received, handled, acknowledged: what the worker says at its end.
fn counts(log: &str, end: &str) -> [u64; 3] {
    let said = log.split_once(&format!("{end}: "));
    let (_, said) = said.unwrap_or_else(|| panic!("no {end:?} in {log}"));
    let mut numbers = said.split(' ').filter_map(|word| word.parse().ok());
    std::array::from_fn(|_| numbers.next().expect("a number"))
}
