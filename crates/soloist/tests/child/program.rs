//! The program that the tests let soloist run: `soloist-test-child FOLDER [WORD…]`.
//!
//! Every process of its tree holds `FOLDER/lock`. Who finds it taken is a second one: it says so in `FOLDER/overlap`
//! and exits with 99. What happens is told in `FOLDER/journal`, one line each.

mod journal;
mod lock;
mod notify;

use std::io::{BufRead, Write};
use std::process::{Command, Stdio, exit};
use std::time::Duration;

use journal::Journal;
use lock::Lock;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// So that nothing outlives a test that fails.
const LIFETIME: Duration = Duration::from_secs(300);

fn main() {
    let mut arguments = std::env::args().skip(1);
    let Some(folder) = arguments.next() else {
        exit(64);
    };
    let plan = arguments.fold(Plan::default(), Plan::word);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(live(&Journal::of(&folder), &folder, &plan));
}

/// What this child is to do.
#[derive(Default)]
struct Plan {
    /// Takes this long to end after SIGTERM.
    drain: u64,
    /// Does not care about SIGTERM.
    deaf: bool,
    /// Leaves a process in a session of its own behind, which is deaf.
    daemon: bool,
    /// Says READY=1.
    ready: bool,
    /// Says WATCHDOG=1 this often, until the folder has a file `silent`.
    watchdog: Option<u64>,
    /// Asks to be told of the Pod's end, and tells that it was.
    ending: bool,
    /// Says WATCHDOG=1 all the time.
    flood: bool,
    /// Writes its whole environment to `FOLDER/env`.
    env: bool,
    /// Says so many times how it is.
    chatter: u64,
    /// Ends by itself after this long, see `code` and `signal`.
    after: Option<u64>,
    code: i32,
    signal: Option<i32>,
    /// Copies one line from stdin to stdout.
    copy: bool,
    /// The process between the child and its daemon, and the daemon; one that says READY=1 for the child and ends; a name
    /// server that never answers.
    role: Option<&'static str>,
}

impl Plan {
    fn word(mut self, word: String) -> Self {
        let (word, value) = word.split_once('=').unwrap_or((&word, "0"));
        let value: u64 = value.parse().unwrap_or_else(|_| exit(64));
        let small = i32::try_from(value).unwrap_or_default();
        match word {
            "drain" => self.drain = value,
            "deaf" => self.deaf = true,
            "daemon" => self.daemon = true,
            "ready" => self.ready = true,
            "watchdog" => self.watchdog = Some(value),
            "ending" => self.ending = true,
            "flood" => self.flood = true,
            "env" => self.env = true,
            "chatter" => self.chatter = value,
            "after" => self.after = Some(value),
            "code" => self.code = small,
            "signal" => self.signal = Some(small),
            "copy" => self.copy = true,
            "between" => self.role = Some("between"),
            "detached" => self.role = Some("detached"),
            "messenger" => self.role = Some("messenger"),
            "nameserver" => self.role = Some("nameserver"),
            _ => exit(64),
        }
        self
    }
}

// The detached process is to be an orphan.
#[allow(clippy::zombie_processes)]
async fn live(journal: &Journal, folder: &str, plan: &Plan) {
    let mut signals = Signals::listen();
    match plan.role {
        Some("between") => {
            let _ = rustix::process::setsid();
            again(folder, "detached");
            return;
        }
        Some("messenger") => return notify::say("READY=1"),
        Some("nameserver") => {
            let _socket = std::net::UdpSocket::bind("127.0.0.1:53").expect("port 53");
            std::fs::write(std::path::Path::new(folder).join("nameserver"), "").expect("a file");
            tokio::time::sleep(LIFETIME).await;
            return;
        }
        Some(_) => {
            journal.write("detached", "");
            tokio::time::sleep(LIFETIME).await;
            return;
        }
        None => {}
    }
    let lock = Lock::take(folder);
    if plan.env {
        let all: String = std::env::vars()
            .map(|(name, value)| format!("{name}={value}\n"))
            .collect();
        std::fs::write(std::path::Path::new(folder).join("env"), all).expect("a file");
    }
    journal.write("start", &variables());
    if plan.daemon {
        let mut between = again(folder, "between");
        let _ = between.wait();
    }
    if plan.copy {
        let mut line = String::new();
        let _ = std::io::stdin().lock().read_line(&mut line);
        print!("{line}");
        let _ = std::io::stdout().flush();
    }
    let told = plan.ending.then(|| notify::ask_of_ending(folder));
    if plan.ready {
        notify::say("READY=1");
    }
    if let Some(every) = plan.watchdog {
        tokio::spawn(notify::beat(
            folder.to_owned(),
            Duration::from_millis(every),
        ));
    }
    if plan.flood {
        std::thread::spawn(notify::flood);
    }
    if plan.chatter > 0 {
        (0..plan.chatter).for_each(|number| notify::say(&format!("STATUS=at {number}")));
        journal.write("said", "");
    }
    let end = plan.after.map_or(LIFETIME, Duration::from_millis);
    let end = tokio::time::Instant::now() + end;
    loop {
        tokio::select! {
            () = tokio::time::sleep_until(end) => {
                journal.write("end", "");
                die(plan);
            }
            name = signals.next() => {
                journal.write(name, "");
                if name == "TERM" && !plan.deaf {
                    // It was said before.
                    told.inspect(|told| told.recv().expect("a word of the end"));
                    break;
                }
            }
        }
    }
    tokio::time::sleep(Duration::from_millis(plan.drain)).await;
    journal.write("drained", "");
    drop(lock);
}

/// This program once more, in another role, with the lock.
fn again(folder: &str, role: &str) -> std::process::Child {
    let this = std::env::current_exe().expect("this program's path");
    Command::new(this)
        .args([folder, role])
        .stdin(Stdio::null())
        .spawn()
        .expect("another process")
}

fn die(plan: &Plan) -> ! {
    if let Some(signal) = plan
        .signal
        .and_then(rustix::process::Signal::from_named_raw)
    {
        let _ = rustix::process::kill_process(rustix::process::getpid(), signal);
    }
    exit(plan.code)
}

/// What soloist tells its child.
fn variables() -> String {
    let mut told = String::new();
    for name in ["NAME", "STOP_SECONDS", "DRAIN_SECONDS"] {
        let value = std::env::var(format!("SOLOIST_{name}")).unwrap_or_default();
        told += &format!(" {}={value}", name.to_lowercase());
    }
    told
}

struct Signals([(&'static str, Signal); 5]);

impl Signals {
    fn listen() -> Self {
        Self(
            [
                ("TERM", SignalKind::terminate()),
                ("HUP", SignalKind::hangup()),
                ("USR1", SignalKind::user_defined1()),
                ("USR2", SignalKind::user_defined2()),
                ("RTMIN+3", SignalKind::from_raw(37)),
            ]
            .map(|(name, kind)| (name, signal(kind).expect("a signal"))),
        )
    }

    async fn next(&mut self) -> &'static str {
        let [term, hup, usr1, usr2, real_time] = &mut self.0;
        tokio::select! {
            _ = term.1.recv() => term.0,
            _ = hup.1.recv() => hup.0,
            _ = usr1.1.recv() => usr1.0,
            _ = usr2.1.recv() => usr2.0,
            _ = real_time.1.recv() => real_time.0,
        }
    }
}
