//! `mutants`: breaks the rules one at a time, in a copy of the code, and sees that the simulator finds each.

mod copy;
mod judge;
mod patch;
mod report;
mod sources;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Parser;

use judge::Judge;
use patch::Mutant;
use report::{Line, List, Table};
use sources::Sources;

/// Judges the simulator: every mutant, a small patch on a copy of the code, must be found as what it is.
///
/// The copies are built under the target directory. First the unpatched one is played, and nothing may be found.
#[derive(Parser)]
#[command(name = "mutants", version)]
struct Args {
    /// Judge only this mutant; may be given again.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// A mutant must be found within so many schedules.
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    seeds: u64,
    /// Say which mutants there are, and judge none.
    #[arg(long)]
    list: bool,
    /// How many to judge at once; as many as there are cores if not given.
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("mutants: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(args: &Args) -> Result<bool> {
    let here: PathBuf = std::env::var_os("CARGO_MANIFEST_DIR")
        .context("start it with: cargo run --release -p mutants")?
        .into();
    let root = here.join("../..").canonicalize()?;
    let mutants = choose(Mutant::read_all(&here.join("patches"))?, &args.only)?;
    if args.list {
        print!("{}", List(&mutants));
        return Ok(true);
    }
    let began = Instant::now();
    let judge = Judge {
        root: &root,
        folder: &target_folder()?,
        sources: &Sources::read(&root)?,
        seeds: args.seeds,
    };
    let took = judge.control()?;
    eprintln!(
        "the unpatched copy: built in {:.1} s, and nothing found",
        took.as_secs_f64()
    );
    let of = mutants.len();
    let jobs = args
        .jobs
        .or_else(|| std::thread::available_parallelism().ok().map(usize::from))
        .unwrap_or(1);
    let mut count = 0;
    let judged = judge.judge_all(mutants, jobs, |judged| {
        count += 1;
        eprintln!("[{count}/{of}] {}", Line(judged));
    })?;
    print!("{}", Table(&judged));
    let passed = judged.iter().filter(|j| j.passed()).count();
    println!("in {:.0} s", began.elapsed().as_secs_f64());
    println!("mutants: {passed} passed, {} failed", of - passed);
    Ok(passed == of)
}

fn choose(all: Vec<Mutant>, only: &[String]) -> Result<Vec<Mutant>> {
    if let Some(unknown) = only.iter().find(|n| all.iter().all(|m| m.name != **n)) {
        bail!("there is no mutant {unknown}; --list says which there are");
    }
    let wanted = |m: &Mutant| only.is_empty() || only.contains(&m.name);
    Ok(all.into_iter().filter(wanted).collect())
}

/// Beside what cargo has built: this program is in `release` or `debug` of it.
fn target_folder() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let target = program
        .ancestors()
        .nth(2)
        .context("this program has no place in a target directory")?;
    Ok(target.join("mutants"))
}
