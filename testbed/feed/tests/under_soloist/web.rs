//! A child that is a web server, whose clients do not notice that leaders change but by a refusal.

use std::fs;
use std::time::Duration;

use feed::output::Output;
use feed::payload::{DEFAULT_SEED, Recipe};
use rustix::process::Signal;
use soloist_worker::{Term, Token};

use crate::load::{Load, Manner, Question};
use crate::stage::{Stage, wait_for};

const RESTARTS: usize = 20;
const REPLICAS: usize = 3;
/// The child drains for 5 s at most.
const FLAGS: [&str; 5] = [
    "--grace-period=20s",
    "--ready=notify",
    "--start-limit=20s",
    "--log-status=0s",
    "--log-level=info",
];
const LINES: usize = 400;
const ASKED: usize = 200;
/// Answers of a leader before it goes.
const ENOUGH: u64 = 200;

/// The last of HTTP/1 outlasts the server's patience with an idle connection.
const CLIENTS: [Manner; 12] = [
    Manner::Fresh,
    Manner::Fresh,
    Manner::Fresh,
    Manner::Fresh,
    Manner::KeepAlive(Duration::ZERO),
    Manner::KeepAlive(Duration::ZERO),
    Manner::KeepAlive(Duration::from_millis(10)),
    Manner::KeepAlive(Duration::from_millis(50)),
    Manner::KeepAlive(Duration::from_millis(100)),
    Manner::Idle(Duration::from_secs(5)),
    Manner::Http2(1),
    Manner::Http2(3),
];

#[test]
fn every_request_with_a_connection_is_answered_in_full_over_twenty_leaders() {
    answers_all(&[]);
}

/// Who may not attach a socket filter drains in another way.
#[test]
fn a_server_of_an_ordinary_user_answers_every_request_as_well() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: the other test is that of an ordinary user, since this is not root");
        return;
    }
    answers_all(&["--user=65534", "--group=65534"]);
}

fn answers_all(flags: &[&str]) {
    let mut stage = Stage::new();
    let questions = write_output(&stage);
    for name in ["", "output"] {
        let readable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(stage.path(name), readable).unwrap();
    }
    for _ in 0..REPLICAS {
        start_replica(&mut stage, flags);
    }
    let load = Load::begin(stage.address(), questions, &CLIENTS);
    let counts = load.counts.clone();
    let mut before = None;
    for _ in 0..RESTARTS {
        let running = stage.wait_running(before);
        let enough = counts.answered() + ENOUGH;
        wait_for("answers", || (counts.answered() > enough).then_some(()));
        let leader = stage.replica(running.replica);
        leader.signal(Signal::TERM);
        assert_eq!(leader.exit_code(), Some(0), "a planned stop is a clean one");
        let log = leader.log();
        assert!(log.contains("nothing had to be cut"), "{log}");
        before = Some(running);
        start_replica(&mut stage, flags);
    }
    stage.wait_running(before);
    let enough = counts.answered() + ENOUGH;
    wait_for("answers", || (counts.answered() > enough).then_some(()));
    let counts = load.end();
    println!("{RESTARTS} restarts: {counts}");
    assert!(counts.cut().is_empty(), "{:#?}", counts.cut());
    assert!(counts.answered() > RESTARTS as u64 * ENOUGH);
}

fn start_replica(stage: &mut Stage, flags: &[&str]) {
    let arguments = [
        format!("--listen={}", stage.address()),
        format!("--output={}", stage.path("output").display()),
        "--work=20ms".to_owned(),
    ];
    let program = env!("CARGO_BIN_EXE_feed-web");
    let flags = [&FLAGS[..], flags].concat();
    stage.start_replica(&flags, program, &arguments);
}

/// What a worker would have left, and what must be read of it.
fn write_output(stage: &Stage) -> Vec<Question> {
    let path = stage.path("output");
    let recipe = Recipe::try_new(DEFAULT_SEED, 64).unwrap();
    let mut output = Output::open(&path, Token::new(1), Term::new(1)).unwrap();
    for position in 1..=LINES as u64 {
        output.append(position, &recipe.payload(position)).unwrap();
    }
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<_> = text.split_inclusive('\n').collect();
    let question = |first: usize| Question {
        path: format!("/messages/{}?lines={ASKED}", first + 1),
        body: lines[first..first + ASKED].concat().into_bytes(),
    };
    (0..LINES - ASKED).step_by(7).map(question).collect()
}
