//! What people read.

use std::fmt;

use crate::judge::{Judged, Tally, Verdict};
use crate::patch::Mutant;

/// The list of all mutants.
pub(crate) struct List<'a>(pub(crate) &'a [Mutant]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for mutant in self.0 {
            let Mutant {
                name, rule, what, ..
            } = mutant;
            writeln!(f, "{name} (rule {rule}): {what}")?;
        }
        Ok(())
    }
}

/// The table of all verdicts.
pub(crate) struct Table<'a>(pub(crate) &'a [Judged]);

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width =
            |of: fn(&Judged) -> usize, least| self.0.iter().map(of).max().unwrap_or(0).max(least);
        let name = width(|j| j.mutant.name.len(), 6);
        let rule = width(|j| j.mutant.rule.len(), 4);
        let expected = width(|j| j.mutant.found_as.join(" | ").len(), 8);
        let found = width(|j| found_as(&j.verdict).len(), 8);
        writeln!(
            f,
            "{:<name$}  {:<rule$}  {:<expected$}  {:<found$}  {:>6}  {:>7}  before that",
            "mutant", "rule", "expected", "found as", "seeds", "build"
        )?;
        for judged in self.0 {
            writeln!(
                f,
                "{:<name$}  {:<rule$}  {:<expected$}  {:<found$}  {:>6}  {:>5.1} s  {}",
                judged.mutant.name,
                judged.mutant.rule,
                judged.mutant.found_as.join(" | "),
                found_as(&judged.verdict),
                seeds(&judged.verdict),
                judged.build.as_secs_f64(),
                others(&judged.verdict),
            )?;
        }
        Ok(())
    }
}

/// One verdict as a line of its own; why, if it failed.
pub(crate) struct Line<'a>(pub(crate) &'a Judged);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mutant {
            name,
            what,
            found_as,
            ..
        } = &self.0.mutant;
        match &self.0.verdict {
            Verdict::Found { by, .. } => write!(f, "{name}: {} (seed {})", by.name, by.seed),
            Verdict::FoundByTest(test) => write!(f, "{name}: test {test}"),
            Verdict::NotFound { others } => {
                let expected = found_as.join(" | ");
                write!(
                    f,
                    "{name}: NOT FOUND as {expected}; seen: {}\n  {what}",
                    tallies(others)
                )
            }
            Verdict::Stale(why) => write!(f, "{name}: STALE: {why}"),
            Verdict::DoesNotCompile(words) => write!(f, "{name}: DOES NOT COMPILE\n{words}"),
        }
    }
}

fn found_as(verdict: &Verdict) -> &str {
    match verdict {
        Verdict::Found { by, .. } => &by.name,
        Verdict::FoundByTest(_) => "that test",
        Verdict::NotFound { .. } => "NOT FOUND",
        Verdict::Stale(_) => "STALE",
        Verdict::DoesNotCompile(_) => "DOES NOT COMPILE",
    }
}

fn seeds(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Found { by, .. } => (by.seed + 1).to_string(),
        Verdict::FoundByTest(_)
        | Verdict::NotFound { .. }
        | Verdict::Stale(_)
        | Verdict::DoesNotCompile(_) => "-".to_owned(),
    }
}

fn others(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Found { others, .. } | Verdict::NotFound { others } if !others.is_empty() => {
            tallies(others)
        }
        Verdict::Found { .. }
        | Verdict::FoundByTest(_)
        | Verdict::NotFound { .. }
        | Verdict::Stale(_)
        | Verdict::DoesNotCompile(_) => String::new(),
    }
}

fn tallies(tallies: &[Tally]) -> String {
    if tallies.is_empty() {
        return "nothing".to_owned();
    }
    let each = tallies.iter().map(|t| format!("{} x{}", t.name, t.times));
    each.collect::<Vec<_>>().join(", ")
}
