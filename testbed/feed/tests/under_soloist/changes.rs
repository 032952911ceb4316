//! Leader changes of all kinds while messages flow: every message once, in order.
//!
//! `SOLOIST_LEADER_CHANGES` says how many, `SOLOIST_SEED` repeats a run (as far as real time can be repeated).

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use feed::payload::DEFAULT_SEED;
use feed::verify::{self, Report};
use rustix::process::Signal;
use testbed::programs::Dice;
use testbed::{Direction, Link};

use crate::stage::{Running, Stage, send, wait_for};

const GROUPS: u64 = 3;
const REPLICAS: usize = 3;
const SERVER: [&str; 1] = ["--rate=500"];
/// Stop timeout 3 s; a child that is silent for 1.5 s is killed; after two crashes another one leads.
const FLAGS: [&str; 9] = [
    "--grace-period=4s",
    "--ready=notify",
    "--start-limit=10s",
    "--health=notify",
    "--health-interval=500ms",
    "--restart-limit=2",
    "--cool-down=1s",
    "--log-status=0s",
    "--log-level=info",
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    TermSoloist,
    KillSoloist,
    FreezeSoloist,
    KillChild,
    FreezeChild,
    CutLease,
    CutFeed,
    KillServer,
    TermServer,
}

const FAULTS: [Fault; 9] = [
    Fault::TermSoloist,
    Fault::KillSoloist,
    Fault::FreezeSoloist,
    Fault::KillChild,
    Fault::CutLease,
    Fault::CutFeed,
    Fault::KillServer,
    Fault::FreezeChild,
    Fault::TermServer,
];

#[test]
fn every_message_is_written_once_and_in_order_whatever_happens_to_the_leader() {
    change_leaders(1);
}

#[test]
fn messages_that_are_handled_side_by_side_are_written_once_and_in_order_whatever_happens() {
    change_leaders(16);
}

fn change_leaders(concurrency: u32) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let changes: u64 = number("SOLOIST_LEADER_CHANGES").unwrap_or(30);
    let seed: u64 = number("SOLOIST_SEED").unwrap_or_else(|| u64::from(std::process::id()));
    println!("SOLOIST_SEED={seed} SOLOIST_LEADER_CHANGES={changes}, concurrency {concurrency}");
    let groups: Vec<_> = (0..GROUPS)
        .map(|group| {
            let share = (changes + group) / GROUPS;
            let dice = Dice::new(seed.wrapping_mul(GROUPS).wrapping_add(group));
            thread::spawn(move || Scene::new(dice, group, concurrency).play(share))
        })
        .collect();
    // All of them end before this test does: each must clean up what it has started.
    let played: Vec<_> = groups.into_iter().map(thread::JoinHandle::join).collect();
    let mut counts = Counts::new();
    for played in played {
        let (group, report) = played.expect("a group without failures");
        for (fault, (many, longest)) in group {
            let count = counts.entry(fault).or_default();
            *count = (count.0 + many, count.1.max(longest));
        }
        println!("{} messages in {} terms", report.last, report.spans.len());
    }
    let done: u64 = counts.values().map(|(many, _)| many).sum();
    for (fault, (many, longest)) in counts {
        println!("{fault:?}: {many}, messages flow again after at most {longest:.1?}");
    }
    println!("{done} changes, every message once and in order");
    assert_eq!(done, changes);
}

/// How often, and how long it took at most until messages flowed again.
type Counts = BTreeMap<Fault, (u64, Duration)>;

struct Scene {
    dice: Dice,
    stage: Stage,
    /// From the workers to the feed.
    link: Link,
    /// So that the groups do not all begin with the same fault.
    turn: usize,
    concurrency: u32,
}

impl Scene {
    fn new(dice: Dice, group: u64, concurrency: u32) -> Self {
        let mut stage = Stage::new();
        stage.start_server(&SERVER);
        let link = Link::to(stage.address()).unwrap();
        let mut scene = Self {
            dice,
            stage,
            link,
            turn: usize::try_from(group).unwrap() * 3,
            concurrency,
        };
        scene.fill_up();
        scene
    }

    /// Whoever has died is replaced.
    fn fill_up(&mut self) {
        let server = format!("--server=http://{}", self.link.address());
        let output = format!("--output={}", self.stage.output().display());
        let concurrency = format!("--concurrency={}", self.concurrency);
        let waits = ["--backoff=50ms", "--backoff-most=400ms", "--keepalive=1s"];
        let mut arguments: Vec<String> = [server, output, concurrency]
            .into_iter()
            .chain(waits.map(str::to_owned))
            .collect();
        if self.concurrency > 1 {
            // So that later messages are done before earlier ones.
            arguments.extend(["--work=10ms", "--uneven-work"].map(str::to_owned));
        }
        while self.stage.living() < REPLICAS {
            let worker = env!("CARGO_BIN_EXE_feed-worker");
            self.stage.start_replica(&FLAGS, worker, &arguments);
        }
    }

