//! Who could exchange the lease: whoever may write to its folder or to one above it.
//!
//! The rules are those by which sshd trusts a file (`StrictModes`): each folder on the way belongs to root or to this user, and nobody else
//! may write to it, unless it has the sticky bit, with which nobody but the owner can move what is in it.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::getxattr;
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};

use super::failure;
use crate::store::StoreError;

/// Whether this user's files are ours to believe.
pub(super) fn is_trusted(user: u32) -> bool {
    user == 0 || user == geteuid().as_raw()
}

/// Owner and rights of a folder.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rights {
    pub(super) user: u32,
    pub(super) group: u32,
    pub(super) mode: u32,
}

impl Rights {
    fn has(self, bits: u32) -> bool {
        self.mode & bits == bits
    }
}

/// The folder itself.
pub(super) fn check_folder(folder: &Path, rights: Rights) -> Result<(), StoreError> {
    match is_trusted(rights.user) {
        true => check_writers(folder, folder, rights),
        false => Err(failure::folder_of_another_user(folder, folder, rights)),
    }
}

/// A folder of the lease's own: no other user has anything to do in it.
pub(super) fn check_own_folder(folder: &Path, rights: Rights) -> Result<(), StoreError> {
    if !is_trusted(rights.user) {
        Err(failure::folder_of_another_user(folder, folder, rights))
    } else if rights.mode & 0o022 != 0 {
        Err(failure::folder_for_others(folder, rights))
    } else {
        Ok(())
    }
}

/// All that is above it, as far as it is there: on the way that its path names, and on the way to where it really is.
pub(super) fn check_way(folder: &Path) -> Result<(), StoreError> {
    let named = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let real = fs::canonicalize(folder).ok();
    for way in [Some(named), real].into_iter().flatten() {
        for above in way.ancestors().skip(1) {
            // Who is not there any more, or yet, is found out by who wants to use it.
            let Ok(found) = fs::symlink_metadata(above) else {
                continue;
            };
            let rights = Rights {
                user: found.uid(),
                group: found.gid(),
                mode: found.mode() & 0o7777,
            };
            if !is_trusted(rights.user) && !is_unknown_here(rights.user) {
                return Err(failure::folder_of_another_user(folder, above, rights));
            }
            if found.is_dir() {
                check_writers(folder, above, rights)?;
            }
        }
    }
    Ok(())
}

fn check_writers(folder: &Path, at: &Path, rights: Rights) -> Result<(), StoreError> {
    const STICKY: u32 = 0o1000;
    if rights.has(STICKY) {
        Ok(())
    } else if rights.has(0o002) {
        Err(failure::folder_for_everybody(folder, at, rights))
    } else if !rights.has(0o020) {
        Ok(())
    } else if has_access_list(at) {
        Err(failure::folder_with_access_list(folder, at, rights))
    } else if !is_trusted_group(rights.group) {
        Err(failure::folder_for_a_group(folder, at, rights))
    } else {
        Ok(())
    }
}

/// Whether the group's bits are the most that an access control list gives to anybody whom it names: such a list may let others write only
/// where these bits do. Who is named in it is not looked at.
fn has_access_list(at: &Path) -> bool {
    let mut nothing: [u8; 0] = [];
    let size = getxattr(at, "system.posix_acl_access", &mut nothing[..]);
    !matches!(size, Err(Errno::NODATA | Errno::OPNOTSUPP))
}

/// Whether nobody is in this group but root and this user.
fn is_trusted_group(group: u32) -> bool {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let (user, own_group) = (geteuid().as_raw(), getegid().as_raw());
    // A user's own group usually has the user's number; a container may list neither.
    let is_private = group == own_group && group == user;
    match is_of_trusted_only(group, user, &read("/etc/passwd"), &read("/etc/group")) {
        Some(trusted) => trusted,
        None => group == 0 || is_private,
    }
}

/// `None` for a group that is not listed.
fn is_of_trusted_only(group: u32, user: u32, passwd: &str, groups: &str) -> Option<bool> {
    let number = |entry: &[&str], at: usize| entry.get(at)?.parse::<u32>().ok();
    let users: Vec<Vec<&str>> = entries(passwd).collect();
    let is_trusted = |entry: &[&str]| matches!(number(entry, 2), Some(id) if id == 0 || id == user);
    let is_trusted_name = |name: &str| {
        let entry = users.iter().find(|entry| entry.first() == Some(&name));
        entry.is_some_and(|entry| is_trusted(entry))
    };
    let listed = entries(groups).find(|entry| number(entry, 2) == Some(group))?;
    let mut members = listed.get(3).unwrap_or(&"").split(',');
    let all_trusted = members.all(|name| name.is_empty() || is_trusted_name(name));
    let mut of_group = users.iter().filter(|entry| number(entry, 3) == Some(group));
    Some(all_trusted && of_group.all(|entry| is_trusted(entry)))
}

fn entries(list: &str) -> impl Iterator<Item = Vec<&str>> {
    let lines = list.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.trim_end().split(':').collect())
}

/// Whether this number stands for everybody who is not in this user namespace: then nobody here can tell who it is. Above a container's own
/// folders that is the host's root, as a rule, and always somebody whom its maker has chosen.
fn is_unknown_here(user: u32) -> bool {
    let overflow = fs::read_to_string("/proc/sys/kernel/overflowuid");
    let overflow = overflow.ok().and_then(|text| text.trim().parse().ok());
    if overflow != Some(user) {
        return false;
    }
    let map = fs::read_to_string("/proc/self/uid_map");
    map.is_ok_and(|map| !is_mapped(&map, user))
}

fn is_mapped(map: &str, user: u32) -> bool {
    map.lines().any(|line| {
        let numbers: Vec<u64> = line
            .split_ascii_whitespace()
            .filter_map(|number| number.parse().ok())
            .collect();
        matches!(numbers[..], [first, _, many] if (first..first + many).contains(&user.into()))
    })
}

/// For the messages.
pub(super) fn described(at: &Path, rights: Rights) -> String {
    let Rights { user, group, mode } = rights;
    format!(
        "{} (user {user}, group {group}, mode {mode:04o})",
        at.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str =
        "root:x:0:0::/root:/bin/sh\napp:x:1000:1000::/home/app:\nbob:x:1001:100::/home/bob:\n";
    const GROUPS: &str = "root:x:0:\nusers:x:100:\napp:x:1000:\nstaff:x:50:\nteam:x:2000:app,root\n\
                          friends:x:2001:app,bob\nstrangers:x:2002:carol\n";

    #[test]
    fn a_group_is_trusted_if_all_of_its_members_are() {
        let trusted = |group| is_of_trusted_only(group, 1000, PASSWD, GROUPS);
        for group in [0, 1000, 50, 2000] {
            assert_eq!(trusted(group), Some(true), "{group}");
        }
        // bob's first group, one that has bob in it, and one of somebody whom nobody knows.
        for group in [100, 2001, 2002] {
            assert_eq!(trusted(group), Some(false), "{group}");
        }
        assert_eq!(trusted(7), None);
    }

    #[test]
    fn a_user_of_the_namespace_is_known_in_it() {
        assert!(is_mapped("0 0 4294967295\n", 65_534));
        assert!(!is_mapped("         0       1000          1\n", 65_534));
        assert!(is_mapped("0 1000 1\n1 100000 65536\n", 65_534));
    }
}
