//! Processes of this machine, and the proof that they are dead.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde_json::{Value, json};

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
    boot: String,
    pid_namespace: String,
    /// Start times are shown as the reader's own time namespace counts. `None` where the kernel has none.
    time_namespace: Option<String>,
    members: Vec<ProcessRef>,
}

impl Household {
    pub(super) fn of(members: Vec<ProcessRef>) -> io::Result<Self> {
        Ok(Self {
            boot: boot_id()?,
            pid_namespace: namespace("pid")?,
            time_namespace: time_namespace()?,
            members,
        })
    }

    /// Whether all of it is proven dead: the machine has been restarted, or every member has ended.
    /// Numbers of another PID namespace prove nothing, nor do start times of another time namespace.
    pub(super) fn is_gone(&self) -> bool {
        match boot_id() {
            Ok(boot) if boot != self.boot => true,
            Ok(_) => {
                self.is_visible()
                    && !self.members.is_empty()
                    && self.members.iter().all(|member| member.is_gone())
            }
            Err(_) => false,
        }
    }

    /// Descriptors of the members that live.
    pub(super) fn living(&self) -> Vec<OwnedFd> {
        if !self.is_visible() || boot_id().is_ok_and(|boot| boot != self.boot) {
            return Vec::new();
        }
        self.members.iter().filter_map(|m| m.living()).collect()
    }

    fn is_visible(&self) -> bool {
        namespace("pid").is_ok_and(|own| own == self.pid_namespace)
            && time_namespace().is_ok_and(|own| own == self.time_namespace)
    }

    pub(super) fn to_json(&self) -> Value {
        let members: Vec<Value> = self
            .members
            .iter()
            .map(|m| json!({"pid": m.pid, "start": m.start}))
            .collect();
        json!({
            "boot": self.boot,
            "pidNamespace": self.pid_namespace,
            "timeNamespace": self.time_namespace,
            "members": members,
        })
    }

    /// `None` for anything that is not exactly this.
    pub(super) fn from_json(value: &Value) -> Option<Self> {
        let text = |name: &str| Some(value.get(name)?.as_str()?.to_owned());
        let members = value.get("members")?.as_array()?.iter().map(|member| {
            Some(ProcessRef {
                pid: i32::try_from(member.get("pid")?.as_i64()?).ok()?,
                start: member.get("start")?.as_u64()?,
            })
        });
        Some(Self {
            boot: text("boot")?,
            pid_namespace: text("pidNamespace")?,
            time_namespace: text("timeNamespace"),
            members: members.collect::<Option<_>>()?,
        })
    }
}

fn boot_id() -> io::Result<String> {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(id.trim().to_owned())
}

fn namespace(kind: &str) -> io::Result<String> {
    let link = fs::read_link(format!("/proc/self/ns/{kind}"))?;
    Ok(link.to_string_lossy().into_owned())
}

fn time_namespace() -> io::Result<Option<String>> {
    match namespace("time") {
        Ok(own) => Ok(Some(own)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        let mut this = ProcessRef::this().unwrap();
        assert!(!household(&[this]).is_gone());
        this.start -= 1;
        assert!(household(&[this]).is_gone());
    }

    #[test]
    fn another_boot_proves_death_and_another_pid_or_time_namespace_proves_nothing() {
        let dead = ProcessRef {
            pid: i32::MAX,
            start: 1,
        };
        let mut elsewhere = household(&[dead]);
        assert!(elsewhere.is_gone());
        let own = elsewhere.time_namespace.replace("time:[1]".into());
        assert!(!elsewhere.is_gone());
        elsewhere.time_namespace = own;
        assert!(elsewhere.is_gone());
        elsewhere.pid_namespace = "pid:[1]".into();
        assert!(!elsewhere.is_gone());
        elsewhere.boot = "another".into();
        assert!(elsewhere.is_gone());
        assert!(!household(&[]).is_gone());
    }

    #[test]
    fn a_household_survives_being_written_and_read() {
        let own = household(&[ProcessRef::this().unwrap()]);
        assert_eq!(Household::from_json(&own.to_json()), Some(own));
        assert_eq!(Household::from_json(&json!({"boot": 1})), None);
    }
}
