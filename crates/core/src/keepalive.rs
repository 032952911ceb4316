//! Is the guard there? soloist's question to it, and when silence is an answer.
//!
//! A guard that is stopped (SIGSTOP, a debugger, a frozen cgroup) guards nothing, and would not be missed before the day on
//! which it is needed. So soloist asks it, from the order to start the child on: every sixth of the lease, and when there is
//! reason to. The first word is its own: it acknowledges the order to start before it forks the child, so before that there is
//! nothing to guard, however long it takes to start. It answers everything on its socket in order, so an answer acknowledges every deadline that it was
//! given before. One that leaves a question unanswered for a third of the lease is *mute*, and is replaced together with its
//! tree. So it is noticed within half of the lease, well before the deadline that it was given last.
//!
//! Nobody is found mute for what soloist itself has missed. The third of the lease is counted in steps, one for
//! each time that soloist looks: after a suspend, or after it was stopped itself, the guard still has most of the steps to
//! answer in.

use core::time::Duration;

use crate::time::Moment;
use crate::timings::Timings;

/// The question and the patience, for one guard.
#[derive(Clone, Copy, Debug)]
pub struct Keepalive {
    interval: Duration,
    step: Duration,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// There is no child to guard.
    Off,
    /// It was told to start the child, and has not said a word yet: there is none before that.
    Starting,
    /// It has answered, and is asked again then.
    Answered { ask_at: Moment },
    /// It has been asked; its silence is looked at then, and this often in all.
    Asked { look_at: Moment, looks: u32 },
}

/// What is to be done about the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Ask it for a word.
    Ask,
    /// It does not answer: kill it, and with it its tree.
    Replace,
}

impl Keepalive {
    /// How often its silence is looked at before it is mute.
    const LOOKS: u32 = 4;

    /// For a guard that waits.
    #[must_use]
    pub fn new(timings: &Timings) -> Self {
        Self {
            interval: timings.guard_question(),
            step: timings.guard_patience() / Self::LOOKS,
            phase: Phase::Off,
        }
    }

    /// The guard was told to start the child.
    pub fn begin(&mut self) {
        if self.phase == Phase::Off {
            self.phase = Phase::Starting;
        }
    }

    /// There is reason to ask now, whoever it is.
    #[must_use]
    pub fn ask(&mut self, now: Moment) -> Option<Check> {
        match self.phase {
            Phase::Asked { .. } => None,
            Phase::Off | Phase::Starting | Phase::Answered { .. } => {
                self.phase = Phase::Asked {
                    look_at: now + self.step,
                    looks: Self::LOOKS,
                };
                Some(Check::Ask)
            }
        }
    }

    /// The guard has said something, whatever it was.
    pub fn heard(&mut self, now: Moment) {
        if self.phase != Phase::Off {
            let ask_at = now + self.interval;
            self.phase = Phase::Answered { ask_at };
        }
    }

    /// When to call [`Keepalive::handle_timeout`].
    #[must_use]
    pub const fn next_deadline(&self) -> Option<Moment> {
        match self.phase {
            Phase::Off | Phase::Starting => None,
            Phase::Answered { ask_at } => Some(ask_at),
            Phase::Asked { look_at, .. } => Some(look_at),
        }
    }

    /// Time has passed. To be called after all that the guard has said was heard.
    #[must_use]
    pub fn handle_timeout(&mut self, now: Moment) -> Option<Check> {
        match self.phase {
            Phase::Off | Phase::Starting => None,
            Phase::Answered { ask_at } if now < ask_at => None,
            Phase::Answered { .. } => self.ask(now),
            Phase::Asked { look_at, .. } if now < look_at => None,
            Phase::Asked { looks, .. } => {
                let looks = looks.saturating_sub(1);
                let look_at = now + self.step;
                self.phase = Phase::Asked { look_at, looks };
                (looks == 0).then_some(Check::Replace)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timings::Preset;

    /// Lease 15 s: asked every 2.5 s, looked at every 1.25 s.
    fn waiting() -> Keepalive {
        Keepalive::new(&Timings::preset(Preset::Standard))
    }

    fn at(millis: u64) -> Moment {
        Moment::since_boot(Duration::from_millis(millis))
    }

    fn begun() -> Keepalive {
        let mut keepalive = waiting();
        keepalive.begin();
        keepalive.heard(at(0));
        keepalive
    }

    #[test]
    fn a_guard_that_waits_is_not_asked() {
        let mut keepalive = waiting();
        assert_eq!(keepalive.next_deadline(), None);
        assert_eq!(keepalive.handle_timeout(at(60_000)), None);
        keepalive.heard(at(60_000));
        assert_eq!(keepalive.next_deadline(), None);
    }

    #[test]
    fn a_guard_that_takes_long_to_start_is_not_mute() {
        let mut keepalive = waiting();
        keepalive.begin();
        assert_eq!(keepalive.next_deadline(), None);
        assert_eq!(keepalive.handle_timeout(at(60_000)), None);
        keepalive.heard(at(60_000));
        assert_eq!(keepalive.next_deadline(), Some(at(62_500)));
        // Unless there is a reason to ask.
        let mut keepalive = waiting();
        keepalive.begin();
        assert_eq!(keepalive.ask(at(100)), Some(Check::Ask));
        assert_eq!(keepalive.next_deadline(), Some(at(1350)));
    }

    #[test]
    fn a_guard_that_answers_is_asked_again_and_again() {
        let mut keepalive = begun();
        for round in 1..10 {
            let now = at(round * 2500);
            assert_eq!(keepalive.next_deadline(), Some(now));
            assert_eq!(keepalive.handle_timeout(now), Some(Check::Ask));
            keepalive.heard(now);
        }
    }

    #[test]
    fn a_guard_that_is_mute_is_replaced_within_half_of_the_lease() {
        let mut keepalive = begun();
        let mut asked = 0;
        while let Some(now) = keepalive.next_deadline() {
            match keepalive.handle_timeout(now) {
                Some(Check::Ask) => asked += 1,
                Some(Check::Replace) => {
                    assert_eq!((now, asked), (at(7500), 1));
                    return;
                }
                None => {}
            }
        }
    }

    #[test]
    fn a_word_in_time_is_enough() {
        let mut keepalive = begun();
        assert_eq!(keepalive.handle_timeout(at(2500)), Some(Check::Ask));
        for look in [3750, 5000, 6250] {
            assert_eq!(keepalive.handle_timeout(at(look)), None);
        }
        keepalive.heard(at(7400));
        assert_eq!(keepalive.next_deadline(), Some(at(9900)));
    }

    #[test]
    fn after_soloist_itself_was_stopped_the_guard_has_time_to_answer() {
        let mut keepalive = begun();
        assert_eq!(keepalive.handle_timeout(at(2500)), Some(Check::Ask));
        assert_eq!(keepalive.handle_timeout(at(60_000)), None);
        assert_eq!(keepalive.next_deadline(), Some(at(61_250)));
        keepalive.heard(at(60_001));
        assert_eq!(keepalive.next_deadline(), Some(at(62_501)));
    }

    #[test]
    fn with_a_reason_it_is_asked_at_once_but_not_twice() {
        let mut keepalive = waiting();
        assert_eq!(keepalive.ask(at(100)), Some(Check::Ask));
        assert_eq!(keepalive.ask(at(200)), None);
        assert_eq!(keepalive.next_deadline(), Some(at(1350)));
    }
}
