//! What was found, for people.

use std::fmt;

use soloist_worker::{Term, Token};

use super::{Fault, Finding, Report, Span};

impl Report {
    /// As many findings are kept; the others are counted.
    pub const MAX_FINDINGS: usize = 1000;
    /// As many are written out.
    const SHOWN: usize = 5;

    /// Whether every message stands there once, in order and as it should be.
    #[must_use]
    pub const fn is_right(&self) -> bool {
        self.total_findings == 0
    }

    pub(super) fn add(&mut self, line: u64, fault: Fault) {
        self.total_findings += 1;
        if self.findings.len() < Self::MAX_FINDINGS {
            self.findings.push(Finding { line, fault });
        }
    }

    /// Puts a finding before the others of its line.
    pub(super) fn insert(&mut self, line: u64, fault: Fault) {
        self.total_findings += 1;
        let at = self.findings.partition_point(|found| found.line < line);
        if at < Self::MAX_FINDINGS {
            self.findings.insert(at, Finding { line, fault });
            self.findings.truncate(Self::MAX_FINDINGS);
        }
    }

    pub(super) fn add_to_spans(&mut self, position: u64, token: Token, term: Term) {
        match self.spans.last_mut() {
            Some(span)
                if (span.token, span.term) == (token, term)
                    && span.last.checked_add(1) == Some(position) =>
            {
                span.last = position;
            }
            _ => self.spans.push(Span {
                term,
                token,
                first: position,
                last: position,
            }),
        }
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, last, .. } = self;
        let (term, token) = (self.term.get(), self.token.get());
        write!(f, "term {term} (token {token}): {first} to {last}")
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.fault)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for span in &self.spans {
            writeln!(f, "{span}")?;
        }
        for finding in self.findings.iter().take(Self::SHOWN) {
            writeln!(f, "{finding}")?;
        }
        match (self.total_findings, self.last) {
            (0, 0) => write!(f, "right: there is no message"),
            (0, last) => write!(f, "right: every message from 1 to {last} once, in order"),
            (1, _) => write!(f, "wrong: 1 finding in {} lines", self.lines),
            (total, _) => write!(f, "wrong: {total} findings in {} lines", self.lines),
        }
    }
}
