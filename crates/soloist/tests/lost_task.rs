//! A whole soloist in which the task that watches the child's tree dies. No harness, because this very program is soloist as
//! well, with a log that panics at one line: nothing else makes the task fail on demand.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tracing::field::{Field, Visit};
use tracing::subscriber::set_default;
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

const PANICS_AT: &str = "SOLOIST_TEST_PANICS_AT";
const LIMIT: Duration = Duration::from_secs(30);
/// The child had to be killed.
const KILLED: i32 = 1;
/// Says who it is, one line for each start, and leaves somebody behind in a session of its own.
const CHILD: &str = r#"setsid sleep 1000 & echo $PPID $$ $! >>"$0"; exec sleep 1000"#;

fn main() -> ExitCode {
    let role = env::args().next().unwrap_or_default();
    if role.starts_with("soloist-guard") {
        return soloist::main();
    }
    if env::args().nth(1).as_deref() == Some("run") {
        let line = env::var(PANICS_AT).unwrap();
        let log = tracing_subscriber::registry()
            .with(tracing_subscriber::fmt::layer().with_writer(std::io::stderr))
            .with(PanicAt(line));
        // soloist's own log is for all threads, and this one, in which all tasks run, has one before it.
        let _log = set_default(log);
        return soloist::main();
    }
    a_task_that_dies_when_the_guard_does_ends_soloist_and_all_that_is_left();
    a_task_that_dies_while_it_kills_a_guard_that_hangs_ends_soloist_and_all_that_is_left();
    println!("lost_task: 2 passed, 0 failed");
    ExitCode::SUCCESS
}

fn a_task_that_dies_when_the_guard_does_ends_soloist_and_all_that_is_left() {
    let stage = Stage::new("the guard is gone; killing its tree");
    kill_process(stage.guard, Signal::KILL).unwrap();
    stage.assert_everything_ends();
}

fn a_task_that_dies_while_it_kills_a_guard_that_hangs_ends_soloist_and_all_that_is_left() {
    let stage = Stage::new("the guard does not answer");
    kill_process(stage.guard, Signal::STOP).unwrap();
    stage.assert_everything_ends();
}

/// Panics in whoever writes a line that begins so.
struct PanicAt(String);

impl<S: Subscriber> Layer<S> for PanicAt {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        assert!(
            !message.0.starts_with(&self.0),
            "this line cannot be written"
        );
    }
}

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

/// A soloist that leads, and its child.
struct Stage {
    folder: tempfile::TempDir,
    soloist: Child,
    guard: Pid,
    tree: [Pid; 2],
}

impl Stage {
    fn new(panics_at: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let starts = folder.path().join("starts");
        let log = fs::File::create(folder.path().join("log")).unwrap();
        let soloist = Command::new(env::current_exe().unwrap())
            .arg("run")
            .arg(format!(
                "--store=file:{}",
                folder.path().join("lease").display()
            ))
            .args([
                "--lease-duration=2s",
                "--renew-deadline=1400ms",
                "--retry-period=200ms",
            ])
            .args(["--", "sh", "-c", CHILD])
            .arg(&starts)
            .env(PANICS_AT, panics_at)
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let [guard, child, detached] = wait_for("the child's first line", || {
            let line = fs::read_to_string(&starts).ok()?;
            let pids = line.strip_suffix('\n')?.split(' ');
            let pids: Vec<_> = pids
                .map(|pid| Pid::from_raw(pid.parse().unwrap()).unwrap())
                .collect();
            Some(pids.try_into().expect("guard, child, detached"))
        });
        Self {
            folder,
            soloist,
            guard,
            tree: [child, detached],
        }
    }

    fn assert_everything_ends(mut self) {
        let status = wait_for("soloist's end", || self.soloist.try_wait().unwrap());
        let log = fs::read_to_string(self.folder.path().join("log")).unwrap();
        assert!(
            log.contains("the task that watched the child's tree has died"),
            "{log}"
        );
        assert_eq!(status.code(), Some(KILLED), "{log}");
        for process in self.tree.into_iter().chain([self.guard]) {
            assert!(!is_alive(process), "{process:?} is left: {log}");
        }
        let starts = fs::read_to_string(self.folder.path().join("starts")).unwrap();
        assert_eq!(starts.lines().count(), 1, "a second one was started: {log}");
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = self.soloist.kill();
        let _ = self.soloist.wait();
        if thread::panicking() {
            for process in self.tree.into_iter().chain([self.guard]) {
                let _ = kill_process(process, Signal::KILL);
            }
        }
    }
}

/// Zombies are dead: whoever inherits them need not have reaped them yet.
fn is_alive(pid: Pid) -> bool {
    let stat = Path::new("/proc").join(pid.to_string()).join("stat");
    let state = fs::read_to_string(stat).unwrap_or_default();
    test_kill_process(pid).is_ok() && !state.contains(") Z ")
}

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}
