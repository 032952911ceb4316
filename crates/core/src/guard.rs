//! The guard's decisions: when must the tree die although soloist says nothing?
//!
//! The guard stands between soloist and the child. It is prepared before there is a child, perhaps before there is a
//! term; its first deadline lets it start the child; and it kills the whole tree when it is told to, when the
//! deadline passes without a new one, or when soloist is gone.
//!
//! | | waiting | armed | guarding | leftovers | killing |
//! |---|---|---|---|---|---|
//! | `Deadline` | armed | moved | moved | moved | – |
//! | `Stop` | exit | exit | **stop child** | – | – |
//! | `Kill`, `SoloistGone` | exit | exit | **kill**, killing | **kill**, killing | **kill** |
//! | `Tick`, not too late | – | **spawn**, guarding | – | – | – |
//! | `Tick`, when their grace is over | | | | **kill leftovers** | |
//! | `Tick`, too late | – | exit | **kill**, killing | **kill**, killing | – |
//! | `Spawned` | **kill**, killing | **kill**, killing | – | – | **kill** |
//! | `ChildExited` | – | – | **stop leftovers**, leftovers | – | – |
//! | `SpawnFailed`, `TreeEmpty` | – | – | exit | exit | exit |
//!
//! *Leftovers* are processes that outlive the child itself. Those of them who were not asked to stop together with it are asked
//! then, and have [`LEFTOVERS_GRACE`]. Those who were (its process group, by default) have been promised the stop timeout,
//! whether or not the child waits for them: a shell that has not `exec`ed its program dies of the signal at once.
//!
//! Who has exited answers nothing any more. Only [`Input::Tick`] looks at the clock, and it comes after all that is
//! waiting on the socket: so a guard that was stopped for a while neither kills at a deadline that has long been
//! moved nor starts a child that is to be stopped.

use core::time::Duration;

use crate::time::Moment;

/// What outlives the child and was not asked to stop with it has this long after the child's end. Long enough to
/// write a file, short enough for a handover or a restart to wait for.
pub const LEFTOVERS_GRACE: Duration = Duration::from_secs(2);

/// What happens to the guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// soloist sets the deadline or moves it. The first one is the order to start the child.
    Deadline(Moment),
    /// soloist wants the child to end in order.
    Stop,
    /// soloist wants the tree dead.
    Kill,
    /// soloist's end of the socket is closed: it is dead, or it has let go.
    SoloistGone,
    /// The child has become its program.
    Spawned,
    /// The child could not be forked, or did not become its program and is gone.
    SpawnFailed,
    /// The child itself has ended; others of its tree may live on.
    ChildExited,
    /// No process of the tree is left.
    TreeEmpty,
    /// Nothing; look at the clock. To be given after all that is waiting on the socket.
    Tick,
}

/// What the guard does about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Fork the child, at once: whatever comes next finds it there. What becomes of it is told by
    /// [`Input::Spawned`] or [`Input::SpawnFailed`].
    Spawn,
    /// Send the stop signal to the child's group, or to the child alone if the user wants that.
    StopChild,
    /// Send the stop signal to every process of the tree that has not had it with the child.
    StopLeftovers,
    /// SIGKILL those same processes, and again until the tree is empty.
    KillLeftovers,
    /// SIGKILL every process of the tree, and again until it is empty.
    KillTree,
    /// End: there is nothing to guard, or nothing left.
    Exit,
}

/// One guard, for one tree.
#[derive(Clone, Debug)]
pub struct Guard {
    phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// There is no child, and may never be one.
    Waiting,
    /// There is a deadline, and all that came with it has yet to be heard.
    Armed { deadline: Moment },
    /// The child was forked.
    Guarding { deadline: Moment },
    /// The child itself has ended. What is left of its tree has until then; `None` if that is over.
    Leftovers {
        deadline: Moment,
        grace: Option<Moment>,
    },
    /// It is to die with all its tree.
    Killing,
    /// Nothing is left to guard.
    Done,
}

