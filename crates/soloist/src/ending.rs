//! What is known of the Pod's end: whether its preStop hook has begun, and how much of the grace period is left for a stop.
//!
//! No clock of another machine is read: what has passed is what we have seen pass, or what we were told that it takes.

use std::time::Duration;

use soloist_core::time::Moment;
use tokio::task::JoinHandle;

use crate::own_pod::OwnPod;

/// The kubelet leaves this much, even if the hook took all of the grace period, or it gives none.
pub(crate) const LEAST: Duration = Duration::from_secs(2);

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Ending {
    /// As we were told.
    grace: Duration,
    /// What the hook takes, as we were told.
    assumed: Duration,
    /// What the kubelet gives without anybody's deletion, as we were told.
    by_kubelet: Option<Duration>,
    prestop: Option<Hook>,
    /// When we were asked to stop.
    stopping: Option<Moment>,
    lookup: Option<JoinHandle<Option<Duration>>>,
}

/// One that has told us, or several at once.
#[derive(Clone, Copy, Debug)]
struct Hook {
    /// The first of them.
    began: Moment,
    /// One of them. The kubelet's is followed by a stop; whoever begins after that is another one.
    has_ended: bool,
}

impl Ending {
    pub(crate) const fn new(grace: Duration, assumed: Duration) -> Self {
        Self {
            grace,
            assumed,
            by_kubelet: None,
            prestop: None,
            stopping: None,
            lookup: None,
        }
    }

    /// What the kubelet gives where nobody deletes the Pod, if that is less.
    pub(crate) const fn by_kubelet(mut self, grace: Option<Duration>) -> Self {
        self.by_kubelet = grace;
        self
    }

    pub(crate) fn prestop_begins(&mut self, now: Moment) {
        let other = self.prestop(now).filter(|other| !other.has_ended);
        self.prestop = other.or(Some(Hook {
            began: now,
            has_ended: false,
        }));
    }

    /// It began a little before it could tell us.
    pub(crate) fn prestop_ends(&mut self, now: Moment, took: Duration) {
        let began = now - took;
        let told = self.prestop(now).map_or(began, |told| told.began);
        self.prestop = Some(Hook {
            began: told.min(began),
            has_ended: true,
        });
    }

    /// Whether the Pod should get no more traffic. A hook that nobody's end follows was run by hand, and is forgotten.
    pub(crate) fn is_near(&self, now: Moment) -> bool {
        self.stopping.is_some() || self.prestop(now).is_some()
    }

    /// We are asked to stop: what is left of the grace period, if a hook has told us of its time. Whoever has nothing to stop needs
    /// no more than that.
    pub(crate) fn stop(&mut self, now: Moment, has_child: bool) -> Option<Duration> {
        if self.stopping.is_none() {
            self.stopping = Some(now);
            if has_child {
                self.look_up();
            }
        }
        self.prestop(now)?;
        Some(self.left_of(self.grace, now))
    }

    /// What is left of the grace period that the Pod really has, once that is known. May be cancelled.
    pub(crate) async fn real_grace(&mut self) -> Duration {
        let Some(lookup) = &mut self.lookup else {
            return std::future::pending().await;
        };
        let found = lookup.await;
        self.lookup = None;
        match found {
            Ok(Some(grace)) => grace,
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }

    /// What is left now of a grace period of this length.
    pub(crate) fn left_of(&self, grace: Duration, now: Moment) -> Duration {
        let stopping = self.stopping.unwrap_or(now);
        let since_stop = now.since(stopping);
        let before = match self.prestop(stopping) {
            Some(hook) => stopping.since(hook.began),
            None => self.assumed,
        };
        grace
            .saturating_sub(before)
            .max(LEAST)
            .saturating_sub(since_stop)
    }

    /// The hook of this end.
    fn prestop(&self, now: Moment) -> Option<Hook> {
        let limit = self.grace + LEAST;
        self.prestop.filter(|hook| now.since(hook.began) <= limit)
    }

    fn look_up(&mut self) {
        if let Some(pod) = OwnPod::find() {
            let by_kubelet = self.by_kubelet;
            let asking = async move { pod.grace_period(by_kubelet).await };
            self.lookup = Some(tokio::spawn(asking));
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if let Some(lookup) = &self.lookup {
            lookup.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn t(seconds: u64) -> Moment {
        Moment::since_boot(s(seconds))
    }

    fn ending(assumed: u64) -> Ending {
        Ending::new(s(30), s(assumed))
    }

    /// As after a stop signal, without asking anyone.
    fn stopped(mut ending: Ending, at: u64) -> Ending {
        ending.stopping = Some(t(at));
        ending
    }

    #[test]
    fn the_hooks_real_time_is_taken_off() {
        let mut ending = ending(0);
        ending.prestop_begins(t(100));
        assert!(ending.is_near(t(100)));
        ending.prestop_ends(t(107), s(7));
        let ending = stopped(ending, 107);
        assert_eq!(ending.left_of(s(30), t(107)), s(23));
        assert_eq!(ending.left_of(s(10), t(108)), s(2));
        assert!(ending.is_near(t(1000)), "we are ending");
    }

    #[test]
    fn a_hook_that_told_only_at_its_end_counts_from_its_beginning() {
        let mut ending = ending(0);
        ending.prestop_ends(t(107), s(7));
        assert_eq!(stopped(ending, 107).left_of(s(30), t(107)), s(23));
    }

    #[test]
    fn without_a_hook_of_ours_it_is_what_we_were_told_that_it_takes() {
        let ending = stopped(ending(5), 100);
        assert_eq!(ending.left_of(s(10), t(100)), s(5));
        assert_eq!(ending.left_of(s(10), t(101)), s(4));
    }

    #[test]
    fn a_hook_that_took_everything_leaves_what_the_kubelet_leaves() {
        let mut ending = ending(0);
        ending.prestop_begins(t(100));
        assert_eq!(stopped(ending, 131).left_of(s(30), t(131)), s(2));
    }

    #[test]
    fn of_two_hooks_at_once_the_first_counts_and_after_the_end_of_one_the_next() {
        let mut ending = ending(0);
        ending.prestop_begins(t(100));
        ending.prestop_begins(t(110));
        // It is stopped before one of them has ended: that of the kubelet may be the first.
        assert_eq!(stopped(ending, 112).left_of(s(30), t(112)), s(18));
        let mut ending = self::ending(0);
        ending.prestop_begins(t(100));
        ending.prestop_ends(t(102), s(2));
        ending.prestop_begins(t(110));
        assert_eq!(stopped(ending, 112).left_of(s(30), t(112)), s(28));
    }

    #[test]
    fn a_hook_that_was_run_by_hand_is_forgotten() {
        let mut ending = ending(0);
        ending.prestop_begins(t(100));
        ending.prestop_ends(t(102), s(2));
        assert!(ending.is_near(t(130)));
        assert!(!ending.is_near(t(133)));
        assert_eq!(stopped(ending, 500).left_of(s(30), t(500)), s(30));
    }
}
