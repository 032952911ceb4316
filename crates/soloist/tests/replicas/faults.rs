//! Random faults in many groups side by side: never two, and soon one again.
//!
//! `SOLOIST_FAULTS` says how many, `SOLOIST_SEED` repeats a run (as far as real time can be repeated).

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use testbed::programs::Dice;

use crate::harness::{Event, Group, send, wait_for};

const GROUPS: u64 = 4;
const REPLICAS: u64 = 3;
/// Stop timeout 3 s; at most two crashes are waited for (0 s, 1 s), then another one leads.
const FLAGS: [&str; 6] = [
    "--grace-period",
    "4s",
    "--restart-limit",
    "2",
    "--cool-down",
    "1s",
];
/// Lease 2 s, stop timeout 3 s, backoff 1 s, and twice that for a machine with other things to do.
const BOUND: Duration = Duration::from_secs(12);

#[test]
fn random_faults_never_make_two_and_soon_there_is_one_again() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let faults: u64 = number("SOLOIST_FAULTS").unwrap_or(40);
    let seed: u64 = number("SOLOIST_SEED").unwrap_or_else(|| {
        let now = std::time::SystemTime::now();
        let since = now.duration_since(std::time::UNIX_EPOCH).unwrap();
        since.as_secs() * 1000 + u64::from(since.subsec_millis())
    });
    println!("SOLOIST_SEED={seed} SOLOIST_FAULTS={faults}");
    let groups: Vec<_> = (0..GROUPS)
        .map(|group| {
            let share = (faults + group) / GROUPS;
            let dice = Dice::new(seed.wrapping_mul(GROUPS).wrapping_add(group));
            thread::spawn(move || Scene::new(dice).play(share))
        })
        .collect();
    let mut counts = Counts::new();
    // All of them end before this test does: each must clean up what it has started.
    let played: Vec<_> = groups.into_iter().map(thread::JoinHandle::join).collect();
    for group in played {
        for (fault, (many, longest)) in group.expect("a group without failures") {
            let count = counts.entry(fault).or_default();
            *count = (count.0 + many, count.1.max(longest));
        }
    }
    let done: u64 = counts.values().map(|(many, _)| many).sum();
    for (fault, (many, longest)) in counts {
        println!("{many:4} × {fault:?}, at most {longest:?} until a child ran");
    }
    assert_eq!(done, faults);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    KillSoloist,
    StopSoloist,
    TermSoloist,
    KillGuard,
    StopGuard,
    KillChild,
}

const FAULTS: [Fault; 6] = [
    Fault::KillSoloist,
    Fault::StopSoloist,
    Fault::TermSoloist,
    Fault::KillGuard,
    Fault::StopGuard,
    Fault::KillChild,
];

const PLANS: [&[&str]; 4] = [&[], &["drain=300"], &["deaf"], &["daemon", "deaf"]];

/// How often, and how long it took at most until a child ran.
type Counts = BTreeMap<Fault, (u64, Duration)>;

/// One group, its replicas by their place.
struct Scene {
    dice: Dice,
    group: Group,
    replicas: Vec<usize>,
    lives: u64,
    /// Replicas that are stopped while other faults happen, and until when.
    stopped: Vec<(usize, Instant)>,
}

impl Scene {
    fn new(dice: Dice) -> Self {
        let mut scene = Self {
            dice,
            group: Group::with(&FLAGS),
            replicas: Vec::new(),
            lives: 0,
            stopped: Vec::new(),
        };
        for _ in 0..REPLICAS {
            let replica = scene.born();
            scene.replicas.push(replica);
        }
        scene
    }

    fn born(&mut self) -> usize {
        let plan = PLANS[self.dice.index(PLANS.len())];
        self.lives += 1;
        // A name of its own, so that the journal says which life it was.
        let identity = format!("r{}", self.lives);
        self.group.start(&identity, &[], plan)
    }

