//! The guard's decisions: when must the tree die although soloist says nothing?
//!
//! The guard stands between soloist and the child. It is armed with a deadline before the child
//! exists, starts the child itself, and kills the whole tree when it is told to, when the deadline
//! passes without a new one, or when soloist is gone.

use crate::time::Moment;

/// What happens to the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// soloist moved the deadline.
    Deadline(Moment),
    /// soloist wants the tree dead.
    Kill,
    /// soloist's end of the socket is closed: it is dead, or it has let go.
    SoloistGone,
    /// The child has been started.
    Spawned,
    /// The child could not be started.
    SpawnFailed,
    /// The child itself has ended; others of its tree may live on.
    ChildExited,
    /// No process of the tree is left.
    TreeEmpty,
    /// Nothing; look at the clock. To be given after all that is waiting on the socket, so that a
    /// guard that was stopped does not act on a deadline that has long been moved.
    Tick,
}

/// What the guard does about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Start the child.
    Spawn,
    /// SIGKILL every process of the tree, and again until it is empty.
    KillTree,
    /// End: there is nothing left to guard.
    Exit,
}

/// One guard, for one tree.
#[derive(Clone, Debug)]
pub struct Guard {
    deadline: Moment,
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Spawning,
    Guarding,
    Killing,
    Done,
}

impl Guard {
    /// A guard that is armed, and the first thing to do: start the child, or nothing if it is too late.
    #[must_use]
    pub fn armed(now: Moment, deadline: Moment) -> (Self, Action) {
        let late = now >= deadline;
        let guard = Self {
            deadline,
            phase: if late { Phase::Done } else { Phase::Spawning },
        };
        (guard, if late { Action::Exit } else { Action::Spawn })
    }

    /// Takes in what happened.
    pub fn handle(&mut self, now: Moment, input: Input) -> Option<Action> {
        match input {
            Input::Deadline(deadline) => self.deadline = deadline,
            Input::Kill | Input::SoloistGone => return self.kill(),
            Input::Spawned if self.phase == Phase::Spawning => self.phase = Phase::Guarding,
            // The order to kill came between the fork and this; the newborn has not heard it.
            Input::Spawned => return self.kill(),
            Input::ChildExited | Input::Tick => {}
            Input::SpawnFailed | Input::TreeEmpty => {
                self.phase = Phase::Done;
                return Some(Action::Exit);
            }
        }
        if now >= self.deadline {
            return self.kill();
        }
        None
    }

    /// When to give [`Input::Tick`].
    #[must_use]
    pub fn next_deadline(&self) -> Option<Moment> {
        match self.phase {
            Phase::Spawning | Phase::Guarding => Some(self.deadline),
            Phase::Killing | Phase::Done => None,
        }
    }

    fn kill(&mut self) -> Option<Action> {
        match self.phase {
            Phase::Spawning | Phase::Guarding => {
                self.phase = Phase::Killing;
                Some(Action::KillTree)
            }
            // Asked again: what the first kill missed, the second may catch.
            Phase::Killing => Some(Action::KillTree),
            Phase::Done => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    fn at(seconds: u64) -> Moment {
        Moment::since_boot(Duration::from_secs(seconds))
    }

    fn guarding() -> Guard {
        let (mut guard, action) = Guard::armed(at(0), at(10));
        assert_eq!(action, Action::Spawn);
        assert_eq!(guard.handle(at(1), Input::Spawned), None);
        guard
    }

    #[test]
    fn a_deadline_that_passes_kills_the_tree() {
        let mut guard = guarding();
        assert_eq!(guard.next_deadline(), Some(at(10)));
        assert_eq!(guard.handle(at(9), Input::Tick), None);
        assert_eq!(guard.handle(at(10), Input::Tick), Some(Action::KillTree));
        assert_eq!(guard.handle(at(11), Input::TreeEmpty), Some(Action::Exit));
        assert_eq!(guard.next_deadline(), None);
    }

    #[test]
    fn a_new_deadline_takes_the_place_of_the_old_one_even_when_read_late() {
        let mut guard = guarding();
        assert_eq!(guard.handle(at(12), Input::Deadline(at(20))), None);
        assert_eq!(guard.handle(at(12), Input::Tick), None);
        assert_eq!(guard.handle(at(20), Input::Tick), Some(Action::KillTree));
    }

    #[test]
    fn soloist_gone_kills_the_tree_at_once() {
        assert_eq!(
            guarding().handle(at(2), Input::SoloistGone),
            Some(Action::KillTree)
        );
    }

    #[test]
    fn a_kill_may_be_asked_for_again() {
        let mut guard = guarding();
        assert_eq!(guard.handle(at(2), Input::Kill), Some(Action::KillTree));
        assert_eq!(guard.handle(at(2), Input::Kill), Some(Action::KillTree));
        assert_eq!(guard.handle(at(3), Input::TreeEmpty), Some(Action::Exit));
        assert_eq!(guard.handle(at(3), Input::Kill), None);
    }

    #[test]
    fn a_guard_that_wakes_too_late_starts_nothing() {
        assert_eq!(Guard::armed(at(10), at(10)).1, Action::Exit);
    }

    #[test]
    fn killed_while_spawning_the_child_dies_with_the_rest() {
        let (mut guard, _) = Guard::armed(at(0), at(10));
        assert_eq!(guard.handle(at(1), Input::Kill), Some(Action::KillTree));
        assert_eq!(guard.handle(at(1), Input::Spawned), Some(Action::KillTree));
    }

    #[test]
    fn a_spawn_that_failed_leaves_nothing_to_guard() {
        let (mut guard, _) = Guard::armed(at(0), at(10));
        assert_eq!(guard.handle(at(1), Input::SpawnFailed), Some(Action::Exit));
        assert_eq!(guard.next_deadline(), None);
    }
}
