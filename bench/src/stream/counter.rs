//! What is done with every message, whoever reads it: as little as possible.

use std::hint::black_box;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use feed::proto::Message;
use rustix::time::{ClockId, clock_gettime};

use super::client::Report;
use crate::memory::Memory;

/// Counts messages and takes the time from the first to the last that is wanted.
#[derive(Debug)]
pub(super) struct Counter {
    count: AtomicU64,
    last: AtomicU64,
    goal: u64,
    marks: Mutex<Vec<Mark>>,
}

#[derive(Debug)]
struct Mark {
    wall: Instant,
    cpu: Duration,
}

impl Counter {
    pub(super) fn new(after: u64, goal: u64) -> Self {
        Self {
            count: AtomicU64::new(0),
            last: AtomicU64::new(after),
            goal,
            marks: Mutex::default(),
        }
    }

    /// How many there were with this one.
    pub(super) fn count(&self, message: &Message) -> u64 {
        black_box(message.payload.len());
        self.last.store(message.position, Ordering::Relaxed);
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        if count == 1 || count == self.goal {
            self.mark();
        }
        count
    }

    pub(super) fn last(&self) -> u64 {
        self.last.load(Ordering::Relaxed)
    }

    fn mark(&self) {
        let mark = Mark {
            wall: Instant::now(),
            cpu: cpu_time(),
        };
        if let Ok(mut marks) = self.marks.lock() {
            marks.push(mark);
        }
    }

    pub(super) fn report(&self, rss_kib: Vec<u64>) -> Report {
        let (mut seconds, mut cpu_seconds) = (0.0, 0.0);
        if let Ok(marks) = self.marks.lock()
            && let [first, .., last] = marks.as_slice()
        {
            seconds = (last.wall - first.wall).as_secs_f64();
            cpu_seconds = last.cpu.saturating_sub(first.cpu).as_secs_f64();
        }
        Report {
            messages: self.goal - 1,
            last: self.last(),
            seconds,
            cpu_seconds,
            rss_kib,
        }
    }
}

/// Of all threads of this process.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(
        time.tv_sec.try_into().unwrap_or_default(),
        time.tv_nsec.try_into().unwrap_or_default(),
    )
}

/// Of this process, in KiB.
pub(super) fn resident() -> anyhow::Result<u64> {
    Ok(Memory::of(std::process::id())?.rss)
}
