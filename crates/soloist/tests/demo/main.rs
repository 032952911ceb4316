//! `soloist demo`, with real replicas and real faults.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod page;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::tcgetattr;
use tempfile::TempDir;
use testbed::dispositions;
use testbed::programs::{end_all, wait_for};

const SOLOIST: &str = env!("CARGO_BIN_EXE_soloist");
const LIMIT: Duration = Duration::from_secs(60);

/// A demo in a folder of its own, by which its processes are known: it is in their arguments.
struct Demo {
    folder: TempDir,
    child: Child,
    said: BufReader<ChildStdout>,
}

impl Demo {
    fn start(flags: &[&str]) -> Self {
        Self::start_on(Stdio::null(), flags)
    }

    fn start_on(stdin: impl Into<Stdio>, flags: &[&str]) -> Self {
        dispositions::undo_ignored();
        let folder = tempfile::tempdir().unwrap();
        let mut child = Command::new(SOLOIST)
            .arg("demo")
            .args(flags)
            .env("TMPDIR", folder.path())
            .stdin(stdin)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        Self {
            folder,
            child,
            said,
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Its lines until one has this.
    fn wait_line(&mut self, what: &str) -> String {
        let mut lines = self.said.by_ref().lines().map(Result::unwrap);
        let line = lines.find(|line| line.contains(what));
        line.unwrap_or_else(|| panic!("it never says {what:?}"))
    }

    /// The exit code, and all that it printed since.
    fn end(&mut self) -> (Option<i32>, String) {
        let mut said = String::new();
        self.said.read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().code(), said)
    }

    fn nothing_is_left(&self) {
        let left = processes(self.folder.path());
        assert!(left.is_empty(), "{left:?}");
        let files: Vec<_> = fs::read_dir(self.folder.path()).unwrap().collect();
        assert!(files.is_empty(), "{files:?}");
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        end_all(self.folder.path(), LIMIT);
    }
}

/// Those that name the folder in their arguments.
fn processes(folder: &Path) -> Vec<String> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let lines = all.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    let name = folder.to_str().unwrap();
    lines.filter(|line| line.contains(name)).collect()
}

#[test]
fn by_itself_it_hurts_them_in_every_way_and_proves_that_there_was_one_child() {
    let mut demo = Demo::start(&["--headless", "--for", "12s"]);
    let (code, said) = demo.end();
    assert_eq!(code, Some(0), "{said}");
    for fault in [
        "is killed (SIGKILL)",
        "is told to hand over (soloist handover)",
        "its child crashes (SIGKILL)",
        "is frozen (SIGSTOP)",
        "is thawed (SIGCONT)",
        "is cut off from the lease",
        "reaches the lease again",
        "its child's guard is killed (SIGKILL)",
        "is stopped in order (SIGTERM)",
        "exited with 0 and is started again",
    ] {
        assert!(said.contains(fault), "{fault}: {said}");
    }
    let (story, proof) = said.split_once("The proof,").expect("a proof");
    assert!(proof.contains("each once and in order"), "{said}");
    assert!(proof.contains("overlaps 0"), "{said}");
    assert!(proof.contains("The proof holds."), "{said}");
    let (_, table) = proof.split_once("\nswitch ").expect("a table");
    let switches = story.matches("without a child for at most").count();
    assert_eq!(table.lines().count(), switches + 1, "{said}");
    demo.nothing_is_left();
}

#[test]
fn interrupted_it_leaves_nothing_behind() {
    let mut demo = Demo::start(&["--headless"]);
    // In the middle: its leader is frozen, and has to be thawed to end.
    demo.wait_line("is frozen (SIGSTOP)");
    demo.signal(Signal::INT);
    let (code, said) = demo.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("The proof holds."), "{said}");
    demo.nothing_is_left();
}

