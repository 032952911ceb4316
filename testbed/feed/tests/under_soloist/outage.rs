//! The server is away for a while: the same worker waits, longer each time, and goes on.

use feed::payload::DEFAULT_SEED;
use feed::verify;
use rustix::process::Signal;

use crate::stage::Stage;

const FLAGS: [&str; 4] = [
    "--grace-period=20s",
    "--ready=notify",
    "--log-status=0s",
    "--log-level=info",
];

#[test]
fn a_worker_waits_one_two_and_four_seconds_for_its_server_and_goes_on_where_it_was() {
    let mut stage = Stage::new();
    stage.start_server(&["--rate=500"]);
    stage.start_worker(&FLAGS, &[]);
    let before = stage.wait_running(None);
    stage.wait_lines(100);
    stage.stop_server(Signal::KILL);
    for wait in ["1s", "2s", "4s"] {
        stage.wait_log(0, &format!("trying again in {wait}"));
    }
    assert_eq!(waits(&stage.replica(0).log())[..3], ["1s", "2s", "4s"]);
    let lines = stage.lines();
    stage.start_server(&["--rate=500"]);
    stage.wait_lines(lines + 1000);
    assert_eq!(
        stage.running(),
        Some(before),
        "the worker was not restarted"
    );
    let leader = stage.replica(0);
    leader.signal(Signal::TERM);
    assert_eq!(leader.exit_code(), Some(0));
    let report = verify::file(&stage.output(), DEFAULT_SEED, None).unwrap();
    assert!(report.findings.is_empty(), "{report}");
    assert_eq!(report.spans.len(), 1, "{report}");
}

/// As the worker itself logs them; soloist says them once more.
fn waits(log: &str) -> Vec<&str> {
    let lines = log.lines().filter(|line| !line.contains("the child says"));
    let waits = lines.filter_map(|line| line.split_once("trying again in "));
    waits
        .filter_map(|(_, rest)| rest.split(' ').next())
        .collect()
}
