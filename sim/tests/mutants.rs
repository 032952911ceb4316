//! Each safety rule broken on purpose is found. (That nothing is found unbroken: `schedules.rs`.)

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use sim::{Failure, Options, run};
use soloist_core::mutant::{Defect, Mutant};

/// Every mutant is found within this many seeds.
const MOST_SEEDS: u64 = 20_000;

#[test]
fn every_mutant_is_found() {
    let found = find_all();
    println!("{:<24} {:>7}  found as", "mutant", "seeds");
    for (mutant, failure) in &found {
        let name = format!("{mutant:?}");
        match failure {
            Some(f) => println!("{name:<24} {:>7}  {}", f.seed + 1, f.violation.name()),
            None => println!("{name:<24} {MOST_SEEDS:>7}  NOT FOUND"),
        }
    }
    let survivors: Vec<_> = found.iter().filter(|(_, f)| f.is_none()).collect();
    assert!(survivors.is_empty(), "not found: {survivors:?}");
}

fn find_all() -> Vec<(Mutant, Option<Failure>)> {
    let next = AtomicUsize::new(0);
    let found = Mutex::new(vec![None; Mutant::ALL.len()]);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().unwrap().get() {
            scope.spawn(|| {
                while let Some(mutant) = Mutant::ALL.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let options = Options {
                        defect: Defect::of(*mutant),
                        ..Options::default()
                    };
                    let failure = (0..MOST_SEEDS).find_map(|seed| run(seed, options).failure);
                    let place = Mutant::ALL.iter().position(|m| m == mutant).unwrap();
                    found.lock().unwrap()[place] = failure;
                }
            });
        }
    });
    Mutant::ALL
        .into_iter()
        .zip(found.into_inner().unwrap())
        .collect()
}
