//! Reads an output and says whether every message stands in it once, in order and with the right payload.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::Path;

use soloist_worker::{Term, Token};

use crate::output::{Line, LineError};
use crate::payload;
use missing::Missing;

mod missing;
mod report;

/// What an output holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Whole lines that can be read.
    pub lines: u64,
    /// The highest position; 0 if there is none.
    pub last: u64,
    /// Which positions were written in which term, in the order of the file.
    pub spans: Vec<Span>,
    /// What is wrong, in the order of the file: the first [`Report::MAX_FINDINGS`].
    pub findings: Vec<Finding>,
    /// How many findings there are in all.
    pub total_findings: u64,
}

/// Consecutive positions of one term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The term.
    pub term: Term,
    /// Its token.
    pub token: Token,
    /// The first position.
    pub first: u64,
    /// The last position.
    pub last: u64,
}

/// Something wrong, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The line's number, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub fault: Fault,
}

/// What can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The file ends in the middle of a line.
    #[error("the last line is torn: it has no newline at its end")]
    Torn,
    /// No line of an output.
    #[error("the line cannot be read: {0}")]
    Unreadable(#[from] LineError),
    /// The position stands in an earlier line.
    #[error("the message at {0} stands there a second time")]
    Duplicate(u64),
    /// Positions that stand nowhere; noticed in this line.
    #[error("{} before this line", missing_text(*first, *last))]
    Gap {
        /// The first of them.
        first: u64,
        /// The last of them.
        last: u64,
    },
    /// The position stands nowhere else, but should stand earlier.
    #[error("the message at {position} stands after the one at {after}")]
    OutOfOrder {
        /// This line's.
        position: u64,
        /// The highest in the lines before.
        after: u64,
    },
    /// Not the bytes of this position.
    #[error("the message at {0} has a wrong payload")]
    WrongPayload(u64),
    /// The token is lower than one in an earlier line.
    #[error("the message at {position} bears the token {token}, after one of token {highest}")]
    TokenBack {
        /// This line's position.
        position: u64,
        /// Its token.
        token: Token,
        /// The highest in the lines before.
        highest: Token,
    },
    /// The file ends too early.
    #[error("{} at the end", missing_text(*first, *last))]
    Short {
        /// The first position that should follow.
        first: u64,
        /// The last that was asked for.
        last: u64,
    },
}

fn missing_text(first: u64, last: u64) -> String {
    if first == last {
        format!("the message at {first} is missing")
    } else {
        format!("the messages at {first} to {last} are missing")
    }
}

/// Reads an output file. `messages` is the last position that must be there; without it, the last that is there.
///
/// # Errors
/// When the file cannot be read.
pub fn file(path: &Path, seed: u64, messages: Option<u64>) -> io::Result<Report> {
    const BUFFER: usize = 1 << 20;
    let file = File::open(path)?;
    read(BufReader::with_capacity(BUFFER, file), seed, messages)
}

/// As [`file()`], from any source.
///
/// # Errors
/// When it cannot be read.
pub fn read(mut source: impl BufRead, seed: u64, messages: Option<u64>) -> io::Result<Report> {
    let mut reading = Reading::new(seed);
    let mut line = Vec::new();
    let mut number = 0;
    while source.read_until(b'\n', &mut line)? > 0 {
        number += 1;
        match line.strip_suffix(b"\n") {
            Some(line) => reading.take(number, line),
            None => reading.report.add(number, Fault::Torn),
        }
        line.clear();
    }
    Ok(reading.end(number, messages))
}

struct Reading {
    seed: u64,
    report: Report,
    missing: Missing,
    highest: Token,
}

impl Reading {
    fn new(seed: u64) -> Self {
        Self {
            seed,
            report: Report::default(),
            missing: Missing::default(),
            highest: Token::new(0),
        }
    }

    fn take(&mut self, number: u64, line: &[u8]) {
        let line = match Line::parse(line) {
            Ok(line) => line,
            Err(error) => return self.report.add(number, error.into()),
        };
        let position = line.position;
        self.report.lines += 1;
        self.place(number, position);
        if !payload::is_right(self.seed, position, &line.payload) {
            self.report.add(number, Fault::WrongPayload(position));
        }
        let (token, highest) = (line.token, self.highest);
        if token < highest {
            let fault = Fault::TokenBack {
                position,
                token,
                highest,
            };
            self.report.add(number, fault);
        }
        self.highest = highest.max(token);
        self.report.add_to_spans(position, token, line.term);
    }

    fn place(&mut self, number: u64, position: u64) {
        let after = self.report.last;
        if position > after {
            if position - after > 1 {
                self.missing.add(after + 1, position - 1, number);
            }
            self.report.last = position;
        } else if self.missing.remove(position) {
            let fault = Fault::OutOfOrder { position, after };
            self.report.add(number, fault);
        } else {
            // Also the position 0, which no message has: its payload would be wrong as well.
            self.report.add(number, Fault::Duplicate(position));
        }
    }

    fn end(mut self, lines: u64, messages: Option<u64>) -> Report {
        let last = self.report.last;
        // Only now: what seemed to be missing may have stood further on.
        for (first, last, line) in self.missing.ranges() {
            self.report.insert(line, Fault::Gap { first, last });
        }
        if let Some(messages) = messages.filter(|&messages| messages > last) {
            let (first, last) = (last + 1, messages);
            self.report.add(lines, Fault::Short { first, last });
        }
        self.report
    }
}

#[cfg(test)]
mod tests;
