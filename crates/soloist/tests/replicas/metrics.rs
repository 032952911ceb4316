//! `/metrics`: what is counted, and that it is what the documents say.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::TcpListener;

use rustix::process::Signal;

use crate::harness::{Group, LIMIT, lease, wait_for};
use crate::held_lease::HeldLease;
use crate::http::{LISTEN, address, get};
use crate::listener::{pair, wait_code};
use crate::openmetrics::{self, value};
use crate::place::is_a_file;

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
fn a_lease_that_is_deleted_is_a_loss_and_a_child_that_was_killed() {
    if !is_a_file() {
        return;
    }
    let mut group = Group::new();
    let [(_, leader), _] = pair(&mut group);
    fs::remove_file(group.path("lease")).unwrap();
    let text = wait_for("a loss", LIMIT, || {
        let text = get(leader, "/metrics").body;
        let deleted = value(&text, "soloist_losses_total", &[("cause", "deleted")]);
        (deleted == 1.0).then_some(text)
    });
    assert_eq!(value(&text, "soloist_children_killed_total", &[]), 1.0);
    assert_eq!(
        value(&text, "soloist_stops_total", &[("kind", "lost")]),
        0.0
    );
}

#[test]
fn a_lease_that_cannot_be_renewed_is_a_loss_and_a_child_that_was_asked() {
    if !is_a_file() {
        return;
    }
    let mut group = Group::new();
    let (replica, _) = group.lead("r0", &[LISTEN], &["deaf"]);
    let at = address(group.replica(replica));
    wait_code(at, "/leader", 200);
    let held = HeldLease::of(&group);
    let text = wait_for("a child that was killed", LIMIT, || {
        let text = get(at, "/metrics").body;
        let killed = value(&text, "soloist_children_killed_total", &[]);
        (killed == 1.0).then_some(text)
    });
    drop(held);
    let of = |name: &str, labels: &[(&str, &str)]| value(&text, name, labels);
    assert_eq!(
        of("soloist_losses_total", &[("cause", "renew_deadline")]),
        1.0
    );
    assert_eq!(of("soloist_stops_total", &[("kind", "lost")]), 1.0);
    assert!(of("leader_election_slowpath_total", &[("name", "test")]) >= 1.0);
}

#[test]
fn lines_of_the_log_that_cannot_be_written_are_counted() {
    let mut group = Group::everywhere(&[]);
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = free.local_addr().unwrap();
    drop(free);
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut command = group.child("r0", &[&format!("--listen={at}")], &[]);
    group.spawn_as_it_is("r0", command.stderr(full));
    group.wait_start("r0");
    wait_for("lines that were dropped", LIMIT, || {
        let text = get(at, "/metrics").body;
        (value(&text, "soloist_log_lines_dropped_total", &[]) >= 2.0).then_some(())
    });
}