impl Guard {
    /// A guard that waits for its first deadline.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            phase: Phase::Waiting,
        }
    }

    /// Takes in what happened.
    pub fn handle(&mut self, now: Moment, input: Input) -> Option<Action> {
        match self.phase {
            Phase::Waiting => match input {
                Input::Deadline(deadline) => self.go(Phase::Armed { deadline }, None),
                Input::Stop | Input::Kill | Input::SoloistGone => self.exit(),
                // Not by us.
                Input::Spawned => self.kill(),
                Input::SpawnFailed | Input::ChildExited | Input::TreeEmpty | Input::Tick => None,
            },
            Phase::Armed { deadline } => match input {
                Input::Deadline(deadline) => self.go(Phase::Armed { deadline }, None),
                Input::Stop | Input::Kill | Input::SoloistGone => self.exit(),
                Input::Tick if now < deadline => {
                    self.go(Phase::Guarding { deadline }, Some(Action::Spawn))
                }
                Input::Tick => self.exit(),
                Input::Spawned => self.kill(),
                Input::SpawnFailed | Input::ChildExited | Input::TreeEmpty => None,
            },
            Phase::Guarding { deadline } => match input {
                Input::Deadline(deadline) => self.go(Phase::Guarding { deadline }, None),
                Input::Stop => Some(Action::StopChild),
                Input::Kill | Input::SoloistGone => self.kill(),
                Input::Tick if now < deadline => None,
                Input::Tick => self.kill(),
                Input::Spawned => None,
                Input::ChildExited => {
                    let grace = Some(now + LEFTOVERS_GRACE);
                    let phase = Phase::Leftovers { deadline, grace };
                    self.go(phase, Some(Action::StopLeftovers))
                }
                Input::SpawnFailed | Input::TreeEmpty => self.exit(),
            },
            Phase::Leftovers { deadline, grace } => match input {
                Input::Deadline(deadline) => self.go(Phase::Leftovers { deadline, grace }, None),
                Input::Kill | Input::SoloistGone => self.kill(),
                Input::Tick if now >= deadline => self.kill(),
                Input::Tick if grace.is_some_and(|end| now >= end) => {
                    let grace = None;
                    let phase = Phase::Leftovers { deadline, grace };
                    self.go(phase, Some(Action::KillLeftovers))
                }
                Input::Tick => None,
                // They have been asked already.
                Input::Stop => None,
                Input::Spawned | Input::ChildExited => None,
                Input::SpawnFailed | Input::TreeEmpty => self.exit(),
            },
            Phase::Killing => match input {
                // Asked again, or born after the first kill: what that missed, the next may catch.
                Input::Kill | Input::SoloistGone | Input::Spawned => self.kill(),
                Input::Deadline(_) | Input::Stop | Input::ChildExited | Input::Tick => None,
                Input::SpawnFailed | Input::TreeEmpty => self.exit(),
            },
            Phase::Done => None,
        }
    }

    /// When to give [`Input::Tick`], if nothing else happens before.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Moment> {
        match self.phase {
            // At once.
            Phase::Armed { .. } => Some(Moment::since_boot(Duration::ZERO)),
            Phase::Guarding { deadline } => Some(deadline),
            Phase::Leftovers { deadline, grace } => {
                Some(grace.map_or(deadline, |end| deadline.min(end)))
            }
            Phase::Waiting | Phase::Killing | Phase::Done => None,
        }
    }

    fn go(&mut self, phase: Phase, action: Option<Action>) -> Option<Action> {
        self.phase = phase;
        action
    }

    fn kill(&mut self) -> Option<Action> {
        self.go(Phase::Killing, Some(Action::KillTree))
    }

    fn exit(&mut self) -> Option<Action> {
        self.go(Phase::Done, Some(Action::Exit))
    }
}

