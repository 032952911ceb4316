//! Children whose threads are blocked, as processes of their own: this very program, started again.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::convert::Infallible;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use soloist_worker::{Part, Worker};
use tokio::runtime::{Builder, Runtime};

/// Says which child we are.
const MARK: &str = "DEADLINE_TEST_CHILD";
const ENTRY: &str = "this_program_as_a_child";
const PATIENCE: Duration = Duration::from_secs(60);
/// Its time, from the signal on.
const STOP: Duration = Duration::from_secs(1);
const AT_WORK: &str = "at work";

#[test]
fn a_handler_that_blocks_its_thread_does_not_keep_the_child_past_its_deadline() {
    for kind in ["the-only-thread", "one-of-two-threads"] {
        let child = Blocked::start(kind);
        child.signal(Signal::TERM);
        let (status, log, took) = child.ended();
        assert_eq!(status.code(), Some(1), "{kind}: {log}");
        assert!(log.contains("SIGTERM: stopping within 1s"), "{kind}: {log}");
        assert!(
            log.contains("does a handler block its thread?"),
            "{kind}: {log}"
        );
        assert!(took >= STOP, "{kind}: it has its time: {took:?}");
    }
}

#[test]
fn a_second_signal_ends_a_blocked_child_without_its_time() {
    let child = Blocked::start("the-only-thread-for-long");
    child.signal(Signal::TERM);
    child.await_log("stopping within 16m40s");
    child.signal(Signal::INT);
    let (status, log, _) = child.ended();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("SIGINT once more"), "{log}");
}

#[test]
fn a_log_that_nobody_reads_does_not_keep_a_blocked_child() {
    let child = Blocked::start("with-a-full-log");
    child.signal(Signal::TERM);
    assert_eq!(child.ended_unheard().code(), Some(1));
}

#[test]
fn who_has_finished_in_order_may_take_its_time() {
    let child = Blocked::start("finished");
    let (status, log, took) = child.ended();
    assert!(status.success(), "{log}");
    assert!(took > STOP + Duration::from_secs(2), "{took:?}");
}

/// Killed when it is dropped.
struct Blocked {
    process: Child,
    log: Option<Receiver<String>>,
    heard: std::cell::RefCell<String>,
    begun: Instant,
}

impl Blocked {
    /// Returns when it is at work.
    fn start(kind: &str) -> Self {
        let seconds = match kind {
            "the-only-thread-for-long" => "1000",
            _ => "1",
        };
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", ENTRY, "--nocapture"]);
        command.env(MARK, kind).env_remove("NOTIFY_SOCKET");
        command.env("SOLOIST_STOP_SECONDS", seconds);
        command.env("SOLOIST_DRAIN_SECONDS", seconds);
        command.stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let output = lines(process.stdout.take().unwrap());
        let log = (kind != "with-a-full-log").then(|| lines(process.stderr.take().unwrap()));
        while !output.recv_timeout(PATIENCE).unwrap().ends_with(AT_WORK) {}
        Self {
            process,
            log,
            heard: Default::default(),
            begun: Instant::now(),
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    fn await_log(&self, text: &str) {
        let log = self.log.as_ref().unwrap();
        while !self.heard.borrow().contains(text) {
            let line = log.recv_timeout(PATIENCE).unwrap();
            *self.heard.borrow_mut() += &line;
        }
    }

    /// How, with which log, and how long after it was at work.
    fn ended(mut self) -> (ExitStatus, String, Duration) {
        let mut log = self.heard.take();
        while let Ok(line) = self.log.as_ref().unwrap().recv_timeout(PATIENCE) {
            log += &(line + "\n");
        }
        let status = self.wait();
        (status, log, self.begun.elapsed())
    }

    /// Its log is never read.
    fn ended_unheard(mut self) -> ExitStatus {
        self.wait()
    }

    fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "the child does not end");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // It may have ended.
        let _killed = self.process.kill();
        let _reaped = self.process.wait();
    }
}

fn lines(from: impl Read + Send + 'static) -> Receiver<String> {
    let (line, lines) = channel();
    thread::spawn(move || {
        for read in BufReader::new(from).lines().map_while(Result::ok) {
            if line.send(read).is_err() {
                return;
            }
        }
    });
    lines
}

/// No test of its own: what a [`Blocked`] runs.
#[test]
fn this_program_as_a_child() {
    let Some(kind) = std::env::var_os(MARK) else {
        return;
    };
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .init();
    let kind = kind.into_string().unwrap();
    let runtime = match kind.as_str() {
        "one-of-two-threads" => Runtime::new(),
        _ => Builder::new_current_thread().enable_all().build(),
    };
    let code = runtime.unwrap().block_on(work(kind));
    std::process::exit(i32::from(code != std::process::ExitCode::SUCCESS));
}

async fn work(kind: String) -> std::process::ExitCode {
    let worker = Worker::from_env().unwrap();
    if kind == "finished" {
        let code = worker.finish(Ok::<_, Infallible>(())).await;
        say_at_work();
        thread::sleep(STOP * 5);
        return code;
    }
    let blocks = Part::task("blocks", move |_| async move {
        if kind == "with-a-full-log" {
            thread::spawn(fill_the_log);
        }
        say_at_work();
        loop {
            thread::sleep(PATIENCE);
        }
        #[expect(unreachable_code, reason = "for the type")]
        Ok::<_, Infallible>(())
    });
    worker.run([blocks]).await
}

fn say_at_work() {
    let mut output = std::io::stdout();
    writeln!(output, "{AT_WORK}").unwrap();
    output.flush().unwrap();
}

/// Until the pipe has no room, and for as long as nobody reads it.
fn fill_the_log() {
    let mut log = std::io::stderr();
    while log.write_all(&[b'.'; 4096]).is_ok() {}
}
