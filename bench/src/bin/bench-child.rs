//! The program that the replicas run: writes down when it starts and when it ends.
//!
//! `bench-child JOURNAL REPLICA` appends `start REPLICA PID NANOSECONDS`, waits for SIGTERM, and appends `end …`. Times
//! are of the monotonic clock: that of `start` is taken first thing, that of `end` is the last thing done.

use std::env;
use std::fs::File;
use std::io::{self, Write};

use rustix::time::{ClockId, clock_gettime};
use tokio::signal::unix::{SignalKind, signal};

fn main() -> io::Result<()> {
    let began = now();
    let mut args = env::args().skip(1);
    let (Some(journal), Some(replica)) = (args.next(), args.next()) else {
        return Err(io::Error::other("usage: bench-child JOURNAL REPLICA"));
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
        stop.recv().await;
        write("end", now())
    })
}

fn now() -> i128 {
    let time = clock_gettime(ClockId::Monotonic);
    i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
}
