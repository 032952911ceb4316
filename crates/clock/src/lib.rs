//! The one local clock, `CLOCK_BOOTTIME`, which goes on counting through suspend, and timers on it.
//!
//! Not `tokio::time`: that clock stands still while the machine is suspended, and a lease does not. The elector and the guard, which know
//! nothing of each other, both count by this one.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use soloist_core::time::Moment;

/// What the clock shows.
#[must_use]
pub fn now() -> Moment {
    let read = clock_gettime(ClockId::Boottime);
    // The kernel's clock never runs below zero, and its nanoseconds are below a billion.
    let seconds = u64::try_from(read.tv_sec).unwrap_or(0);
    let nanos = u32::try_from(read.tv_nsec).unwrap_or(0);
    Moment::since_boot(Duration::new(seconds, nanos))
}

/// A descriptor, for `poll` or a runtime, that is readable from a [`Moment`] on.
#[derive(Debug)]
pub struct TimerFd(OwnedFd);

impl TimerFd {
    /// One that does not ring yet. Reading does not block.
    ///
    /// # Errors
    /// When the system has no file descriptor left.
    pub fn new() -> Result<Self, Errno> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        timerfd_create(TimerfdClockId::Boottime, flags).map(Self)
    }

    /// Makes it readable from `at` on, and takes back an earlier ring. `None` and never: not at all.
    ///
    /// # Errors
    /// Whatever the kernel says; not expected.
    pub fn set(&self, at: Option<Moment>) -> Result<(), Errno> {
        set(self.0.as_fd(), at)
    }
}

impl AsFd for TimerFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<TimerFd> for OwnedFd {
    fn from(timer: TimerFd) -> Self {
        timer.0
    }
}

/// As [`TimerFd::set`], for one that has become a descriptor like others.
///
/// # Errors
/// When it is none.
pub fn set(timer: BorrowedFd<'_>, at: Option<Moment>) -> Result<(), Errno> {
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
