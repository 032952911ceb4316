//! A second process on the same lease: this test's own program again.

use std::env::{self, var, var_os};
use std::future::pending;
use std::io::{BufRead, BufReader, Lines, Write, stdin};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, setrlimit};
use soloist_elector::core::election::Purpose;
use soloist_elector::core::timings::Timings;
use soloist_elector::file::{FileStore, ProcessRef};
use soloist_elector::testing::held_by;
use soloist_elector::{Elector, LeaseStore, StoreError};

use crate::common::File;
use crate::common::election::{lead, name, quick};
use crate::create;

const LEASE: &str = "ELECTOR_TEST_LEASE";
const TASK: &str = "ELECTOR_TEST_TASK";
const GUARD: &str = "ELECTOR_TEST_GUARD";

/// So long that nobody waits for it to run out.
pub(crate) fn slow() -> Timings {
    let s = Duration::from_secs;
    Timings::try_new(s(600), s(450), s(5)).unwrap()
}

/// What it does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Task {
    /// Leads, with the process that is named as a guard's too, for as long as nobody waits.
    Lead { guard: Option<u32> },
    /// Leads with the shortest lease, once it is told to go on, and says so when it is lost.
    LeadOnce,
    /// Writes for ever.
    Write,
    /// Writes once, once it is told to go on, and says what came of it.
    WriteOnce,
    /// Writes once, when it may make no more threads.
    WriteWithoutThreads,
    /// Reads once, and says what came of it.
    Read,
}

impl Task {
    const fn name(self) -> &'static str {
        match self {
            Self::Lead { .. } => "lead",
            Self::LeadOnce => "lead once",
            Self::Write => "write",
            Self::WriteOnce => "write once",
            Self::WriteWithoutThreads => "write without threads",
            Self::Read => "read",
        }
    }
}

/// Not a test: the other process.
#[tokio::test]
async fn helper_process() {
    let Ok(path) = var(LEASE) else {
        return;
    };
    let store = FileStore::open(path).unwrap();
    match var(TASK).unwrap().as_str() {
        "lead" => lead_for_long(&store).await,
        "lead once" => lead_once(&store).await,
        "write" => write_for_ever(&store).await,
        "write once" => {
            wait_for_word();
            println!("outcome: {}", write_once(&store).await);
        }
        "write without threads" => {
            forbid_threads();
            create(&store).await;
            println!("wrote");
        }
        _ => println!("outcome: {:?}", store.read().await),
    }
}

async fn lead_for_long(store: &FileStore) {
    let elector = Elector::builder(store.clone())
        .identity(name("helper"))
        .timings(slow())
        .spawn()
        .unwrap();
    let _term = lead(&elector).await;
    if let Some(guard) = var_os(GUARD) {
        let guard = guard.to_str().unwrap().parse().unwrap();
        let guard = ProcessRef::of(guard).unwrap();
        let processes = vec![ProcessRef::this().unwrap(), guard];
        store.set_processes(processes).await.unwrap();
    }
    println!("leading");
    pending::<()>().await;
}

async fn lead_once(store: &FileStore) {
    let elector = Elector::builder(store.clone())
        .identity(name("helper"))
        .timings(quick())
        .spawn()
        .unwrap();
    let term = lead(&elector).await;
    wait_for_word();
    term.cancelled().await;
    println!("outcome: lost");
}

async fn write_for_ever(store: &FileStore) {
    let mut last = store.read().await.unwrap();
    for write in 0.. {
        let record = held_by("a", 1, write);
        last = store.write(&last, &record, Purpose::Renew).await.unwrap();
        println!("wrote {}", last.version);
    }
}

async fn write_once(store: &FileStore) -> String {
    let found = store.read().await.unwrap();
    let record = held_by("helper", 2, 1);
    match store.write(&found, &record, Purpose::Acquire).await {
        Ok(written) => written.version.to_string(),
        Err(StoreError::LostRace(_)) => "lost the race".into(),
        Err(other) => other.to_string(),
    }
}

/// So that whoever started it can do something to it first.
fn wait_for_word() {
    println!("ready");
    stdin().read_line(&mut String::new()).unwrap();
}

fn forbid_threads() {
    let most = Some(1);
    let none = Rlimit {
        current: most,
        maximum: most,
    };
    setrlimit(Resource::Nproc, none).unwrap();
    let another = std::thread::Builder::new().spawn(|| {});
    assert!(another.is_err(), "there must be no room for a thread");
}

/// The helper's program, run as another user. Only root can.
pub(crate) fn as_user(user: u32) -> Command {
    let mut command = Command::new("setpriv");
    command
        .arg(format!("--reuid={user}"))
        .arg(format!("--regid={user}"))
        .arg("--clear-groups")
        .arg(Helper::program().get_program());
    command
}

pub(crate) struct Helper {
    process: Child,
    words: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Helper {
    pub(crate) fn start(fixture: &File, task: Task) -> Self {
        Self::start_by(Self::program(), fixture, task)
    }

    /// For commands that run another one.
    pub(crate) fn start_by(mut command: Command, fixture: &File, task: Task) -> Self {
        command
            .args(["--exact", "helper::helper_process", "--nocapture"])
            .env(LEASE, fixture.path())
            .env(TASK, task.name())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if let Task::Lead { guard: Some(guard) } = task {
            command.env(GUARD, guard.to_string());
        }
        let mut process = command.spawn().unwrap();
        Self {
            words: process.stdin.take().unwrap(),
            lines: BufReader::new(process.stdout.take().unwrap()).lines(),
            process,
        }
    }

    pub(crate) fn program() -> Command {
        Command::new(env::current_exe().unwrap())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Waits until it says something with this word in it; `None` if it ends before.
    pub(crate) fn says(&mut self, word: &str) -> Option<String> {
        let mut lines = self.lines.by_ref().map_while(Result::ok);
        lines.find(|line| line.contains(word))
    }

    /// The same, if it has no reason to end.
    pub(crate) fn wait_for(mut self, word: &str) -> Self {
        assert!(self.says(word).is_some(), "the helper ended early");
        self
    }

    pub(crate) fn go_on(&mut self) {
        self.words.write_all(b"\n").unwrap();
    }

    /// What it says came of it; `None` if it was killed before.
    pub(crate) fn outcome(&mut self) -> Option<String> {
        let line = self.says("outcome: ")?;
        line.split_once("outcome: ")
            .map(|(_, text)| text.to_owned())
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
