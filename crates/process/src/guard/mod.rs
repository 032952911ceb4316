//! The guard: a process between soloist and the child, which kills the tree when soloist cannot.
//!
//! It decides by [`soloist_core::guard::Guard`]; what is here carries that out.

mod child;
mod job;
mod program;
mod run;

use std::ffi::OsStr;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::inherited;

pub(crate) use job::{Setup, arguments};

/// The guard's name in a process listing, and how it knows that it is one.
pub(crate) const NAME: &str = "soloist-guard";

/// Does not return if this process was started as a guard; else remembers the signals and limits that it
/// was started with, for the child to find.
///
/// To be called first thing in `main`, before any thread is started or descriptor opened.
pub fn run_if_guard() {
    let mut args = std::env::args_os();
    if args.next().as_deref() != Some(OsStr::new(NAME)) {
        inherited::found();
        PREPARED.store(true, Ordering::Relaxed);
        return;
    }
    let Some(job) = job::Job::take(args) else {
        let _ = writeln!(
            std::io::stderr(),
            "{NAME} is started by soloist, not by hand, and by the same version"
        );
        std::process::exit(2);
    };
    std::process::exit(run::run(job));
}

/// Whether a guard of this program would know that it is one.
pub(crate) fn is_prepared() -> bool {
    PREPARED.load(Ordering::Relaxed)
}

static PREPARED: AtomicBool = AtomicBool::new(false);
