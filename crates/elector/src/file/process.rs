//! Processes of this machine, and the proof that they are dead.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::{Value, json};

use super::surroundings::Surroundings;

/// One process: its number alone would be given to another one after its death.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessRef {
    pid: i32,
    /// In clock ticks since boot, as in `/proc/PID/stat`.
    start: u64,
}

impl ProcessRef {
    /// The calling process.
    ///
    /// # Errors
    /// When `/proc` cannot be read.
    pub fn this() -> io::Result<Self> {
        Self::of(std::process::id())
    }

    /// The living process with this number.
    ///
    /// # Errors
    /// When there is none, or `/proc` does not show it.
    pub fn of(pid: u32) -> io::Result<Self> {
        let pid = i32::try_from(pid).map_err(io::Error::other)?;
        Ok(Self {
            pid,
            start: start_time(pid)?,
        })
    }

    /// A process that has told its own number and, from its `/proc/self/stat`, its start time. Others may not be shown it. `None` for
    /// what is no number of a process.
    #[must_use]
    pub fn told(pid: u32, start: u64) -> Option<Self> {
        let pid = i32::try_from(pid).ok().filter(|pid| *pid > 0)?;
        Some(Self { pid, start })
    }

    /// Its number.
    #[must_use]
    pub const fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether it is proven to run no more. A zombie counts as dead once all of its threads have ended:
    /// that is when its pidfd becomes readable, and it runs no code from then on.
    fn is_gone(self) -> bool {
        match self.open() {
            Ok(fd) => has_ended(&fd) || self.number_was_reused(),
            Err(Errno::SRCH) => true,
            Err(_) => self.number_was_reused(),
        }
    }

    /// A descriptor that becomes readable when the process ends; `None` if it is not there any more.
    fn living(self) -> Option<OwnedFd> {
        let fd = self.open().ok()?;
        (!self.number_was_reused()).then_some(fd)
    }

    fn open(self) -> Result<OwnedFd, Errno> {
        let pid = Pid::from_raw(self.pid).ok_or(Errno::SRCH)?;
        pidfd_open(pid, PidfdFlags::empty())
    }

    /// An unreadable `/proc` proves nothing.
    fn number_was_reused(self) -> bool {
        start_time(self.pid).is_ok_and(|start| start != self.start)
    }
}

fn has_ended(fd: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut fds, Some(&at_once)).is_ok_and(|ready| ready > 0)
}

fn start_time(pid: i32) -> io::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The second field is the program's name in parentheses, and may itself contain some.
    let after_name = stat.rsplit_once(") ").map(|(_, rest)| rest);
    after_name
        .and_then(|rest| rest.split(' ').nth(19))
        .and_then(|field| field.parse().ok())
        .ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat cannot be understood")))
}

/// Everything that can act for a holder: which processes, and where their numbers mean something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Household {
    surroundings: Surroundings,
    members: Vec<ProcessRef>,
}

impl Household {
    /// Of members in the caller's own surroundings.
    ///
    /// # Errors
    /// When `/proc` cannot be read, or the caller itself is not who it was (a process that was frozen into a file and restored).
    pub(super) fn of(members: Vec<ProcessRef>) -> io::Result<Self> {
        let this = ProcessRef::this()?;
        if members.iter().any(|m| m.pid == this.pid && *m != this) {
            return Err(io::Error::other("this process has another start time now"));
        }
        Ok(Self {
            surroundings: Surroundings::now()?,
            members,
        })
    }

    /// Whether all of it is proven dead: the machine has been restarted, or every member has ended. A member's end is seen from
    /// the very same surroundings only; those that merely differ prove nothing.
    pub(super) fn is_gone(&self) -> bool {
        let Ok(here) = Surroundings::now() else {
            return false;
        };
        self.surroundings.ended_before(&here)
            || self.surroundings == here
                && !self.members.is_empty()
                && self.members.iter().all(|member| member.is_gone())
    }

