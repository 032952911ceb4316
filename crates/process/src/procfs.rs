//! Who is whose child, from `/proc`.

use std::fs;
use std::io;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};

/// The part of `/proc/PID/stat` that is used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    pub(crate) parent: Option<Pid>,
    pub(crate) group: Option<Pid>,
    /// By a signal or a debugger.
    pub(crate) stopped: bool,
}

/// Whether `/proc` is there and has the numbers of our own PID namespace.
pub(crate) fn is_ours() -> bool {
    let me = rustix::process::getpid().as_raw_nonzero().to_string();
    fs::read_link("/proc/self").is_ok_and(|shown| shown.as_os_str() == me.as_str())
}

/// What `/proc` says about a process; `None` if it is gone.
///
/// # Errors
/// When nobody can tell: no descriptor is free, or it may not be looked at.
pub(crate) fn try_stat(pid: Pid) -> io::Result<Option<Stat>> {
    match fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())) {
        Ok(text) => Ok(parse(&text)),
        Err(error) if is_gone(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// When the calling process was started, in clock ticks since boot.
///
/// # Errors
/// When `/proc` does not say.
pub(crate) fn own_start_time() -> io::Result<u64> {
    let text = fs::read("/proc/self/stat")?;
    fields(&text)
        .and_then(|mut fields| fields.nth(19)?.parse().ok())
        .ok_or_else(|| io::Error::from_raw_os_error(libc::EPROTO))
}

/// The same for who can do without.
pub(crate) fn stat(pid: Pid) -> Option<Stat> {
    try_stat(pid).ok().flatten()
}

/// A process ends while it is looked at.
fn is_gone(error: &io::Error) -> bool {
    let no_process = Some(libc::ESRCH);
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == no_process
}

/// The children of a process, and whether the kernel lists them by parent.
pub(crate) struct Children {
    pub(crate) pids: Vec<Pid>,
    /// If not, all processes had to be looked at, which takes its time.
    pub(crate) listed: bool,
}

/// The children of a process, dead but unreaped ones included. Children that come or go meanwhile may be missed.
///
/// # Errors
/// When nobody can tell. That is not the same as none.
pub(crate) fn children(parent: Pid) -> io::Result<Children> {
    match listed(parent) {
        Ok(pids) => Ok(Children { pids, listed: true }),
        Err(_) => Ok(Children {
            pids: scanned(parent)?,
            listed: false,
        }),
    }
}

fn listed(parent: Pid) -> io::Result<Vec<Pid>> {
    let mut pids = Vec::new();
    let tasks = match fs::read_dir(format!("/proc/{}/task", parent.as_raw_nonzero())) {
        Ok(tasks) => tasks,
        // Who is there, but not shown (`hidepid`), may have children that are.
        Err(error) if is_gone(&error) && test_kill_process(parent) == Err(Errno::SRCH) => {
            return Ok(pids);
        }
        Err(error) => return Err(error),
    };
    for task in tasks {
        let task = task?;
        match fs::read_to_string(task.path().join("children")) {
            Ok(text) => pids.extend(
                text.split_ascii_whitespace()
                    .filter_map(|number| pid(number.parse().ok()?)),
            ),
            // The thread is gone, or this kernel has no such file.
            Err(error) if is_gone(&error) && !task.path().exists() => drop(error),
            Err(error) => return Err(error),
        }
    }
    Ok(pids)
}

/// The children of a process, by asking every process for its parent.
fn scanned(parent: Pid) -> io::Result<Vec<Pid>> {
    let mut found = Vec::new();
    for pid in processes()? {
        match try_stat(pid) {
            Ok(stat) if stat.is_some_and(|stat| stat.parent == Some(parent)) => found.push(pid),
            Ok(_) => {}
            // Another user's, whom we are not shown (`hidepid`).
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
            Err(error) => return Err(error),
        }
    }
    Ok(found)
}

/// All processes that we are shown.
pub(crate) fn processes() -> io::Result<Vec<Pid>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        found.extend(name.to_str().and_then(|name| pid(name.parse().ok()?)));
    }
    Ok(found)
}

fn parse(text: &[u8]) -> Option<Stat> {
    let mut fields = fields(text)?;
    let stopped = matches!(fields.next()?, "T" | "t");
    let mut field = || fields.next()?.parse().ok();
    Some(Stat {
        parent: pid(field()?),
        group: pid(field()?),
        stopped,
    })
}

/// What comes after the name.
fn fields(stat: &[u8]) -> Option<impl Iterator<Item = &str>> {
    // The name in parentheses may itself have any of these characters.
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let fields = std::str::from_utf8(&stat[after_name..]).ok()?;
    Some(fields.split_ascii_whitespace())
}

/// Nobody is 0, and a process that is just being reaped has −1 for its group.
fn pid(number: i32) -> Option<Pid> {
    Some(number)
        .filter(|number| *number > 0)
        .and_then(Pid::from_raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_is_no_obstacle() {
        let stat = parse(b"42 (a) S 1 (b) R 7 8 9 0").unwrap();
        assert_eq!(stat.parent, Pid::from_raw(7));
        assert_eq!(stat.group, Pid::from_raw(8));
        assert_eq!(parse(b"42 (a"), None);
        assert_eq!(parse(b"42 (a) X 0 -1 -1").unwrap().group, None);
    }

    #[test]
    fn both_ways_find_the_same_child() {
        let me = rustix::process::getpid();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let pid = Pid::from_child(&child);
        assert!(children(me).unwrap().pids.contains(&pid));
        assert!(scanned(me).unwrap().contains(&pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!children(me).unwrap().pids.contains(&pid));
        assert!(children(pid).unwrap().pids.is_empty(), "it is gone");
    }
}
