//! The machine, as soloist and its guard would find it.

use std::fs;

use rustix::process::{PidfdFlags, getpid, pidfd_open};

use super::{capabilities, clock_rate, control_group};
use crate::report::{Report, Verdict, read};

const GROUP: &str = "this machine";

/// pidfd_open came with 5.3, and 5.4 is the first that is kept.
const OLDEST_KERNEL: (u32, u32) = (5, 4);

pub(super) fn check(report: &mut Report) {
    report.add(GROUP, "its kernel is new enough", kernel());
    report.add(
        GROUP,
        "its clock has the hardware's rate",
        clock_rate::check(),
    );
    report.add(GROUP, "processes can be seen", procfs());
    report.add(GROUP, "processes can be held", pidfd());
    for (what, verdict) in capabilities::check() {
        report.add(GROUP, what, verdict);
    }
    for (what, verdict) in control_group::check() {
        report.add(GROUP, what, verdict);
    }
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

/// A sandbox or a seccomp profile that is older than the call refuses it, whatever the kernel can do.
fn pidfd() -> Verdict {
    match pidfd_open(getpid(), PidfdFlags::empty()) {
        Ok(_) => Verdict::good("pidfds"),
        Err(error) => Verdict::bad(
            format!("pidfd_open is refused: {error}"),
            "Let the seccomp profile or the sandbox allow it (seccompProfile: RuntimeDefault does): soloist and its guard hold by it \
             what they have to kill",
            read::OPERATIONS,
        ),
    }
}
