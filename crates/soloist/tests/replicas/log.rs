//! A log that cannot be written: nobody reads it, its reader is gone, or it would have to be waited for.

use std::fs::File;
use std::io::{ErrorKind, PipeReader, PipeWriter, Read, Write, pipe};
use std::os::unix::net::UnixDatagram;
use std::process::Command;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::pipe::fcntl_setpipe_size;
use rustix::process::Signal;

use crate::harness::{CHILD, Group, LIMIT, lease, send};
use crate::notify;

/// A pipe that takes nothing more.
fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().unwrap();
    fcntl_setpipe_size(&writer, 4096).unwrap();
    set_nonblocking(&writer, true);
    loop {
        match writer.write(&[b'.'; 64]) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => panic!("{error}"),
        }
    }
    set_nonblocking(&writer, false);
    (reader, writer)
}

fn set_nonblocking(pipe: &PipeWriter, yes: bool) {
    let mut flags = fcntl_getfl(pipe).unwrap();
    flags.set(OFlags::NONBLOCK, yes);
    fcntl_setfl(pipe, flags).unwrap();
}

/// A replica with this log. Its child's standard error is the same.
fn with_log(group: &mut Group, flags: &[&str], plan: &[&str], log: PipeWriter) -> usize {
    let mut command: Command = group.soloist("r0", flags);
    command.arg("--").arg(CHILD).arg(group.path("")).args(plan);
    group.spawn_as_it_is("r0", command.stderr(log))
}

/// All that comes out of a pipe.
struct Lines {
    parts: mpsc::Receiver<Vec<u8>>,
    text: String,
}

impl Lines {
    fn of(mut reader: PipeReader) -> Self {
        let (sender, parts) = mpsc::channel();
        thread::spawn(move || {
            let mut part = [0; 65536];
            while let Ok(read @ 1..) = reader.read(&mut part) {
                let _ = sender.send(part[..read].to_vec());
            }
        });
        Self {
            parts,
            text: String::new(),
        }
    }

    /// Everything so far, once this is among it.
    fn wait(&mut self, wanted: &str) -> &str {
        let begun = Instant::now();
        while !self.text.contains(wanted) {
            let left = LIMIT.saturating_sub(begun.elapsed());
            let part = self.parts.recv_timeout(left);
            let part = part.unwrap_or_else(|_| panic!("{wanted:?} was not logged"));
            self.text.push_str(&String::from_utf8_lossy(&part));
        }
        &self.text
    }
}

#[test]
fn a_log_that_nobody_reads_stops_nobody_and_what_was_lost_is_told() {
    let mut group = Group::with(&["--grace-period", "20s"]);
    let (reader, writer) = full_pipe();
    let flags = ["--log-level", "debug", "--log-status", "100ms"];
    let replica = with_log(&mut group, &flags, &["env"], writer);
    let child = group.wait_start("r0");
    // Each is a line, for we are not the child.
    let stranger = UnixDatagram::unbound().unwrap();
    stranger.connect(notify::socket(&group)).unwrap();
    (0..20_000).for_each(|_| assert!(stranger.send(b"READY=1").is_ok()));
    // Long enough for the lease to end, had it not been renewed.
    thread::sleep(lease() * 3 / 2);
    let running = group.running();
    assert!(running.is_some_and(|running| running.pid == child.pid));
    let mut lines = Lines::of(reader);
    let lost = "lines of the log could not be written";
    // At the end there is little time left for what waits.
    lines.wait(lost);
    group.replica(replica).signal(Signal::TERM);
    let text = lines.wait("exiting");
    let told = text.lines().filter(|line| line.contains(lost));
    let counts = told.flat_map(|line| line.split_whitespace());
    let counts = counts.filter_map(|word| word.strip_prefix("lines="));
    let many: u64 = counts.map(|count| count.parse::<u64>().unwrap()).sum();
    let said = text.matches("is not believed").count() as u64;
    assert!(said > 0, "what there was room for is written later");
    assert!(said + many >= 20_000, "{said} written, {many} lost");
    assert_eq!(group.replica(replica).exit_code(), 0);
}

#[test]
fn a_log_that_nobody_reads_holds_up_the_end_for_a_bounded_time_only() {
    let mut group = Group::with(&["--grace-period", "20s"]);
    let (_reader, writer) = full_pipe();
    let replica = with_log(&mut group, &[], &[], writer);
    group.wait_start("r0");
    group.replica(replica).signal(Signal::TERM);
    group.wait_event("drained", "r0");
    let ended = Instant::now();
    assert_eq!(group.replica(replica).exit_code(), 0);
    assert!(
        ended.elapsed() < Duration::from_secs(4),
        "{:?}",
        ended.elapsed()
    );
}

#[test]
fn a_log_that_would_have_to_be_waited_for_is_written_when_there_is_room() {
    let mut group = Group::with(&["--grace-period", "20s"]);
    let (reader, writer) = full_pipe();
    set_nonblocking(&writer, true);
    let replica = with_log(&mut group, &[], &[], writer);
    group.wait_start("r0");
    let mut lines = Lines::of(reader);
    let text = lines.wait("the child has started");
    assert!(text.contains("elected"), "{text}");
    assert!(!text.contains("could not be written"), "{text}");
    group.replica(replica).signal(Signal::TERM);
    assert_eq!(group.replica(replica).exit_code(), 0);
}

#[test]
fn a_log_whose_reader_is_gone_stops_nobody_and_makes_no_second_tree() {
    let mut group = Group::new();
    let (reader, writer) = pipe().unwrap();
    drop(reader);
    let flags = ["--log-level", "warn"];
    let replica = with_log(&mut group, &flags, &["daemon", "deaf"], writer);
    for round in 1..4 {
        let starts = group.wait_many("start", round);
        let child = &starts[round - 1];
        group.wait_many("detached", round);
        send(child.guard().unwrap(), Signal::KILL);
        child.wait_dead();
    }
    // The next child would find the lock taken, had one of the old tree been left.
    group.wait_many("start", 4);
    assert!(!group.replica(replica).has_ended());
}

#[test]
fn a_log_on_a_full_disk_stops_nobody() {
    let mut group = Group::with(&["--grace-period", "20s"]);
    let mut command = group.soloist("r0", &[]);
    command.arg("--").arg(CHILD).arg(group.path(""));
    let full = File::options().write(true).open("/dev/full").unwrap();
    let replica = group.spawn_as_it_is("r0", command.stderr(full));
    group.wait_start("r0");
    group.replica(replica).signal(Signal::TERM);
    assert_eq!(group.replica(replica).exit_code(), 0);
}
