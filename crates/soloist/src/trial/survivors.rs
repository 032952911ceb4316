//! Who is there, by `/proc`, and what a process does about a signal.

use std::fs;

use soloist_process::Signal;

/// A process, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) name: String,
}

/// What a process does about a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Disposition {
    Handled,
    Ignored,
    /// What the kernel does for it: it ends at once.
    Default,
    Unknown,
}

/// All living descendants of a process.
pub(super) fn below(pid: u32) -> Vec<Process> {
    let mut found = Vec::new();
    let mut to_see = children(pid);
    while let Some(pid) = to_see.pop() {
        to_see.extend(children(pid));
        if let Some(name) = name(pid) {
            found.push(Process { pid, name });
        }
    }
    found.sort_by_key(|process| process.pid);
    found
}

fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"));
    let tasks = tasks.into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| {
            let pids = list.split_ascii_whitespace().map(str::parse);
            pids.filter_map(Result::ok).collect::<Vec<u32>>()
        })
        .collect()
}

/// Its command line; its short name while it has none, as between fork and exec. `None` for one that has ended and was
/// not reaped yet.
fn name(pid: u32) -> Option<String> {
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words = line.split(|byte| *byte == 0).map(String::from_utf8_lossy);
    let line = words.collect::<Vec<_>>().join(" ");
    match line.trim() {
        "" => short_name(pid),
        line => Some(line.chars().take(60).collect()),
    }
}

fn short_name(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (name, rest) = stat.split_once('(')?.1.rsplit_once(')')?;
    let ended = rest.trim_start().starts_with(['Z', 'X']);
    (!ended).then(|| format!("[{name}]"))
}

/// What this process does about this signal.
pub(super) fn disposition(pid: Option<u32>, signal: Signal) -> Disposition {
    let status = pid.and_then(|pid| fs::read_to_string(format!("/proc/{pid}/status")).ok());
    status.map_or(Disposition::Unknown, |status| of_status(&status, signal))
}

fn of_status(status: &str, signal: Signal) -> Disposition {
    let has = |field: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field))?;
        let mask = u64::from_str_radix(line.trim(), 16).ok()?;
        Some(mask & (1 << (signal.number() - 1)) != 0)
    };
    match (has("SigIgn:"), has("SigCgt:")) {
        (Some(true), _) => Disposition::Ignored,
        (_, Some(true)) => Disposition::Handled,
        (Some(false), Some(false)) => Disposition::Default,
        (None, _) | (_, None) => Disposition::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn the_masks_of_a_status_say_what_is_done_about_a_signal() {
        let status = |ignored, caught| format!("SigIgn:\t{ignored}\nSigCgt:\t{caught}\n");
        for (ignored, caught, disposition) in [
            ("0000000000004000", "0000000000000000", Disposition::Ignored),
            ("0000000000001000", "0000000180004a02", Disposition::Handled),
            ("0000000000001000", "0000000000000002", Disposition::Default),
        ] {
            assert_eq!(
                of_status(&status(ignored, caught), Signal::TERM),
                disposition
            );
        }
        assert_eq!(of_status("", Signal::TERM), Disposition::Unknown);
    }

    #[test]
    fn who_is_below_is_named_by_its_command_line() {
        let mut sleep = std::process::Command::new("sleep")
            .arg("71")
            .spawn()
            .unwrap();
        let pid = sleep.id();
        let there = |found: &[Process]| found.iter().any(|p| p.pid == pid);
        let at_once = below(std::process::id());
        // The kernel lets us go on before the new program has its command line.
        let deadline = Instant::now() + Duration::from_secs(20);
        let named = |p: &Process| p.pid == pid && p.name == "sleep 71";
        while !below(std::process::id()).iter().any(named) && Instant::now() < deadline {
            std::thread::yield_now();
        }
        let found = below(std::process::id());
        let (was_there, is_named) = (there(&at_once), found.iter().any(named));
        sleep.kill().unwrap();
        let zombie = std::iter::repeat_with(|| below(std::process::id()))
            .take_while(|_| Instant::now() < deadline)
            .find(|found| !there(found));
        sleep.wait().unwrap();
        assert!(was_there, "{at_once:?}");
        assert!(is_named, "{found:?}");
        assert!(zombie.is_some(), "one that has ended is shown");
    }
}
