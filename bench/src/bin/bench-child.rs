//! The program that the replicas run: writes down when it starts and when it ends.
//!
//! `bench-child JOURNAL REPLICA [PARENT]` appends `start REPLICA PID NANOSECONDS`, waits for SIGTERM, and appends `end …`.
//! Times are of the monotonic clock: that of `start` is taken first thing, that of `end` is the last thing done. With
//! its parent's process id it does not outlive it.

use std::env;
use std::fs::File;
use std::io::{self, Write};

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use rustix::time::{ClockId, clock_gettime};
use tokio::signal::unix::{SignalKind, signal};

fn main() -> io::Result<()> {
    let began = now();
    let mut args = env::args().skip(1);
    let (Some(journal), Some(replica)) = (args.next(), args.next()) else {
        let usage = "usage: bench-child JOURNAL REPLICA [PARENT]";
        return Err(io::Error::other(usage));
    };
    let mut journal = File::options().append(true).create(true).open(journal)?;
    let mut write = |what: &str, time: i128| {
        let line = format!("{what} {replica} {} {time}\n", std::process::id());
        journal.write_all(line.as_bytes())
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    runtime.block_on(async {
        let mut stop = signal(SignalKind::terminate())?;
        write("start", began)?;
        if let Some(parent) = args.next() {
            end_with(&parent)?;
        }
        stop.recv().await;
        write("end", now())
    })
}

fn end_with(parent: &str) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // It may have died before that.
    let alive = getppid().map(Pid::as_raw_pid) == parent.parse().ok();
    alive
        .then_some(())
        .ok_or_else(|| io::Error::other("the parent has ended"))
}

fn now() -> i128 {
    let time = clock_gettime(ClockId::Monotonic);
    i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
}