    fn play(mut self, changes: u64) -> (Counts, Report) {
        let mut counts = Counts::new();
        self.wait_flow();
        for _ in 0..changes {
            let begun = Instant::now();
            let fault = self.strike();
            self.fill_up();
            self.wait_flow();
            let count = counts.entry(fault).or_default();
            *count = (count.0 + 1, count.1.max(begun.elapsed()));
        }
        self.check_old_token();
        let report = verify::file(&self.stage.output(), DEFAULT_SEED, None).unwrap();
        // The one that is writing just now.
        let findings: Vec<_> = report
            .findings
            .iter()
            .filter(|finding| finding.fault != verify::Fault::Torn)
            .collect();
        assert!(findings.is_empty(), "{report}");
        (counts, report)
    }

    /// Waits until so many more messages stand in the output.
    fn wait_flow(&self) {
        let lines = |path: &PathBuf| fs::metadata(path).map_or(0, |it| it.len());
        let before = lines(&self.stage.output());
        wait_for("messages", || {
            // 50 lines are longer than this; two children at once are noticed here.
            self.stage.running()?;
            (lines(&self.stage.output()) > before + 4000).then_some(())
        });
    }

    fn strike(&mut self) -> Fault {
        let running = self.stage.wait_running(None);
        let mut fault = FAULTS[self.turn % FAULTS.len()];
        self.turn += 1;
        if fault == Fault::CutLease && !self.stage.place.has_links() {
            fault = Fault::CutFeed;
        }
        self.do_it(fault, running);
        fault
    }

    fn do_it(&mut self, fault: Fault, running: Running) {
        let pause = Duration::from_millis(self.dice.below(1000));
        let leader = self.stage.replica(running.replica);
        match fault {
            Fault::TermSoloist => {
                leader.signal(Signal::TERM);
                let code = leader.exit_code();
                assert_eq!(code, Some(0), "a planned stop is a clean one");
            }
            Fault::KillSoloist => {
                leader.signal(Signal::KILL);
                let _ = leader.process.wait();
                self.stage.wait_running(Some(running));
            }
            Fault::FreezeSoloist => {
                leader.signal(Signal::STOP);
                self.stage.wait_running(Some(running));
                self.stage.replica(running.replica).signal(Signal::CONT);
            }
            Fault::KillChild => {
                send(running.pid, Signal::KILL);
                self.stage.wait_running(Some(running));
            }
            Fault::FreezeChild => {
                send(running.pid, Signal::STOP);
                self.stage.wait_running(Some(running));
            }
            Fault::CutLease => {
                let link = leader.link.as_ref().expect("a link to the API server");
                link.cut().unwrap();
                self.stage.wait_running(Some(running));
                let link = self.stage.replica(running.replica).link.as_ref();
                link.expect("the same link").heal().unwrap();
            }
            Fault::CutFeed => {
                match self.dice.below(3) {
                    0 => self.link.cut().unwrap(),
                    1 => self.link.swallow(Direction::Both).unwrap(),
                    _ => self.link.reset().unwrap(),
                }
                thread::sleep(pause);
                self.link.heal().unwrap();
            }
            Fault::KillServer | Fault::TermServer => {
                self.stage.stop_server(match fault {
                    Fault::KillServer => Signal::KILL,
                    _ => Signal::TERM,
                });
                thread::sleep(pause);
                self.stage.start_server(&SERVER);
            }
        }
    }

    /// A leader of yesterday that comes back, with an output of its own so that only the server can refuse it.
    fn check_old_token(&self) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_feed-worker"));
        let output = format!("--output={}", self.stage.path("yesterday").display());
        command
            .arg(format!("--server=http://{}", self.link.address()))
            .arg(output)
            .env("SOLOIST_NAME", "feed")
            .env("SOLOIST_IDENTITY", "yesterday")
            .env("SOLOIST_TERM", "1")
            .env("SOLOIST_TOKEN", "1")
            .env("SOLOIST_STOP_SECONDS", "2")
            .env("SOLOIST_DRAIN_SECONDS", "1");
        let ended = command.output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{said}");
        assert!(said.contains("the term is over"), "{said}");
        let written = fs::metadata(self.stage.path("yesterday")).unwrap().len();
        assert_eq!(written, 0, "it got messages");
    }
}
