//! Another user for the child.

use std::path::PathBuf;
use std::{fs, io};

use rustix::io::Errno;
use rustix::process::{Gid, Uid, getegid, geteuid};
use rustix::thread::{
    clear_ambient_capability_set, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};

use crate::{privileges, sys};

/// Whom the child becomes before it becomes its program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
    home: Option<PathBuf>,
}

/// Why the child cannot become that user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UserError {
    /// Neither a number nor in the list.
    #[error("there is no user {0:?} in /etc/passwd")]
    NoSuchUser(String),
    /// Neither a number nor in the list.
    #[error("there is no group {0:?} in /etc/group")]
    NoSuchGroup(String),
    /// A number that is in no list has no group either.
    #[error("user {0} is not in /etc/passwd, so its group must be given as well: --group")]
    NoGroup(u32),
    /// The system would refuse it.
    #[error(
        "the child cannot become user {uid}, group {gid}: soloist is user {own} and does not have {missing}. Start it as root with these, or \
         start it as that user"
    )]
    NotPermitted {
        /// Wanted.
        uid: u32,
        /// Wanted.
        gid: u32,
        /// soloist's own.
        own: u32,
        /// The capabilities that it takes.
        missing: String,
    },
}

impl User {
    /// By name or number, as far as this process may let a child become it, and may signal it then.
    ///
    /// # Errors
    /// When there is no such user or group, or it is not permitted.
    pub fn find(user: Option<&str>, group: Option<&str>) -> Result<Self, UserError> {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let found = look_up(&read("/etc/passwd"), &read("/etc/group"), user, group)?;
        let missing = found.missing();
        if missing.is_empty() {
            return Ok(found);
        }
        Err(UserError::NotPermitted {
            uid: found.uid.as_raw(),
            gid: found.gid.as_raw(),
            own: geteuid().as_raw(),
            missing: missing.join(", "),
        })
    }

    /// The home of this process's own user as the user database has it, whatever the environment says. `None` for a user who is
    /// not in it.
    ///
    /// # Errors
    /// When nobody can tell: a directory service does not answer.
    pub fn own_home() -> io::Result<Option<PathBuf>> {
        let uid = geteuid().as_raw();
        // Most are there, and that costs no way to a directory service.
        let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
        match home_in(&passwd, uid) {
            Some(home) => Ok(Some(home)),
            None => sys::home_of(uid),
        }
    }

    /// Its home, if it is known.
    #[must_use]
    pub fn home(&self) -> Option<&PathBuf> {
        self.home.as_ref()
    }

    fn missing(&self) -> Vec<&'static str> {
        let mut needed = Vec::new();
        if self.uid != geteuid() {
            // Who may not signal the child could not stop it.
            needed.extend(["CAP_SETUID", "CAP_KILL"]);
        }
        if self.uid != geteuid() || self.gid != getegid() {
            needed.push("CAP_SETGID");
        }
        needed.retain(|name| !privileges::has_named(name));
        needed
    }

    /// Becomes it, for good. For a forked child, between fork and exec.
    pub(crate) fn assume(&self) -> Result<(), Errno> {
        if self.uid != geteuid() || self.gid != getegid() {
            set_thread_groups(&self.groups)?;
            set_thread_res_gid(self.gid, self.gid, self.gid)?;
        }
        if self.uid != geteuid() {
            let _ = clear_ambient_capability_set();
            set_thread_res_uid(self.uid, self.uid, self.uid)?;
        }
        Ok(())
    }

    /// As one word.
    pub(crate) fn encode(&self) -> String {
        let groups = self.groups.iter().map(|group| group.as_raw());
        let numbers = [self.uid.as_raw(), self.gid.as_raw()].into_iter();
        let numbers: Vec<String> = numbers.chain(groups).map(|id| id.to_string()).collect();
        numbers.join(",")
    }

    /// Back again, without the home.
    pub(crate) fn decode(text: &str) -> Option<Self> {
        let numbers = text.split(',').map(|id| id.parse::<u32>().ok());
        let numbers: Vec<u32> = numbers.collect::<Option<_>>()?;
        let [uid, gid, groups @ ..] = &numbers[..] else {
            return None;
        };
        Some(Self {
            uid: Uid::from_raw(*uid),
            gid: Gid::from_raw(*gid),
            groups: groups.iter().map(|gid| Gid::from_raw(*gid)).collect(),
            home: None,
        })
    }
}

