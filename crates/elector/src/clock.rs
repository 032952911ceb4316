//! Waiting by the one local clock.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use soloist_clock::TimerFd;
use soloist_core::orders::WallTime;
use soloist_core::time::Moment;

use crate::readable::{self, Readable};

pub use soloist_clock::now;

/// The time of day. It decides nothing but when a pause is over.
#[must_use]
pub fn wall_time() -> WallTime {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    WallTime::from_unix_seconds(since_epoch.map_or(0, |since| since.as_secs()))
}

/// A timer that rings at a [`Moment`], also when the machine was suspended in between.
#[derive(Debug)]
pub struct Timer(Readable);

impl Timer {
    /// A timer that does not ring yet. Must be called in a tokio runtime with I/O enabled.
    ///
    /// # Errors
    /// When the system has no file descriptor left.
    pub fn new() -> io::Result<Self> {
        let fd = OwnedFd::from(TimerFd::new()?);
        Ok(Self(readable::watch(fd)?))
    }

    /// Waits until the clock shows at least `at`; for ever if that is [`Moment::NEVER`].
    ///
    /// # Errors
    /// Whatever the kernel says; not expected.
    pub async fn until(&mut self, at: Moment) -> io::Result<()> {
        if at == Moment::NEVER {
            std::future::pending::<()>().await;
        }
        while now() < at {
            // Setting it also takes back an earlier ring.
            soloist_clock::set(self.0.get_ref().as_fd(), Some(at))?;
            let mut ready = self.0.readable_mut().await?;
            let mut expirations = [0; 8];
            match rustix::io::read(ready.get_inner(), &mut expirations) {
                Ok(_) => {}
                Err(rustix::io::Errno::AGAIN) => ready.clear_ready(),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Waits for `length`, suspend included.
///
/// # Errors
/// As [`Timer::new`].
pub async fn sleep(length: Duration) -> io::Result<()> {
    let at = now() + length;
    Timer::new()?.until(at).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_timer_rings_at_its_moment_and_not_before() {
        let mut timer = Timer::new().unwrap();
        for millis in [1, 20, 3] {
            let at = now() + Duration::from_millis(millis);
            timer.until(at).await.unwrap();
            assert!(now() >= at);
        }
    }

    #[tokio::test]
    async fn a_timer_that_was_given_up_does_not_ring_for_the_next_moment() {
        let mut timer = Timer::new().unwrap();
        let soon = now() + Duration::from_millis(5);
        let ring = tokio::time::timeout(Duration::from_millis(1), timer.until(soon)).await;
        assert!(ring.is_err());
        let later = now() + Duration::from_millis(30);
        timer.until(later).await.unwrap();
        assert!(now() >= later);
    }

    #[tokio::test]
    async fn never_does_not_come() {
        let mut timer = Timer::new().unwrap();
        let wait = timer.until(Moment::NEVER);
        assert!(
            tokio::time::timeout(Duration::from_millis(5), wait)
                .await
                .is_err()
        );
    }
}
