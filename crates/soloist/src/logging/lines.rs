//! Lines on their way to standard error: a bounded queue, and a thread of its own that writes them.
//!
//! Whoever logs never waits. A reader that stalls, or is gone, or a disk that is full costs lines; how many is told in their
//! place, as soon as something can be written again.

use std::collections::VecDeque;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use jiff::Timestamp;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tracing_subscriber::fmt::MakeWriter;

use crate::cli::LogFormat;

/// So much waits at most.
const MOST_BYTES: usize = 1 << 20;
/// At the end, this long.
const FLUSH_LIMIT: Duration = Duration::from_secs(1);
/// All that the thread needs.
const STACK: usize = 64 << 10;

/// Where lines are put. Clones share it.
#[derive(Clone)]
pub(super) struct Lines(Arc<Shared>);

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    dropped: AtomicU64,
}

/// How many lines could not be written so far.
#[derive(Clone)]
pub(crate) struct DroppedLines(Arc<Shared>);

impl DroppedLines {
    /// Of no log.
    #[cfg(test)]
    pub(crate) fn none() -> Self {
        Self(Arc::default())
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.dropped.load(Ordering::Relaxed)
    }
}

#[derive(Default)]
struct Queue {
    entries: VecDeque<Entry>,
    bytes: usize,
    /// Lines for which there was no room, since the last one for which there was.
    lost: u64,
    writing: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Entry {
    Line(Vec<u8>),
    /// So many are missing here.
    Lost(u64),
}

impl Queue {
    /// Whether there was room for it.
    fn push(&mut self, line: &[u8]) -> bool {
        if self.bytes + line.len() > MOST_BYTES {
            self.lost += 1;
            return false;
        }
        self.push_lost();
        self.bytes += line.len();
        self.entries.push_back(Entry::Line(line.to_vec()));
        true
    }

    fn push_lost(&mut self) {
        match std::mem::take(&mut self.lost) {
            0 => {}
            lost => self.entries.push_back(Entry::Lost(lost)),
        }
    }

    fn pop(&mut self) -> Option<Entry> {
        let entry = self.entries.pop_front()?;
        if let Entry::Line(line) = &entry {
            self.bytes -= line.len();
        }
        Some(entry)
    }
}

impl Lines {
    pub(super) fn start(format: LogFormat) -> io::Result<Self> {
        let lines = Self(Arc::default());
        let shared = Arc::clone(&lines.0);
        thread::Builder::new()
            .name("log".into())
            .stack_size(STACK)
            .spawn(move || {
                let mut writer = Writer::new(rustix::stdio::stderr(), format);
                loop {
                    if !writer.write(shared.take()) {
                        shared.dropped.fetch_add(1, Ordering::Relaxed);
                    }
                }
            })?;
        Ok(lines)
    }

    pub(super) fn dropped(&self) -> DroppedLines {
        DroppedLines(Arc::clone(&self.0))
    }