fn home_in(passwd: &str, uid: u32) -> Option<PathBuf> {
    let uid = uid.to_string();
    let entry = entries(passwd).find(|entry| entry.get(2) == Some(&uid.as_str()))?;
    entry.get(5).map(PathBuf::from)
}

fn look_up(
    passwd: &str,
    group_list: &str,
    user: Option<&str>,
    group: Option<&str>,
) -> Result<User, UserError> {
    let own = geteuid().as_raw().to_string();
    let wanted = user.unwrap_or(&own);
    let entry = entries(passwd)
        .find(|entry| entry.first() == Some(&wanted) || entry.get(2) == Some(&wanted));
    let field = |at: usize| entry.as_ref().and_then(|entry| entry.get(at).copied());
    let number = |text: Option<&str>| text.and_then(|text| text.parse::<u32>().ok());
    let uid = number(field(2)).or_else(|| number(Some(wanted)));
    let uid = uid.ok_or_else(|| UserError::NoSuchUser(wanted.to_owned()))?;
    let gid = match group {
        Some(name) => {
            let entry = entries(group_list).find(|entry| entry.first() == Some(&name));
            let listed = entry.and_then(|entry| number(entry.get(2).copied()));
            let gid = listed.or_else(|| number(Some(name)));
            gid.ok_or_else(|| UserError::NoSuchGroup(name.to_owned()))?
        }
        None if user.is_none() => getegid().as_raw(),
        None => number(field(3)).ok_or(UserError::NoGroup(uid))?,
    };
    let name = field(0);
    let has_member = |entry: &Vec<&str>| {
        let members = entry.get(3).copied().unwrap_or_default();
        name.is_some_and(|name| members.split(',').any(|member| member == name))
    };
    let memberships = entries(group_list).filter(has_member);
    let memberships = memberships.filter_map(|entry| number(entry.get(2).copied()));
    let mut groups: Vec<u32> = memberships.collect();
    groups.push(gid);
    groups.sort_unstable();
    groups.dedup();
    Ok(User {
        uid: Uid::from_raw(uid),
        gid: Gid::from_raw(gid),
        groups: groups.into_iter().map(Gid::from_raw).collect(),
        home: field(5).filter(|home| !home.is_empty()).map(PathBuf::from),
    })
}

fn entries(list: &str) -> impl Iterator<Item = Vec<&str>> {
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split(':').collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0::/root:/bin/sh\napp:x:1000:100::/home/app:/bin/sh\n";
    const GROUPS: &str = "root:x:0:\nusers:x:100:\nlogs:x:7:app,other\n";

    fn found(user: Option<&str>, group: Option<&str>) -> Result<String, UserError> {
        look_up(PASSWD, GROUPS, user, group).map(|user| user.encode())
    }

    #[test]
    fn a_user_is_found_by_name_and_by_number_with_all_its_groups() {
        for user in ["app", "1000"] {
            assert_eq!(found(Some(user), None).unwrap(), "1000,100,7,100");
            assert_eq!(found(Some(user), Some("logs")).unwrap(), "1000,7,7");
            assert_eq!(found(Some(user), Some("5")).unwrap(), "1000,5,5,7");
        }
        assert_eq!(found(Some("7777"), Some("5")).unwrap(), "7777,5,5");
        let app = look_up(PASSWD, GROUPS, Some("app"), None).unwrap();
        assert_eq!(app.home(), Some(&PathBuf::from("/home/app")));
        let decoded = User::decode(&app.encode()).unwrap();
        assert_eq!(User { home: None, ..app }, decoded);
    }

    #[test]
    fn who_is_not_there_is_refused() {
        let missing = |user: &str, group| found(Some(user), group).unwrap_err();
        assert_eq!(
            missing("nobody", None),
            UserError::NoSuchUser("nobody".into())
        );
        assert_eq!(
            missing("app", Some("x")),
            UserError::NoSuchGroup("x".into())
        );
        assert_eq!(missing("7777", None), UserError::NoGroup(7777));
    }
}
