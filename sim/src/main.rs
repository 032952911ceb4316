//! `sim`: plays many schedules and looks for one that breaks a rule.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Parser;
use sim::summary::Counter;
use sim::{Failure, Options, Summary, run};

/// Plays schedules of whole replicas in virtual time and checks every step.
///
/// A schedule is 1 to 7 replicas, 3 to 18 faults over 6 to 14 lease durations, then calm: a leader must
/// be there within a bound and stay for three more. Everything in it follows from its seed.
#[derive(Parser)]
#[command(name = "sim", version)]
struct Args {
    /// How many schedules to play.
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    schedules: u64,
    /// The seed of the first one; the others follow it.
    #[arg(long, default_value_t = 0, value_name = "SEED")]
    first_seed: u64,
    /// Play only the schedule of this seed.
    #[arg(long, value_name = "SEED", conflicts_with_all = ["schedules", "first_seed", "replay"])]
    seed: Option<u64>,
    /// Print the schedule as a timeline (with --seed).
    #[arg(long, requires = "seed")]
    trace: bool,
    /// Play the committed corpus of interesting seeds.
    #[arg(long, conflicts_with_all = ["schedules", "first_seed"])]
    replay: bool,
    /// Threads; as many as there are cores if not given.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Fail unless every kind of fault was hit at least this often.
    #[arg(long, value_name = "N", default_value_t = 0)]
    cover: u64,
    /// Break a rule on purpose, to see it found.
    #[cfg(feature = "mutants")]
    #[arg(long, value_name = "NAME", value_parser = parse_mutant)]
    mutant: Option<soloist_core::mutant::Mutant>,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let options = Options {
        trace: args.trace,
        defect: defect(&args),
    };
    match args.seed {
        Some(seed) => play_one(seed, options),
        None => play_many(&args, options),
    }
}

#[cfg(feature = "mutants")]
fn defect(args: &Args) -> soloist_core::mutant::Defect {
    use soloist_core::mutant::Defect;
    args.mutant.map_or(Defect::NONE, Defect::of)
}

#[cfg(not(feature = "mutants"))]
fn defect(_: &Args) -> soloist_core::mutant::Defect {
    soloist_core::mutant::Defect::NONE
}

#[cfg(feature = "mutants")]
fn parse_mutant(name: &str) -> Result<soloist_core::mutant::Mutant, String> {
    use soloist_core::mutant::Mutant;
    let known = || Mutant::ALL.map(|m| format!("{m:?}")).join(", ");
    Mutant::ALL
        .into_iter()
        .find(|m| format!("{m:?}").eq_ignore_ascii_case(name))
        .ok_or_else(|| format!("no such mutant; there are {}", known()))
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
    let seeds: Vec<u64> = match args.replay {
        true => sim::corpus::seeds().collect(),
        false => (args.first_seed..args.first_seed + args.schedules).collect(),
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
    for failure in failures.iter().take(10) {
        println!("FAILED  {failure}");
        println!(
            "        replay: cargo run --release -p sim -- --seed {} --trace",
            failure.seed
        );
    }
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
