//! Plays schedules until one fails in an expected way: `play SEEDS NAME...`
//!
//! Prints `SEED NAME` for every schedule that fails, and ends at the first one with one of the names. `mutants`
//! builds this against a patched copy of the simulator. Without names it plays all the seeds.

#![allow(
    clippy::unwrap_used,
    reason = "a helper whose caller is told by its exit code"
)]

use std::panic::catch_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use sim::Options;

/// A schedule takes a millisecond or so. One that takes this long will not end.
const LONGEST_SCHEDULE: Duration = Duration::from_secs(10);

/// And when one after the other takes long, this is enough.
const LONGEST_PLAY: Duration = Duration::from_secs(180);

/// The seed that is being played.
static SEED: AtomicU64 = AtomicU64::new(0);

fn main() {
    let mut args = std::env::args().skip(1);
    let seeds = args.next().unwrap().parse().unwrap();
    let names: Vec<String> = args.collect();
    // A broken rule may end in a panic; that is one more way to fail.
    std::panic::set_hook(Box::new(|_| {}));
    std::thread::spawn(end_if_stuck);
    let began = Instant::now();
    for seed in 0..seeds {
        if began.elapsed() > LONGEST_PLAY {
            println!("{seed} out of time");
            return;
        }
        SEED.store(seed, Ordering::Relaxed);
        let name = match catch_unwind(|| sim::run(seed, Options::default())) {
            Ok(played) => played.failure.map(|failure| failure.violation.name()),
            Err(_) => Some("panic"),
        };
        if let Some(name) = name {
            println!("{seed} {name}");
            if names.iter().any(|n| n == name) {
                return;
            }
        }
    }
}

fn end_if_stuck() {
    let mut before = None;
    loop {
        let seed = SEED.load(Ordering::Relaxed);
        if before == Some(seed) {
            println!("{seed} hang");
            std::process::exit(0);
        }
        before = Some(seed);
        std::thread::sleep(LONGEST_SCHEDULE);
    }
}