impl Default for Guard {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::since_boot(Duration::from_secs(seconds))
    }

    fn armed() -> Guard {
        let mut guard = Guard::new();
        assert_eq!(guard.handle(at(0), Input::Deadline(at(10))), None);
        guard
    }

    fn spawning() -> Guard {
        let mut guard = armed();
        assert_eq!(guard.handle(at(0), Input::Tick), Some(Action::Spawn));
        guard
    }

    fn guarding() -> Guard {
        let mut guard = spawning();
        assert_eq!(guard.handle(at(1), Input::Spawned), None);
        guard
    }

    /// The child ended at 4.
    fn leftovers() -> Guard {
        let mut guard = guarding();
        let asked = guard.handle(at(4), Input::ChildExited);
        assert_eq!(asked, Some(Action::StopLeftovers));
        guard
    }

    fn killing() -> Guard {
        let mut guard = guarding();
        assert_eq!(guard.handle(at(1), Input::Kill), Some(Action::KillTree));
        guard
    }

    fn done() -> Guard {
        let mut guard = guarding();
        assert_eq!(guard.handle(at(1), Input::TreeEmpty), Some(Action::Exit));
        guard
    }

    #[test]
    fn every_phase_answers_every_input_as_the_table_says() {
        use Action::{Exit, KillTree, Spawn, StopChild, StopLeftovers};
        let inputs = [
            Input::Deadline(at(20)),
            Input::Stop,
            Input::Kill,
            Input::SoloistGone,
            Input::Tick,
            Input::Spawned,
            Input::ChildExited,
            Input::SpawnFailed,
            Input::TreeEmpty,
        ];
        let (kill, exit, none) = (Some(KillTree), Some(Exit), None);
        let table = [
            (
                Guard::new(),
                [none, exit, exit, exit, none, kill, none, none, none],
            ),
            (
                armed(),
                [none, exit, exit, exit, Some(Spawn), kill, none, none, none],
            ),
            (
                guarding(),
                [
                    none,
                    Some(StopChild),
                    kill,
                    kill,
                    none,
                    none,
                    Some(StopLeftovers),
                    exit,
                    exit,
                ],
            ),
            (
                leftovers(),
                [none, none, kill, kill, none, none, none, exit, exit],
            ),
            (
                killing(),
                [none, none, kill, kill, none, kill, none, exit, exit],
            ),
            (done(), [none; 9]),
        ];
        for (guard, answers) in table {
            for (input, answer) in inputs.into_iter().zip(answers) {
                let asked = guard.clone().handle(at(5), input);
                assert_eq!(asked, answer, "{input:?} to {guard:?}");
            }
        }
    }

    #[test]
    fn the_first_deadline_starts_the_child_once_all_is_heard() {
        let mut guard = Guard::new();
        assert_eq!(guard.next_deadline(), None);
        assert_eq!(guard.handle(at(3), Input::Tick), None);
        assert_eq!(guard.handle(at(3), Input::Deadline(at(10))), None);
        assert!(guard.next_deadline().is_some_and(|soon| soon <= at(3)));
        assert_eq!(guard.handle(at(3), Input::Tick), Some(Action::Spawn));
        assert_eq!(guard.next_deadline(), Some(at(10)));
    }

    #[test]
    fn a_guard_that_wakes_too_late_starts_nothing() {
        assert_eq!(armed().handle(at(10), Input::Tick), Some(Action::Exit));
    }

    #[test]
    fn a_guard_that_wakes_late_starts_the_child_if_the_deadline_was_moved() {
        let mut guard = armed();
        assert_eq!(guard.handle(at(12), Input::Deadline(at(20))), None);
        assert_eq!(guard.handle(at(12), Input::Tick), Some(Action::Spawn));
        assert_eq!(guard.next_deadline(), Some(at(20)));
    }

    #[test]
    fn who_is_stopped_killed_or_left_before_the_start_never_starts_anything() {
        for end in [Input::Stop, Input::Kill, Input::SoloistGone] {
            for mut guard in [Guard::new(), armed()] {
                assert_eq!(guard.handle(at(1), end), Some(Action::Exit));
                assert_eq!(guard.handle(at(1), Input::Deadline(at(20))), None);
                assert_eq!(guard.handle(at(1), Input::Tick), None);
                assert_eq!(guard.next_deadline(), None);
            }
        }
    }

    #[test]
    fn a_stop_reaches_the_child_from_its_fork_on() {
        for mut guard in [spawning(), guarding()] {
            assert_eq!(guard.handle(at(2), Input::Stop), Some(Action::StopChild));
            assert_eq!(guard.handle(at(2), Input::Stop), Some(Action::StopChild));
            assert_eq!(guard.next_deadline(), Some(at(10)));
        }
    }

    #[test]
    fn what_outlives_the_child_is_asked_to_stop_and_killed_after_a_short_grace() {
        let mut guard = leftovers();
        assert_eq!(guard.next_deadline(), Some(at(6)));
        assert_eq!(guard.handle(at(5), Input::Tick), None);
        let killed = guard.handle(at(6), Input::Tick);
        assert_eq!(killed, Some(Action::KillLeftovers));
        assert_eq!(guard.handle(at(7), Input::Tick), None);
        assert_eq!(guard.next_deadline(), Some(at(10)));
        assert_eq!(guard.handle(at(7), Input::TreeEmpty), Some(Action::Exit));
    }

    #[test]
    fn the_deadline_holds_for_what_outlives_the_child_too() {
        for (seconds, action) in [(9, Action::KillLeftovers), (10, Action::KillTree)] {
            let asked = leftovers().handle(at(seconds), Input::Tick);
            assert_eq!(asked, Some(action));
        }
        let mut guard = leftovers();
        assert_eq!(guard.handle(at(5), Input::Deadline(at(20))), None);
        assert_eq!(guard.next_deadline(), Some(at(6)));
        guard.handle(at(6), Input::Tick);
        assert_eq!(guard.next_deadline(), Some(at(20)));
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
    fn only_a_tick_looks_at_the_clock() {
        for input in [
            Input::Deadline(at(10)),
            Input::Spawned,
            Input::ChildExited,
            Input::Stop,
        ] {
            let mut guard = guarding();
            assert_ne!(guard.handle(at(12), input), Some(Action::KillTree));
            assert_eq!(guard.handle(at(12), Input::Tick), Some(Action::KillTree));
        }
    }

    #[test]
    fn a_deadline_that_comes_after_the_kill_saves_nobody() {
        let mut guard = killing();
        assert_eq!(guard.handle(at(2), Input::Deadline(at(20))), None);
        assert_eq!(guard.next_deadline(), None);
        assert_eq!(guard.handle(at(2), Input::Kill), Some(Action::KillTree));
    }

    #[test]
    fn soloist_gone_kills_the_tree_at_once() {
        let gone = guarding().handle(at(2), Input::SoloistGone);
        assert_eq!(gone, Some(Action::KillTree));
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
    fn killed_while_spawning_the_child_dies_with_the_rest() {
        let mut guard = spawning();
        assert_eq!(guard.handle(at(1), Input::Kill), Some(Action::KillTree));
        assert_eq!(guard.handle(at(1), Input::Spawned), Some(Action::KillTree));
    }

    #[test]
    fn a_spawn_that_failed_leaves_nothing_to_guard() {
        let mut guard = spawning();
        assert_eq!(guard.handle(at(1), Input::SpawnFailed), Some(Action::Exit));
        assert_eq!(guard.next_deadline(), None);
    }
}
