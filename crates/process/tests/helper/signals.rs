//! What the helper does about signals.

use std::process::exit;
use std::ptr;
use std::time::Duration;

use crate::report;

pub(crate) fn ignore(signal: i32) {
    // SAFETY: ignoring a signal runs no code.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

pub(crate) fn die_by(signal: i32) -> ! {
    // SAFETY: the default action, then a signal to oneself.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
    exit(64)
}

/// Takes its time after SIGTERM, then ends in order.
pub(crate) fn drain(millis: u64) -> ! {
    wait_for(libc::SIGTERM, || {
        report(&format!("ready {}", std::process::id()));
    });
    report(&format!("draining {}", std::process::id()));
    std::thread::sleep(Duration::from_millis(millis));
    report(&format!("drained {}", std::process::id()));
    exit(0)
}

/// Tells of every such signal.
pub(crate) fn echo(signal: i32) -> ! {
    let mut word = "ready";
    loop {
        wait_for(signal, || report(&format!("{word} {}", std::process::id())));
        word = "again";
        report(&format!("got-{signal} {}", std::process::id()));
    }
}

fn wait_for(signal: i32, when_blocked: impl FnOnce()) {
    // SAFETY: a set that is initialised, then blocked, then waited for.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, signal);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut());
        when_blocked();
        let mut got = 0;
        libc::sigwait(&raw const set, &raw mut got);
    }
}

/// What was blocked and ignored when this program was started. SIGPIPE is ignored by the Rust runtime.
pub(crate) fn status() -> String {
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_whitespace().nth(1))
            .expect("a field")
            .to_owned()
    };
    format!("signals {} {}", field("SigBlk:"), field("SigIgn:"))
}

/// Changes all that a child should not find changed.
pub(crate) fn disturb() {
    ignore(libc::SIGINT);
    // SAFETY: a set that is initialised, then blocked.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGUSR1);
        libc::sigprocmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut());
    }
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let all = rustix::process::Rlimit {
        current: limit.maximum,
        ..limit
    };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, all);
}

pub(crate) fn open_files_limit() -> String {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    format!("limit {}", limit.current.unwrap_or(u64::MAX))
}

/// Has a process traced, so that it stays a zombie after its end for as long as this one lives.
pub(crate) fn hold(pid: i32) -> ! {
    // SAFETY: without options and without an address to write to.
    let held = unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, ptr::null_mut::<()>(), 0) };
    report(if held == 0 { "held" } else { "not-held" });
    crate::park()
}

/// From now on it tells of this signal when it comes, and ends.
pub(crate) fn tell_and_end(signal: i32) {
    extern "C" fn tell(signal: i32) {
        // Not for a signal handler, but this process does nothing else.
        report(&format!("heard-{signal} {}", std::process::id()));
        exit(0);
    }
    // SAFETY: the process is parked when the signal comes, in no call that the handler uses.
    unsafe { libc::signal(signal, tell as extern "C" fn(i32) as libc::sighandler_t) };
}
