//! The machine, as soloist and its guard would find it.

use std::fs;

use crate::report::{Report, Verdict, read};

const GROUP: &str = "this machine";

/// pidfd_open came with 5.3, and 5.4 is the first that is kept.
const OLDEST_KERNEL: (u32, u32) = (5, 4);
const CAP_KILL: u32 = 5;

pub(super) fn check(report: &mut Report) {
    report.add(GROUP, "its kernel is new enough", kernel());
    report.add(GROUP, "processes can be seen", procfs());
    report.add(
        GROUP,
        "the guard can kill what runs as another user",
        kill_right(),
    );
    report.add(GROUP, "its CPU is not throttled", throttling());
}

fn kernel() -> Verdict {
    let name = rustix::system::uname();
    let release = name.release().to_string_lossy();
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|part| part.parse::<u32>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) if (major, minor) < OLDEST_KERNEL => Verdict::bad(
            format!("it is {release}"),
            "soloist needs Linux 5.4 or newer (pidfds)",
            read::OPERATIONS,
        ),
        _ => Verdict::good(release),
    }
}

fn procfs() -> Verdict {
    let own = std::process::id();
    match fs::read_to_string(format!("/proc/{own}/task/{own}/children")) {
        Ok(_) => Verdict::good(""),
        Err(error) => Verdict::bad(
            format!("/proc/{own}/task/{own}/children cannot be read: {error}"),
            "Mount /proc; without it soloist cannot find and kill all that the program has started",
            read::OPERATIONS,
        ),
    }
}

fn kill_right() -> Verdict {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let capabilities = field.and_then(|field| u64::from_str_radix(field.trim(), 16).ok());
    match capabilities {
        Some(held) if held >> CAP_KILL & 1 == 1 => Verdict::good("CAP_KILL"),
        Some(_) => Verdict::good(
            "no, and it need not: without CAP_SETUID nothing of the program can become another user",
        ),
        None => Verdict::Unknown("/proc/self/status does not say".into()),
    }
}

fn throttling() -> Verdict {
    let found = ["/sys/fs/cgroup/cpu.stat", "/sys/fs/cgroup/cpu/cpu.stat"]
        .into_iter()
        .find_map(|path| fs::read_to_string(path).ok());
    let Some(found) = found else {
        return Verdict::Unknown("there is no cpu.stat of our control group".into());
    };
    let number = |name: &str| {
        let line = found.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.trim().parse::<u64>().ok())
    };
    match (number("nr_throttled "), number("nr_periods ")) {
        (Some(throttled @ 1..), Some(periods)) => Verdict::warning(
            format!("it was, in {throttled} of {periods} periods: renewals may come late"),
            "Raise or remove the CPU limit",
            read::POD,
        ),
        (None | Some(0), _) | (_, None) => Verdict::good(""),
    }
}
