//! `soloist status --watch` on a terminal.

use std::fs::File;
use std::io::Read;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::harness::{Group, LIMIT, wait_for};
use crate::terminal::terminal;

const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";

/// Somebody who watches.
struct Watcher {
    child: Child,
    user: File,
    written: Arc<Mutex<Vec<u8>>>,
}

impl Watcher {
    fn start(group: &Group, columns: u16, rows: u16) -> Self {
        Self::start_as(group, ["xterm", "C.UTF-8"], columns, rows)
    }

    /// On a kind of terminal, in a locale.
    fn start_as(group: &Group, [kind, locale]: [&str; 2], columns: u16, rows: u16) -> Self {
        let (user, programs) = terminal();
        let this = Self {
            child: Group::under(
                &["setsid", "--ctty"],
                &group.command(&["status", "--watch"]),
            )
            .stdin(programs.try_clone().unwrap())
            .stdout(Stdio::from(programs))
            .stderr(Stdio::inherit())
            .env("TERM", kind)
            .env("LC_ALL", locale)
            .spawn()
            .unwrap(),
            written: Arc::default(),
            user,
        };
        this.resize(columns, rows);
        let (mut user, written) = (this.user.try_clone().unwrap(), Arc::clone(&this.written));
        thread::spawn(move || {
            let mut part = [0; 65536];
            while let Ok(read @ 1..) = user.read(&mut part) {
                written.lock().unwrap().extend_from_slice(&part[..read]);
            }
        });
        this
    }

    fn resize(&self, columns: u16, rows: u16) {
        let size = Winsize {
            ws_col: columns,
            ws_row: rows,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&self.user, size).unwrap();
    }

    fn written(&self) -> String {
        String::from_utf8_lossy(&self.written.lock().unwrap()).into_owned()
    }

    /// What is on the screen: each picture begins at its first place, and ends with clearing the rest.
    fn screen(&self) -> Vec<String> {
        let written = self.written();
        let Some((pictures, _)) = written.rsplit_once("\x1b[J") else {
            return Vec::new();
        };
        let picture = pictures.rsplit("\x1b[H").next().unwrap();
        // The terminal adds a return to each line break.
        let lines = picture.lines().map(|line| line.trim_end_matches('\r'));
        let lines = lines.map(|line| line.trim_end_matches("\x1b[K").to_owned());
        lines.collect()
    }

    fn wait_screen(&self, what: &str, is_there: impl Fn(&[String]) -> bool) -> Vec<String> {
        wait_for(what, LIMIT, || {
            let screen = self.screen();
            is_there(&screen).then_some(screen)
        })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn has(screen: &[String], text: &str) -> bool {
    screen.iter().any(|line| line.contains(text))
}

#[test]
fn on_a_terminal_a_handover_is_seen_in_the_timeline_and_an_interrupt_ends_it() {
    let mut group = Group::new();
    let (leader, _) = group.lead("r0", &[], &[]);
    group.follow("r1", &[], &[]);
    let mut watcher = Watcher::start(&group, 80, 24);
    let drawn = |name: &str, screen: &[String]| {
        let lane = screen.iter().find(|line| line.starts_with(name));
        lane.is_some_and(|lane| lane.contains('█'))
    };
    watcher.wait_screen("r0's lane", |screen| drawn("r0 ", screen));
    group.replica(leader).signal(Signal::TERM);
    let screen = watcher.wait_screen("r1's lane", |screen| {
        drawn("r1 ", screen) && has(screen, "leader    r1")
    });
    assert!(drawn("r0 ", &screen), "{screen:#?}");
    assert!(has(&screen, "r0 leads, term "), "{screen:#?}");
    assert!(has(&screen, "ago"), "{screen:#?}");
    assert!(screen.len() <= 24, "{screen:#?}");
    assert!(
        screen.iter().all(|line| line.chars().count() <= 80),
        "{screen:#?}"
    );
    let pid = Pid::from_child(&watcher.child);
    kill_process(pid, Signal::INT).unwrap();
    assert_eq!(watcher.child.wait().unwrap().code(), Some(0));
    wait_for("the screen that was there before", LIMIT, || {
        let written = watcher.written();
        (written.contains(ENTER) && written.ends_with(LEAVE)).then_some(())
    });
}

#[test]
fn without_unicode_the_timeline_is_drawn_with_what_every_terminal_has() {
    let mut group = Group::new();
    group.lead("r0", &[], &[]);
    let watcher = Watcher::start_as(&group, ["xterm", "C"], 80, 24);
    watcher.wait_screen("r0's lane", |screen| {
        let lane = screen.iter().find(|line| line.starts_with("r0 "));
        lane.is_some_and(|lane| lane.contains('#'))
    });
    assert!(watcher.written().is_ascii(), "{}", watcher.written());
}

#[test]
fn a_terminal_that_cannot_move_its_cursor_gets_the_table_whenever_it_changes() {
    let mut group = Group::new();
    let (leader, _) = group.lead("r0", &[], &[]);
    group.follow("r1", &[], &[]);
    let watcher = Watcher::start_as(&group, ["dumb", "C.UTF-8"], 80, 24);
    let has = |text: &str| watcher.written().contains(text).then_some(());
    wait_for("the table", LIMIT, || has("leader    r0"));
    group.replica(leader).signal(Signal::TERM);
    wait_for("the next table", LIMIT, || has("leader    r1"));
    assert!(
        !watcher.written().contains('\x1b'),
        "{:?}",
        watcher.written()
    );
}

#[test]
fn a_watch_that_nobody_reads_any_more_ends() {
    let mut group = Group::new();
    group.lead("r0", &[], &[]);
    let mut watch = group
        .command(&["status", "--watch"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 5];
    watch.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let ended = wait_for("its end", LIMIT, || watch.try_wait().unwrap());
    assert_eq!(ended.code(), Some(0));
}

#[test]
fn a_terminal_that_is_too_small_says_so_until_it_is_larger() {
    let mut group = Group::new();
    group.lead("r0", &[], &[]);
    let watcher = Watcher::start(&group, 30, 6);
    let screen = watcher.wait_screen("what is wrong", |screen| has(screen, "too small"));
    assert!(screen.len() <= 6, "{screen:#?}");
    assert!(
        screen
            .concat()
            .contains("40 columns and 12 rows are needed"),
        "{screen:#?}"
    );
    watcher.resize(100, 30);
    watcher.wait_screen("the lease", |screen| has(screen, "leader    r0"));
}
