//! What the children wrote themselves, one line each, on the one clock of the machine.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use soloist_core::time::Moment;
use soloist_elector::clock;

/// The last message is found in so many bytes from the end, or there was none.
const TAIL: u64 = 64 * 1024;

/// A child: a process in a replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Author {
    pub(super) replica: String,
    pub(super) pid: u32,
    pub(super) token: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Start,
    /// The message with this number.
    Handled(u64),
    /// In order.
    End,
    /// Another child held the lock that there is one of.
    FoundAnother,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) at: Moment,
    pub(super) author: Author,
    pub(super) event: Event,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Author {
            replica,
            pid,
            token,
        } = &self.author;
        let nanos = self.at.uptime().as_nanos();
        write!(f, "{nanos} {replica} {pid} {token} ")?;
        match self.event {
            Event::Start => write!(f, "start"),
            Event::Handled(number) => write!(f, "handled {number}"),
            Event::End => write!(f, "end"),
            Event::FoundAnother => write!(f, "found-another"),
        }
    }
}

impl Line {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let nanos = words.next()?.parse().ok()?;
        let author = Author {
            replica: words.next()?.to_owned(),
            pid: words.next()?.parse().ok()?,
            token: words.next()?.parse().ok()?,
        };
        let event = match words.next()? {
            "start" => Event::Start,
            "handled" => Event::Handled(words.next()?.parse().ok()?),
            "end" => Event::End,
            "found-another" => Event::FoundAnother,
            _ => return None,
        };
        Some(Self {
            at: Moment::since_boot(Duration::from_nanos(nanos)),
            author,
            event,
        })
    }
}

/// The child's side.
pub(super) struct Journal {
    file: File,
    author: Author,
}

impl Journal {
    pub(super) fn open(path: &Path, author: Author) -> io::Result<Self> {
        let file = File::options().append(true).create(true).open(path)?;
        Ok(Self { file, author })
    }

    /// One write, so that a line is there or is not, whoever is killed.
    pub(super) fn write(&self, event: Event) -> io::Result<()> {
        let line = Line {
            at: clock::now(),
            author: self.author.clone(),
            event,
        };
        (&self.file).write_all(format!("{line}\n").as_bytes())
    }
}

/// The number of the last message that any child has handled.
pub(super) fn last_handled(path: &Path) -> io::Result<u64> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let numbers = text.lines().rev().filter_map(Line::parse);
    let mut numbers = numbers.filter_map(|line| match line.event {
        Event::Handled(number) => Some(number),
        _ => None,
    });
    Ok(numbers.next().unwrap_or(0))
}

/// The other side: what is new since the last look.
pub(super) struct Reader {
    file: File,
    rest: String,
}

impl Reader {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        File::options().append(true).create(true).open(path)?;
        Ok(Self {
            file: File::open(path)?,
            rest: String::new(),
        })
    }

    /// A line that cannot be read is told as it is.
    pub(super) fn lines(&mut self) -> io::Result<Vec<Result<Line, String>>> {
        self.file.read_to_string(&mut self.rest)?;
        let Some(end) = self.rest.rfind('\n') else {
            return Ok(Vec::new());
        };
        let rest = self.rest.split_off(end + 1);
        let whole = std::mem::replace(&mut self.rest, rest);
        let read = |line: &str| Line::parse(line).ok_or_else(|| line.to_owned());
        Ok(whole.lines().map(read).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_child_writes_is_what_the_reader_reads() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let mut reader = Reader::open(&path).unwrap();
        let author = Author {
            replica: "a".into(),
            pid: 7,
            token: 3,
        };
        let journal = Journal::open(&path, author.clone()).unwrap();
        let events = [
            Event::Start,
            Event::Handled(41),
            Event::FoundAnother,
            Event::End,
        ];
        for event in events {
            journal.write(event).unwrap();
        }
        let lines: Vec<Line> = reader.lines().unwrap().into_iter().flatten().collect();
        assert!(lines.iter().all(|line| line.author == author), "{lines:?}");
        let read: Vec<Event> = lines.iter().map(|line| line.event).collect();
        assert_eq!(read, events);
        assert_eq!(last_handled(&path).unwrap(), 41);
        assert!(reader.lines().unwrap().is_empty());
    }
}