#[test]
fn keys_on_the_terminal_choose_the_faults_and_the_terminal_is_as_it_was() {
    let (mut user, terminal) = terminal();
    let before = tcgetattr(&terminal).unwrap().local_modes;
    let mut demo = Demo::start_on(terminal.try_clone().unwrap(), &[]);
    demo.wait_line("k leader killed");
    demo.wait_line("leads, its child consumes the feed");
    user.write_all(b"xkg").unwrap();
    demo.wait_line("is killed (SIGKILL)");
    demo.wait_line("its child's guard is killed (SIGKILL)");
    user.write_all(b"q").unwrap();
    let (code, said) = demo.end();
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("The proof holds."), "{said}");
    assert_eq!(tcgetattr(&terminal).unwrap().local_modes, before);
    demo.nothing_is_left();
}

/// A new terminal: what its user holds, and what programs see.
fn terminal() -> (File, File) {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let user: OwnedFd = openpt(flags).unwrap();
    grantpt(&user).unwrap();
    unlockpt(&user).unwrap();
    let path = ptsname(&user, Vec::new()).unwrap();
    let open = File::options().read(true).write(true).clone();
    (File::from(user), open.open(path.to_str().unwrap()).unwrap())
}

#[test]
fn a_replica_that_somebody_else_kills_fails_the_demo_with_1() {
    let mut demo = Demo::start(&["--headless"]);
    demo.wait_line("leads, its child consumes the feed");
    let folder = demo.folder.path().to_str().unwrap();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(folder) && line.contains(" run ") && line.contains("--identity b ") {
            let pid = entry.file_name().to_str().unwrap().parse().unwrap();
            let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
        }
    }
    let (code, said) = demo.end();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("The demo failed: replica b ended"), "{said}");
    demo.nothing_is_left();
}

#[test]
fn killed_it_leaves_no_process_behind() {
    let mut demo = Demo::start(&["--headless"]);
    demo.wait_line("leads, its child consumes the feed");
    demo.signal(Signal::KILL);
    demo.child.wait().unwrap();
    wait_for("the end of all replicas", LIMIT, || {
        processes(demo.folder.path()).is_empty().then_some(())
    });
}

#[test]
fn the_next_one_removes_the_files_that_a_killed_one_has_left() {
    let mut killed = Demo::start(&["--headless"]);
    killed.wait_line("leads, its child consumes the feed");
    let files = |demo: &Demo| fs::read_dir(demo.folder.path()).unwrap().count();
    assert_eq!(files(&killed), 1);
    killed.signal(Signal::KILL);
    killed.child.wait().unwrap();
    wait_for("the end of all replicas", LIMIT, || {
        processes(killed.folder.path()).is_empty().then_some(())
    });
    let next = Command::new(SOLOIST)
        .args(["demo", "--headless"])
        .env("TMPDIR", killed.folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn();
    killed.child = next.unwrap();
    killed.said = BufReader::new(killed.child.stdout.take().unwrap());
    killed.wait_line("leads, its child consumes the feed");
    assert_eq!(files(&killed), 1, "its own");
    killed.signal(Signal::INT);
    killed.end();
    killed.nothing_is_left();
}

/// From its start, with what a debug build takes.
#[test]
fn its_first_picture_is_there_within_ten_seconds() {
    let begun = Instant::now();
    let mut demo = Demo::start(&[]);
    demo.wait_line("page: http://127.0.0.1:");
    demo.wait_line("leads, its child consumes the feed");
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[test]
fn what_it_cannot_do_is_said_with_what_to_do_instead() {
    for (flags, folder, reason) in [
        (&["--for", "30"][..], "/", "is not a duration"),
        (&["--for", "0s"], "/", "write it as 30s"),
        (&["--headless"], "/nowhere", "set TMPDIR"),
        (
            &["--headless", "--port", "1"],
            "/tmp",
            "cannot be used with",
        ),
    ] {
        let output = Command::new(SOLOIST)
            .arg("demo")
            .args(flags)
            .env("TMPDIR", folder)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {said}");
        assert!(said.contains(reason), "{flags:?}: {said}");
    }
}
