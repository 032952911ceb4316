//! The program that the tests supervise, and the soloist that they kill.
//!
//! It tells what it does by datagrams to the socket named by `REPORT`: a word and its process id.

#![allow(unsafe_code)]

mod forks;
mod signals;
mod soloist;

use std::os::unix::net::UnixDatagram;
use std::process::exit;

fn main() {
    soloist_process::guard::run_if_guard();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args.as_slice() {
        ["idle"] => idle("ready"),
        ["exit", code] => exit(number(code)),
        ["die", signal] => signals::die_by(number(signal)),
        ["drain", millis] => signals::drain(number(millis)),
        ["deaf"] => {
            signals::ignore(libc::SIGTERM);
            idle("ready")
        }
        ["echo", signal] => signals::echo(number(signal)),
        ["daemon"] => {
            forks::daemon();
            idle("ready")
        }
        // It hears the stop signal when its parent has ended.
        ["daemon-and-exit"] => forks::daemon_that(|| signals::ignore(libc::SIGTERM)),
        ["follower", millis] => forks::follower(number(millis)),
        ["prefork", millis] => forks::prefork(number(millis)),
        ["polite-daemon"] => {
            forks::daemon_that(|| signals::tell_and_end(libc::SIGTERM));
            idle("ready")
        }
        ["deaf-daemon"] => {
            forks::daemon_that(|| signals::ignore(libc::SIGTERM));
            idle("ready")
        }
        ["crash-with-daemon"] => {
            forks::daemon_that(|| signals::tell_and_end(libc::SIGTERM));
            exit(3)
        }
        ["storm", many] => forks::storm(number(many)),
        ["zombies", many] => forks::zombies(number(many)),
        ["streams"] => report(&streams()),
        ["files"] => report(&files()),
        ["signals"] => report(&signals::status()),
        ["limit"] => report(&signals::open_files_limit()),
        ["where"] => report(&whereabouts()),
        ["soloist", millis, rest @ ..] => soloist::run(number(millis), rest),
        ["hold", pid] => signals::hold(number(pid)),
        ["first-process"] => soloist::first_process(),
        _ => exit(64),
    }
}

/// Tells the test.
pub(crate) fn report(text: &str) {
    let Some(path) = std::env::var_os("REPORT") else {
        return;
    };
    let socket = UnixDatagram::unbound().expect("a socket");
    // The test may be over.
    let _ = socket.send_to(text.as_bytes(), path);
}

/// Says so, and waits for its end.
pub(crate) fn idle(word: &str) -> ! {
    report(&format!("{word} {}", std::process::id()));
    park()
}

/// Long enough for any test, and not for ever if it fails.
pub(crate) fn park() -> ! {
    std::thread::sleep(std::time::Duration::from_secs(120));
    exit(0)
}

fn number<T: std::str::FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| exit(64))
}

fn files() -> String {
    let mut open: Vec<u32> = std::fs::read_dir("/proc/self/fd")
        .expect("a list of descriptors")
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    open.sort_unstable();
    format!("files {open:?}")
}

fn streams() -> String {
    let targets: Vec<_> = (0..3)
        .map(|fd| std::fs::read_link(format!("/proc/self/fd/{fd}")))
        .map(|target| target.map_or("closed".into(), |path| path.display().to_string()))
        .collect();
    format!("streams {}", targets.join(" "))
}

fn whereabouts() -> String {
    let dir = std::env::current_dir().expect("a directory");
    let variable = std::env::var("GREETING").unwrap_or_default();
    let path = std::env::var_os("PATH").is_some();
    format!("where {} {variable} {path}", dir.display())
}
