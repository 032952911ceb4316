//! The one local clock, `CLOCK_BOOTTIME`, and a timer on it for the guard's `poll`.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use soloist_core::time::Moment;

/// What the one local clock, `CLOCK_BOOTTIME`, shows.
#[must_use]
pub fn now() -> Moment {
    let read = clock_gettime(ClockId::Boottime);
    // The kernel's clock never runs below zero, and its nanoseconds are below a billion.
    let seconds = u64::try_from(read.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(read.tv_nsec).unwrap_or(0);
    Moment::since_boot(Duration::new(seconds, nanos))
}

/// A timer that does not ring yet.
pub(crate) fn timer() -> Result<OwnedFd, Errno> {
    timerfd_create(
        TimerfdClockId::Boottime,
        TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
    )
}

/// Makes the timer readable from `at` on, and takes back an earlier ring. `None` and never: not at all.
pub(crate) fn set(timer: &OwnedFd, at: Option<Moment>) -> Result<(), Errno> {
    let zero = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let it_value = match at {
        None | Some(Moment::NEVER) => zero,
        Some(at) => Timespec {
            tv_sec: i64::try_from(at.uptime().as_secs()).unwrap_or(i64::MAX),
            // Zero would disarm the timer; one nanosecond after boot has passed anyway.
            tv_nsec: i64::from(at.uptime().subsec_nanos()).max(1),
        },
    };
    let setting = Itimerspec {
        it_interval: zero,
        it_value,
    };
    timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &setting).map(drop)
}
