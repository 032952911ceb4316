//! For tests that start whole programs: looks with a deadline, signals, chance from a seed, and nothing left behind.

use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, thread};

use rustix::process::{Pid, Signal, kill_process};

const PAUSE: Duration = Duration::from_millis(5);

/// Looks until something is there.
///
/// # Panics
/// When the limit has passed: the test has failed.
pub fn wait_for<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < limit, "waited too long for {what}");
        thread::sleep(PAUSE);
    }
}

/// Sends a signal to a process that the test has started; it may have ended by itself.
pub fn send(pid: u32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
        let _ = kill_process(pid, signal);
    }
}

/// Whether it runs; a zombie does not.
#[must_use]
pub fn is_alive(pid: u32) -> bool {
    stat_field(pid, 0).is_some_and(|state| !matches!(state.as_str(), "Z" | "X"))
}

/// A field of `/proc/PID/stat`, counted from 0 after the name: the state, the parent …
#[must_use]
pub fn stat_field(pid: u32, index: usize) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(index).map(str::to_owned)
}

/// Kills all that names this folder in its arguments, until nothing is left of it or the limit has passed.
pub fn end_all(folder: &Path, limit: Duration) {
    let begun = Instant::now();
    loop {
        let left = naming(folder);
        if left.is_empty() || begun.elapsed() > limit {
            return;
        }
        for pid in left {
            send(pid, Signal::KILL);
        }
        thread::sleep(PAUSE);
    }
}

fn naming(folder: &Path) -> Vec<u32> {
    let folder = folder.to_string_lossy().into_owned();
    let is_ours = |pid: &u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(&folder)
    };
    let entries = fs::read_dir("/proc").into_iter().flatten();
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(is_ours)
        .collect()
}

/// splitmix64: all that is random in a test comes from its seed.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The same seed gives the same numbers.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below this bound.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }

    /// A place in a list of this length.
    pub fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }
}