    /// Waits until all is written, but not for long.
    pub(super) fn flush(&self) {
        let mut queue = self.0.lock();
        queue.push_lost();
        self.0.changed.notify_all();
        let unwritten = |queue: &mut Queue| queue.writing || !queue.entries.is_empty();
        let _ = self
            .0
            .changed
            .wait_timeout_while(queue, FLUSH_LIMIT, unwritten);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next one; the one before has been dealt with.
    fn take(&self) -> Entry {
        let mut queue = self.lock();
        queue.writing = false;
        loop {
            if let Some(entry) = queue.pop() {
                queue.writing = true;
                return entry;
            }
            self.changed.notify_all();
            let woken = self.changed.wait(queue);
            queue = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = &'a Lines;

    fn make_writer(&'a self) -> Self::Writer {
        self
    }
}

impl io::Write for &Lines {
    /// A line as a whole.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if !self.0.lock().push(line) {
            self.0.dropped.fetch_add(1, Ordering::Relaxed);
        }
        self.0.changed.notify_all();
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes lines where they belong, and counts those that it could not.
struct Writer<F> {
    out: F,
    format: LogFormat,
    lost: u64,
    /// The last line was cut short.
    cut: bool,
}

impl<F: AsFd> Writer<F> {
    fn new(out: F, format: LogFormat) -> Self {
        Self {
            out,
            format,
            lost: 0,
            cut: false,
        }
    }

    /// Whether a line, if it was one, is written.
    fn write(&mut self, entry: Entry) -> bool {
        if let Entry::Lost(lost) = entry {
            self.lost += lost;
        }
        if self.lost > 0 {
            let told = missing(self.format, self.lost);
            if self.write_line(told.as_bytes()).is_ok() {
                self.lost = 0;
            }
        }
        if let Entry::Line(line) = entry
            && self.write_line(&line).is_err()
        {
            self.lost += 1;
            return false;
        }
        true
    }

    fn write_line(&mut self, line: &[u8]) -> Result<(), Errno> {
        if self.cut {
            write_all(&self.out, b"\n").map_err(|(_, errno)| errno)?;
            self.cut = false;
        }
        write_all(&self.out, line).map_err(|(written, errno)| {
            self.cut = written > 0;
            errno
        })
    }
}

/// Takes as long as it takes; if it fails, how much has been written.
fn write_all(out: &impl AsFd, mut bytes: &[u8]) -> Result<(), (usize, Errno)> {
    let whole = bytes.len();
    while !bytes.is_empty() {
        match rustix::io::write(out, bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let _ = poll(&mut [PollFd::new(out, PollFlags::OUT)], None);
            }
            Err(errno) => return Err((whole - bytes.len(), errno)),
        }
    }
    Ok(())
}

/// As the subscriber would write it.
fn missing(format: LogFormat, lines: u64) -> String {
    let now = Timestamp::now();
    let message = "lines of the log could not be written";
    match format {
        LogFormat::Text => format!("{now:.6}  WARN {message} lines={lines}\n"),
        LogFormat::Json => format!(
            "{{\"timestamp\":\"{now:.6}\",\"level\":\"WARN\",\"message\":\"{message}\",\"lines\":{lines}}}\n"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{PipeReader, Read, pipe};

    use super::*;

    fn line(text: &str) -> Entry {
        Entry::Line(text.as_bytes().to_vec())
    }

    #[test]
    fn what_there_is_no_room_for_is_counted_where_it_is_missing() {
        let mut queue = Queue::default();
        let long = vec![b'x'; MOST_BYTES];
        queue.push(&long);
        queue.push(b"a");
        queue.push(b"b");
        assert_eq!(queue.pop(), Some(Entry::Line(long)));
        queue.push(b"c");
        assert_eq!(queue.pop(), Some(Entry::Lost(2)));
        assert_eq!(queue.pop(), Some(line("c")));
        assert_eq!(queue.pop(), None);
        assert_eq!(queue.bytes, 0);
    }

    #[test]
    fn lines_that_were_dropped_are_counted_for_ever() {
        use std::io::Write;
        // Nobody writes them out.
        let lines = Lines(Arc::default());
        let dropped = lines.dropped();
        (&lines).write_all(&vec![b'x'; MOST_BYTES]).unwrap();
        assert_eq!(dropped.count(), 0);
        (&lines).write_all(b"a").unwrap();
        (&lines).write_all(b"b").unwrap();
        assert_eq!(dropped.count(), 2);
        lines.0.lock().pop();
        (&lines).write_all(b"c").unwrap();
        assert_eq!(dropped.count(), 2);
    }

    fn written(mut reader: PipeReader) -> String {
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn what_could_not_be_written_is_told_when_something_can_be() {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut writer = Writer::new(full, LogFormat::Text);
        writer.write(line("a\n"));
        writer.write(Entry::Lost(2));
        writer.write(line("b\n"));
        assert_eq!(writer.lost, 4);
        let (reader, pipe) = pipe().unwrap();
        let mut writer = Writer {
            out: pipe,
            format: LogFormat::Json,
            lost: writer.lost,
            cut: true,
        };
        writer.write(line("c\n"));
        writer.write(line("d\n"));
        drop(writer);
        let text = written(reader);
        let lines: Vec<_> = text.lines().collect();
        let ["", told, "c", "d"] = lines[..] else {
            panic!("{lines:?}");
        };
        assert!(told.starts_with("{\"timestamp\":\"2"), "{told}");
        assert!(told.ends_with("\"lines\":4}"), "{told}");
    }

    #[test]
    fn a_reader_that_is_gone_costs_the_line_and_nothing_else() {
        let (reader, pipe) = pipe().unwrap();
        drop(reader);
        let mut writer = Writer::new(pipe, LogFormat::Text);
        writer.write(line("a\n"));
        assert_eq!((writer.lost, writer.cut), (1, false));
    }
}
