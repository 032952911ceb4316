//! Children that do not want to be found.

use std::process::exit;
use std::time::{Duration, Instant};

use crate::{idle, park, report};

/// So that nothing outlives a test that fails.
const LIFETIME: Duration = Duration::from_secs(60);

fn fork() -> bool {
    // SAFETY: the helper has one thread.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "no process");
    pid == 0
}

fn new_session() {
    let _ = rustix::process::setsid();
}

/// A grandchild in a session of its own, whose parent is gone. Returns when it is up.
pub(crate) fn daemon() {
    daemon_that(|| {});
}

/// As [`daemon`]; it does not care about SIGTERM, or tells of it and ends.
pub(crate) fn daemon_that(prepare: impl FnOnce()) {
    let (read, write) = rustix::pipe::pipe().expect("a pipe");
    if fork() {
        new_session();
        if fork() {
            prepare();
            report(&format!("daemon {}", std::process::id()));
            let _ = rustix::io::write(write, b"!");
            park();
        }
        exit(0);
    }
    let _ = rustix::process::wait(rustix::process::WaitOptions::empty());
    let _ = rustix::io::read(read, &mut [0; 1]);
}

/// Ends at SIGTERM at once, and leaves a child in its group that drains.
pub(crate) fn follower(millis: u64) -> ! {
    if fork() {
        crate::signals::drain(millis);
    }
    idle("leader")
}

/// Drains itself, and has a child in its group that tells of SIGTERM.
pub(crate) fn prefork(millis: u64) -> ! {
    if fork() {
        crate::signals::tell_and_end(libc::SIGTERM);
        idle("worker");
    }
    crate::signals::drain(millis)
}

/// Hundreds in sessions of their own, and some that never stay who they are.
pub(crate) fn storm(many: u32) -> ! {
    let begun = Instant::now();
    for _ in 0..many {
        if fork() {
            new_session();
            while begun.elapsed() < LIFETIME {
                std::thread::sleep(Duration::from_secs(1));
            }
            exit(0);
        }
    }
    for _ in 0..3 {
        if fork() {
            comet(begun);
        }
    }
    report(&format!("ready {}", std::process::id()));
    loop {
        // Keeps forking, and never reaps.
        if begun.elapsed() > LIFETIME || fork() {
            exit(0);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn comet(begun: Instant) -> ! {
    while begun.elapsed() < LIFETIME {
        new_session();
        if !fork() {
            exit(0);
        }
    }
    exit(0)
}

/// Children that it never reaps, and orphans that somebody else must reap.
pub(crate) fn zombies(many: u32) -> ! {
    for _ in 0..many {
        if fork() {
            exit(0);
        }
        if fork() {
            if fork() {
                exit(0);
            }
            exit(0);
        }
    }
    idle("ready")
}
