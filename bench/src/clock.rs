//! The clock that the children write down.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of the monotonic clock, the same in all processes.
pub(crate) fn now() -> i128 {
    let time = clock_gettime(ClockId::Monotonic);
    i128::from(time.tv_sec) * 1_000_000_000 + i128::from(time.tv_nsec)
}