    fn play(mut self, faults: u64) -> Counts {
        let mut counts = Counts::new();
        let mut child = self.wait_child(None);
        for _ in 0..faults {
            let begun = Instant::now();
            let (fault, hit) = self.strike(&child);
            child = self.wait_child(hit.then_some(child.pid));
            self.revive();
            self.group.check();
            let count = counts.entry(fault).or_default();
            *count = (count.0 + 1, count.1.max(begun.elapsed()));
        }
        counts
    }

    /// A child that runs, and is not this one.
    fn wait_child(&mut self, not: Option<u32>) -> Event {
        wait_for("a child that runs", BOUND, || {
            self.go_on();
            let child = self.group.running()?;
            (Some(child.pid) != not).then_some(child)
        })
    }

    /// Whoever has been stopped for long enough.
    fn go_on(&mut self) {
        let group = &mut self.group;
        self.stopped.retain(|&(replica, until)| {
            let due = Instant::now() >= until;
            if due {
                group.replica(replica).signal(Signal::CONT);
            }
            !due
        });
    }

    fn is_stopped(&self, replica: usize) -> bool {
        self.stopped.iter().any(|&(stopped, _)| stopped == replica)
    }

    /// Soloist and guard of one child are never both out of action: that is not promised.
    fn fitting(&self, fault: Fault, target: usize, leader: usize) -> Fault {
        match fault {
            Fault::KillGuard | Fault::StopGuard if self.is_stopped(leader) => Fault::KillChild,
            Fault::TermSoloist | Fault::StopSoloist if self.is_stopped(target) => {
                Fault::KillSoloist
            }
            _ => fault,
        }
    }

    /// One fault; which, and whether it must cost the child its life.
    fn strike(&mut self, child: &Event) -> (Fault, bool) {
        let leader = self.leader(child);
        let target = match self.dice.below(4) {
            // A standby, mostly.
            0 => self.replicas[self.dice.index(self.replicas.len())],
            _ => leader,
        };
        let fault = FAULTS[self.dice.index(FAULTS.len())];
        let fault = self.fitting(fault, target, leader);
        (fault, self.do_it(fault, target, child))
    }

    fn do_it(&mut self, fault: Fault, target: usize, child: &Event) -> bool {
        let millis = match self.dice.below(2) {
            0 => 500 + self.dice.below(2500),
            // About as long as the lease, where it is tightest.
            _ => 1600 + self.dice.below(800),
        };
        let length = Duration::from_millis(millis);
        let replica = self.group.replica(target);
        let leads = replica.identity == child.identity;
        match fault {
            Fault::KillSoloist => {
                replica.signal(Signal::KILL);
                replica.exit();
                self.stopped.retain(|&(stopped, _)| stopped != target);
                leads
            }
            Fault::StopSoloist => {
                replica.signal(Signal::STOP);
                if self.stopped.is_empty() && self.dice.below(2) == 0 {
                    self.stopped.push((target, Instant::now() + length));
                } else {
                    thread::sleep(length);
                    replica.signal(Signal::CONT);
                }
                false
            }
            Fault::TermSoloist => {
                replica.wait_listening();
                replica.signal(Signal::TERM);
                let code = replica.exit_code();
                assert!(matches!(code, 0 | 1), "{code}");
                leads
            }
            Fault::KillGuard => match child.guard() {
                Some(guard) => {
                    send(guard, Signal::KILL);
                    true
                }
                None => false,
            },
            Fault::StopGuard => {
                if let Some(guard) = child.guard() {
                    send(guard, Signal::STOP);
                    thread::sleep(length);
                    send(guard, Signal::CONT);
                }
                false
            }
            Fault::KillChild => {
                child.signal(Signal::KILL);
                true
            }
        }
    }

    fn leader(&mut self, child: &Event) -> usize {
        let group = &mut self.group;
        let leads = |&&replica: &&usize| group.replica(replica).identity == child.identity;
        *self.replicas.iter().find(leads).expect("a leader")
    }

    /// Whoever has died is replaced.
    fn revive(&mut self) {
        for place in 0..self.replicas.len() {
            if self.group.replica(self.replicas[place]).has_ended() {
                self.replicas[place] = self.born();
            }
        }
    }
}
