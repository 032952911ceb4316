//! `sim`: plays many schedules and looks for one that breaks a rule.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Parser;
use sim::summary::{Counter, Without};
use sim::{Failure, Options, Summary, run};

/// Plays schedules of whole replicas in virtual time and checks every step.
///
/// A schedule is 1 to 7 replicas, 3 to 18 faults over 6 to 14 lease durations, then calm: a leader must
/// be there within a bound and stay, and then a handover, a crash or a swallowed request has a bound of its own.
/// Everything in it follows from its seed.
#[derive(Parser)]
#[command(name = "sim", version)]
struct Args {
    /// How many schedules to play.
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    schedules: u64,
    /// The seed of the first one; the others follow it.
    #[arg(long, default_value_t = 0, value_name = "SEED")]
    first_seed: u64,
    /// Take the seed of the first one from a text, such as a commit's name: the same text, the same schedules.
    #[arg(long, value_name = "TEXT", conflicts_with = "first_seed")]
    first_seed_from: Option<String>,
    /// Play only the schedule of this seed.
    #[arg(long, value_name = "SEED", conflicts_with_all = ["schedules", "first_seed", "first_seed_from", "replay"])]
    seed: Option<u64>,
    /// Print the schedule as a timeline (with --seed).
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Play the committed corpus of interesting seeds.
    #[arg(long, conflicts_with_all = ["schedules", "first_seed", "first_seed_from"])]
    replay: bool,
    /// Threads; as many as there are cores if not given.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Fail unless every kind of fault was hit at least this often.
    #[arg(long, value_name = "N", default_value_t = 0)]
    cover: u64,
    /// Leave out a kind of fault, by its name in the code; may be given several times.
    #[arg(long, value_name = "FAULT", value_parser = fault)]
    without: Vec<Counter>,
}

fn fault(name: &str) -> Result<Counter, String> {
    let faults = || Counter::ALL.iter().filter(|c| c.is_fault());
    Counter::named(name)
        .filter(|c| c.is_fault())
        .ok_or_else(|| {
            let names: Vec<_> = faults().map(|c| format!("{c:?}")).collect();
            format!("there is no such fault; there are {}", names.join(", "))
        })
}

fn main() -> ExitCode {
    let args = Args::parse();
    let without = args.without.iter().copied();
    let options = Options {
        trace: args.trace,
        without: without.fold(Without::default(), Without::and),
    };
    match args.seed {
        Some(seed) => play_one(seed, options),
        None => play_many(&args, options),
    }
}

fn play_one(seed: u64, options: Options) -> ExitCode {
    let played = run(seed, options);
    for line in &played.trace {
        println!("{line}");
    }
    match played.failure {
        Some(failure) => {
            println!("FAILED  {failure}");
            ExitCode::FAILURE
        }
        None => {
            println!("seed {seed}: all rules held");
            ExitCode::SUCCESS
        }
    }
}

fn play_many(args: &Args, options: Options) -> ExitCode {
    let first = match &args.first_seed_from {
        Some(text) => first_seed_from(text),
        None => args.first_seed,
    };
    let seeds: Vec<u64> = match args.replay {
        true => sim::corpus::seeds().collect(),
        false => {
            println!("first seed: {first}");
            (0..args.schedules).map(|n| first.wrapping_add(n)).collect()
        }
    };
    let began = Instant::now();
    let (summary, failures) = play(&seeds, options, args.threads);
    let seconds = began.elapsed().as_secs_f64();

    print!("{summary}");
    let schedules = summary.get(Counter::Schedules);
    println!(
        "{schedules} schedules in {seconds:.1} s: {:.0} a second, {} steps and {} virtual seconds each",
        schedules as f64 / seconds,
        summary.get(Counter::Steps) / schedules.max(1),
        summary.get(Counter::VirtualMillis) / 1000 / schedules.max(1),
    );
    print_failures(&failures);
    let (rarest, hit) = summary.rarest_fault();
    let covered = hit >= args.cover;
    if args.cover > 0 {
        let verdict = if covered { "covered" } else { "NOT COVERED" };
        println!(
            "{verdict}: rarest is \"{}\", hit {hit} times",
            rarest.text()
        );
    }
    let failed = failures.len() as u64;
    println!("sim: {} passed, {failed} failed", schedules - failed);
    match failures.is_empty() && covered {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// FNV-1a, so that it is the same everywhere and always; short enough to type.
fn first_seed_from(text: &str) -> u64 {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    hash % 1_000_000_000_000
}

/// How often each rule was broken, and the first seeds that did it.
fn print_failures(failures: &[Failure]) {
    let mut by_rule: Vec<_> = failures.iter().collect();
    by_rule.sort_by_key(|f| (f.violation.name(), f.seed));
    for same in by_rule.chunk_by(|a, b| a.violation.name() == b.violation.name()) {
        println!("{:>12}  FAILED: {}", same.len(), same[0].violation.name());
        for failure in same.iter().take(5) {
            println!("FAILED  {failure}");
            println!(
                "        replay: cargo run --release -p sim -- --seed {} --trace",
                failure.seed
            );
        }
    }
}

/// Plays all seeds on several threads; shows how far it is.
fn play(seeds: &[u64], options: Options, threads: Option<usize>) -> (Summary, Vec<Failure>) {
    let threads = threads
        .or_else(|| std::thread::available_parallelism().ok().map(usize::from))
        .unwrap_or(1);
    let next = AtomicU64::new(0);
    let finished = AtomicBool::new(false);
    let results = Mutex::new((Summary::default(), Vec::new()));
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let mut summary = Summary::default();
                    let mut failures = Vec::new();
                    while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed) as usize)
                    {
                        let played = run(*seed, options);
                        summary.merge(&played.summary);
                        failures.extend(played.failure);
                    }
                    let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                    results.0.merge(&summary);
                    results.1.extend(failures);
                })
            })
            .collect();
        let bar = scope.spawn(|| show_progress(&next, seeds.len() as u64, &finished));
        for worker in workers {
            if let Err(panic) = worker.join() {
                std::panic::resume_unwind(panic);
            }
        }
        finished.store(true, Ordering::Relaxed);
        bar.thread().unpark();
    });
    let (summary, mut failures) = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    failures.sort_by_key(|f| f.seed);
    (summary, failures)
}

fn show_progress(next: &AtomicU64, of: u64, finished: &AtomicBool) {
    const WIDTH: u64 = 40;
    let mut err = std::io::stderr();
    if !err.is_terminal() {
        return;
    }
    while !finished.load(Ordering::Relaxed) {
        let done = next.load(Ordering::Relaxed).min(of);
        let filled = (done * WIDTH / of.max(1)) as usize;
        let bar = "#".repeat(filled) + &"-".repeat(WIDTH as usize - filled);
        // A terminal that cannot be written to is no reason to stop.
        let _ = write!(err, "\r[{bar}] {done}/{of}");
        let _ = err.flush();
        std::thread::park_timeout(Duration::from_millis(200));
    }
    let _ = write!(err, "\r{:width$}\r", "", width = WIDTH as usize + 30);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_text_gives_the_same_first_seed_and_another_one_another() {
        assert_eq!(first_seed_from("842e381"), first_seed_from("842e381"));
        assert_ne!(first_seed_from("842e381"), first_seed_from("842e382"));
    }
}