    /// Descriptors of the members that live.
    pub(super) fn living(&self) -> Vec<OwnedFd> {
        match Surroundings::now() {
            Ok(here) if here == self.surroundings => {
                self.members.iter().filter_map(|m| m.living()).collect()
            }
            Ok(_) | Err(_) => Vec::new(),
        }
    }

    pub(super) fn to_json(&self) -> Value {
        let member = |m: &ProcessRef| json!({"pid": m.pid, "start": m.start});
        let mut json = self.surroundings.to_json();
        json["members"] = self.members.iter().map(member).collect();
        json
    }

    /// `None` for anything that is not exactly this.
    pub(super) fn from_json(value: &Value) -> Option<Self> {
        let members = value.get("members")?.as_array()?.iter().map(|member| {
            Some(ProcessRef {
                pid: i32::try_from(member.get("pid")?.as_i64()?).ok()?,
                start: member.get("start")?.as_u64()?,
            })
        });
        Some(Self {
            surroundings: Surroundings::from_json(value)?,
            members: members.collect::<Option<_>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::surroundings::tests::edited;
    use std::process::{Child, Command, Stdio};

    fn sleeper() -> Child {
        Command::new("sleep")
            .arg("600")
            .stdin(Stdio::null())
            .spawn()
            .unwrap()
    }

    fn household(members: &[ProcessRef]) -> Household {
        Household::of(members.to_vec()).unwrap()
    }

    #[test]
    fn a_household_is_gone_when_its_last_member_is() {
        let mut first = sleeper();
        let mut second = sleeper();
        let both = household(&[
            ProcessRef::of(first.id()).unwrap(),
            ProcessRef::of(second.id()).unwrap(),
        ]);
        assert!(!both.is_gone());
        assert_eq!(both.living().len(), 2);
        first.kill().unwrap();
        first.wait().unwrap();
        assert!(!both.is_gone());
        second.kill().unwrap();
        second.wait().unwrap();
        assert!(both.is_gone());
    }

    #[test]
    fn a_zombie_without_threads_is_dead() {
        let mut child = sleeper();
        let alone = household(&[ProcessRef::of(child.id()).unwrap()]);
        let fd = alone.living().pop().unwrap();
        child.kill().unwrap();
        let mut fds = [PollFd::new(&fd, PollFlags::IN)];
        poll(&mut fds, None).unwrap();
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        assert!(stat.contains(") Z "), "{stat}");
        assert!(alone.is_gone());
        child.wait().unwrap();
    }

    #[test]
    fn a_number_that_was_given_to_another_process_is_no_sign_of_life() {
        let mut child = sleeper();
        let mut of_child = ProcessRef::of(child.id()).unwrap();
        assert!(!household(&[of_child]).is_gone());
        of_child.start -= 1;
        assert!(household(&[of_child]).is_gone());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_proven_other_boot_proves_death_and_any_other_difference_proves_nothing() {
        let dead = ProcessRef {
            pid: i32::MAX,
            start: 1,
        };
        let here = household(&[dead]);
        assert!(here.is_gone());
        let elsewhere = |name: &str, value| Household {
            surroundings: edited(&here.surroundings, name, value),
            members: here.members.clone(),
        };
        for name in ["timeNamespace", "pidNamespace"] {
            assert!(!elsewhere(name, json!("another")).is_gone(), "{name}");
        }
        assert!(elsewhere("boot", json!("another")).is_gone());
        assert!(!household(&[]).is_gone());
    }

    #[test]
    fn a_process_that_was_restored_is_not_who_it_was() {
        let mut this = ProcessRef::this().unwrap();
        this.start -= 1;
        assert!(Household::of(vec![this]).is_err());
    }

    #[test]
    fn a_household_survives_being_written_and_read() {
        let own = household(&[ProcessRef::this().unwrap()]);
        assert_eq!(Household::from_json(&own.to_json()), Some(own));
        assert_eq!(Household::from_json(&json!({"boot": 1})), None);
    }
}
