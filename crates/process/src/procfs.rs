//! Who is whose child, from `/proc`.

use std::fs;
use std::io;

use rustix::process::Pid;

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
pub(crate) fn stat(pid: Pid) -> Option<Stat> {
    parse(&fs::read(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?)
}

/// The children of a process, and whether the kernel lists them by parent.
pub(crate) struct Children {
    pub(crate) pids: Vec<Pid>,
    /// If not, all processes had to be looked at, which takes its time.
    pub(crate) listed: bool,
}

/// The children of a process, dead but unreaped ones included. Children that come or go meanwhile may be missed.
pub(crate) fn children(parent: Pid) -> Children {
    match listed(parent) {
        Ok(pids) => Children { pids, listed: true },
        Err(_) => Children {
            pids: scanned(parent),
            listed: false,
        },
    }
}

fn listed(parent: Pid) -> io::Result<Vec<Pid>> {
    let mut pids = Vec::new();
    let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", parent.as_raw_nonzero())) else {
        return Ok(pids);
    };
    for task in tasks.filter_map(Result::ok) {
        match fs::read_to_string(task.path().join("children")) {
            Ok(text) => pids.extend(
                text.split_ascii_whitespace()
                    .filter_map(|number| pid(number.parse().ok()?)),
            ),
            // The thread is gone, or this kernel has no such file.
            Err(error) if !task.path().exists() => drop(error),
            Err(error) => return Err(error),
        }
    }
    Ok(pids)
}

/// The children of a process, by asking every process for its parent.
pub(crate) fn scanned(parent: Pid) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .filter_map(|entry| pid(entry.ok()?.file_name().to_str()?.parse().ok()?))
        .filter(|pid| stat(*pid).is_some_and(|stat| stat.parent == Some(parent)))
        .collect()
}

fn parse(text: &[u8]) -> Option<Stat> {
    // The name in parentheses may itself have any of these characters.
    let after_name = text.iter().rposition(|byte| *byte == b')')? + 1;
    let mut fields = std::str::from_utf8(&text[after_name..])
        .ok()?
        .split_ascii_whitespace();
    let stopped = matches!(fields.next()?, "T" | "t");
    let mut field = || fields.next()?.parse().ok();
    Some(Stat {
        parent: pid(field()?),
        group: pid(field()?),
        stopped,
    })
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
        assert!(children(me).pids.contains(&pid));
        assert!(scanned(me).contains(&pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!children(me).pids.contains(&pid));
    }
}
