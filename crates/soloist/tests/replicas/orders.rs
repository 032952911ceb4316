//! What people order: handovers, pauses, and what is refused.

use std::process::{Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::harness::{Group, LIMIT, lease, wait_for};
use crate::http::get;
use crate::listener::pair;
use crate::openmetrics::value;
use crate::place;

/// One command from outside, and how it ended.
struct Told {
    code: i32,
    /// What it has to say, and what it complains of.
    text: String,
    took: Duration,
}

fn order(group: &Group, command: &[&str]) -> Told {
    let began = Instant::now();
    let Output {
        status,
        stdout,
        stderr,
    } = group
        .command(command)
        .stdout(Stdio::piped())
        .output()
        .unwrap();
    let text = [stdout, stderr].concat();
    Told {
        code: status.code().unwrap(),
        text: String::from_utf8(text).unwrap(),
        took: began.elapsed(),
    }
}

/// r0 leads; r1 and r2 stand by.
fn of_three(plan: &[&str]) -> Group {
    let mut group = Group::new();
    group.lead("r0", &[], plan);
    group.follow("r1", &[], plan);
    group.follow("r2", &[], plan);
    group
}

#[test]
fn a_handover_drains_and_the_named_replica_leads_next() {
    let group = of_three(&["drain=3000"]);
    let told = order(&group, &["handover", "--to", "r2", "--wait"]);
    assert_eq!(told.code, 0, "{}", told.text);
    let next = group.wait_start("r2");
    let drained = group.wait_event("drained", "r0");
    assert!(drained.at <= next.at && drained.term < next.term);
    assert!(
        told.took > Duration::from_secs(3),
        "it waited for the drain"
    );
    for line in [
        "ordered: r0 (term 0) hands over to r2",
        "r2 leads in term 1",
        "nobody held the lease for ",
    ] {
        assert!(told.text.contains(line), "{line}: {}", told.text);
    }
    // A lease file does not show every state.
    let seen = told.text.contains("r0 has released the lease");
    assert!(seen || place::is_a_file(), "{}", told.text);
    assert_eq!(group.events("start").len(), 2);
    // An order is obeyed once.
    thread::sleep(2 * lease());
    assert_eq!(group.events("start").len(), 2);
    // And back: who is wanted by name does not cool down.
    let told = order(&group, &["handover", "--to", "r0", "--wait"]);
    assert_eq!(told.code, 0, "{}", told.text);
    assert!(told.text.contains("r0 leads in term 2"), "{}", told.text);
}

#[test]
fn an_heir_that_is_not_there_costs_a_third_of_the_lease() {
    let group = of_three(&[]);
    let told = order(&group, &["handover", "--to", "r9", "--wait"]);
    assert_eq!(told.code, 1, "{}", told.text);
    assert!(told.text.contains("leads now, not r9"), "{}", told.text);
    assert!(told.took > lease() / 3, "{:?}", told.took);
    assert!(told.took < lease() + lease(), "{:?}", told.took);
    assert_eq!(group.wait_many("start", 2).len(), 2);
}

#[test]
fn what_cannot_be_ordered_is_refused_with_its_reason_and_nothing_happens() {
    let mut group = Group::new();
    let nothing = order(&group, &["handover"]);
    assert_eq!(nothing.code, 1, "{}", nothing.text);
    assert!(
        nothing.text.contains("there is no lease"),
        "{}",
        nothing.text
    );
    let (r0, _) = group.lead("r0", &[], &[]);
    for (command, code, reason) in [
        (
            &["handover", "--term", "7"][..],
            1,
            "term 7 is over: r0 leads in term 0",
        ),
        (&["handover", "--to", "r0"], 1, "r0 leads already"),
        (&["handover", "--to", "a b"], 1, "contains ' '"),
        (&["pause", "--for", "2"], 2, "is not a duration"),
        (&["pause", "--wait"], 2, "--stop"),
    ] {
        let told = order(&group, command);
        assert_eq!(told.code, code, "{command:?}: {}", told.text);
        assert!(told.text.contains(reason), "{command:?}: {}", told.text);
    }
    assert_eq!(order(&group, &["pause"]).code, 0);
    let paused = order(&group, &["handover"]);
    assert_eq!(paused.code, 1);
    let reason = "the lease is paused, so nobody could take over; resume first";
    assert!(paused.text.contains(reason), "{}", paused.text);
    assert_eq!(order(&group, &["resume"]).text, "resumed\n");
    assert_eq!(order(&group, &["resume"]).text, "it was not paused\n");
    assert_eq!(group.events("start").len(), 1);
    group.replica(r0).signal(Signal::TERM);
    assert_eq!(group.replica(r0).exit_code(), 0);
    let free = order(&group, &["handover"]);
    assert_eq!(free.code, 1);
    let reason = "nobody leads, so there is nothing to hand over";
    assert!(free.text.contains(reason), "{}", free.text);
}

#[test]
fn nobody_succeeds_a_leader_that_dies_in_a_pause_until_it_is_resumed() {
    let mut group = of_three(&[]);
    let told = order(&group, &["pause"]);
    assert!(told.text.contains("r0 goes on"), "{}", told.text);
    for replica in 0..3 {
        group.replica(replica).wait_log("paused: nobody takes over");
    }
    let status = order(&group, &["status"]);
    assert!(
        status
            .text
            .contains("PAUSED    nobody takes over until it is resumed"),
        "{}",
        status.text
    );
    group.replica(0).signal(Signal::KILL);
    thread::sleep(4 * lease());
    assert_eq!(group.events("start").len(), 1);
    assert!(group.running().is_none());
    let resumed = Instant::now();
    assert_eq!(order(&group, &["resume"]).code, 0);
    group.wait_many("start", 2);
    let took = resumed.elapsed();
    assert!(took < lease(), "at once: {took:?}");
}

#[test]
fn a_pause_is_in_the_status_and_in_the_metrics_of_every_replica_until_it_is_over() {
    let mut group = Group::new();
    let replicas = pair(&mut group).map(|(_, at)| at);
    for (command, is_paused) in [(&["pause", "--for", "1h"][..], true), (&["resume"], false)] {
        assert_eq!(order(&group, command).code, 0);
        for at in replicas {
            wait_for("the pause, or its end", LIMIT, || {
                let status: Value = serde_json::from_str(&get(at, "/status").body).unwrap();
                let paused = &status["paused"];
                let told = paused["stop"] == false && paused["until"].is_string();
                let metrics = get(at, "/metrics").body;
                let counted = value(&metrics, "soloist_paused", &[]) == 1.0;
                let is_over = paused.is_null() && !counted;
                (told && counted && is_paused || is_over && !is_paused).then_some(())
            });
        }
    }
}

#[test]
fn a_pause_that_stops_waits_for_the_drain_and_nobody_leads_until_it_is_resumed() {
    let group = of_three(&["drain=3000"]);
    let told = order(&group, &["pause", "--stop", "--wait"]);
    assert_eq!(told.code, 0, "{}", told.text);
    assert!(told.text.contains("the child is gone"), "{}", told.text);
    group.wait_event("drained", "r0");
    thread::sleep(2 * lease());
    assert_eq!(group.events("start").len(), 1);
    assert_eq!(order(&group, &["resume"]).code, 0);
    group.wait_many("start", 2);
}

/// The leader is going anyway, and has named nobody yet.
#[test]
fn a_pause_that_is_ordered_in_a_drain_keeps_everybody_out_when_it_is_over() {
    let mut group = of_three(&["drain=3000"]);
    group.replica(0).signal(Signal::TERM);
    group.wait_event("TERM", "r0");
    let told = order(&group, &["pause", "--stop", "--wait"]);
    assert_eq!(told.code, 0, "{}", told.text);
    group.wait_event("drained", "r0");
    assert_eq!(group.replica(0).exit_code(), 0);
    thread::sleep(2 * lease());
    assert_eq!(group.events("start").len(), 1);
    let resumed = Instant::now();
    assert_eq!(order(&group, &["resume"]).code, 0);
    group.wait_many("start", 2);
    let took = resumed.elapsed();
    assert!(took < lease(), "at once: {took:?}");
}

#[test]
fn a_pause_ends_by_itself() {
    let group = of_three(&[]);
    let told = order(&group, &["pause", "--stop", "--for", "5s", "--wait"]);
    assert_eq!(told.code, 0, "{}", told.text);
    assert!(group.running().is_none());
    let next = group.wait_many("start", 2).pop().unwrap();
    let stopped = group.wait_event("TERM", "r0");
    let pause = next.at - stopped.at;
    assert!((3_000..15_000).contains(&pause), "{pause}");
    let status = order(&group, &["status", "--output", "json"]);
    assert!(status.text.contains("\"paused\": null"), "{}", status.text);
}

#[test]
fn the_status_tells_who_leads_and_follows_it() {
    let mut group = of_three(&[]);
    let told = order(&group, &["status"]);
    assert_eq!(told.code, 0, "{}", told.text);
    assert!(
        told.text
            .contains("  leader    r0\n  term      0\n  since     20"),
        "{}",
        told.text
    );
    let json = order(&group, &["status", "--output", "json"]);
    let json: Value = serde_json::from_str(&json.text).unwrap();
    assert_eq!(
        (json["leader"].as_str(), json["term"].as_u64()),
        (Some("r0"), Some(0))
    );
    assert!(json["acquired"].is_string() && json["renewed"].is_string());
    let mut watch = group.command(&["status", "--watch", "--output", "json"]);
    let watch = group.spawn_command("watch", &mut watch);
    group.replica(0).signal(Signal::TERM);
    group.wait_many("start", 2);
    group.replica(watch).wait_log("\"term\":1");
}

/// As `kubectl annotate lease` would, or an editor.
#[test]
fn an_order_that_is_written_into_the_record_by_hand_is_obeyed_or_told_as_refused() {
    if !place::is_a_file() {
        return;
    }
    let mut group = of_three(&[]);
    let path = group.path("lease");
    let write = |orders: &[(&str, &str)]| {
        let content = std::fs::read(&path).unwrap();
        let mut record: Value = serde_json::from_slice(&content).unwrap();
        for (field, order) in orders {
            record[*field] = (*order).into();
        }
        let new = path.with_extension("new");
        std::fs::write(&new, record.to_string()).unwrap();
        std::fs::rename(&new, &path).unwrap();
    };
    write(&[("handover", "term=41")]);
    group
        .replica(0)
        .wait_log("a handover was ordered for term 41, but this is term 0");
    write(&[("handover", "term=0 to=r1")]);
    group.wait_start("r1");
    write(&[("handover", "term=1 to=r1")]);
    let r1 = group.replica(1);
    r1.wait_log("a handover to r1 was ordered, which leads already");
    write(&[("handover", "term=1"), ("pause", "keep")]);
    r1.wait_log("a handover was ordered during a pause, in which nobody may take over");
    assert_eq!(group.events("start").len(), 2);
}
