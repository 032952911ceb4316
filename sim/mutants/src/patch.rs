//! A mutant as a text file: which rule it breaks, how the simulator must find it, and what to replace.
//!
//! ```text
//! # Anything that a reader should know.
//! rule: 4
//! what: a candidate counts its own duration instead of the record's
//! found as: overlap
//!
//! file: crates/core/src/record.rs
//! --- find
//!         written.max(signed)
//! --- replace
//!         signed
//! --- end
//! ```
//!
//! `found as` is the name of a violation as the simulator's `Violation::name` gives it; `a | b` where two names are the same
//! finding. `found as: test NAME` is for what schedules reach too rarely: the test of that rule must find it. A file may have several edits, and a mutant several files. The text to find is whole lines, and must be
//! in its file exactly once: else the code has moved on, and the mutant says nothing any more.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};

/// One rule, broken on purpose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mutant {
    /// The file's name.
    pub(crate) name: String,
    /// The rule's number in `docs/safety.md`, or what it belongs to.
    pub(crate) rule: String,
    /// What is broken, for people.
    pub(crate) what: String,
    /// The names of the violations that count as having found it.
    pub(crate) found_as: Vec<String>,
    /// What to replace. At least one.
    pub(crate) edits: Vec<Edit>,
}

/// One piece of text in the place of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edit {
    /// From the root of the workspace.
    pub(crate) file: PathBuf,
    find: String,
    replace: String,
}

impl Mutant {
    /// All mutants of a folder, by rule and name.
    pub(crate) fn read_all(folder: &Path) -> Result<Vec<Self>> {
        let mut mutants = Vec::new();
        let entries = std::fs::read_dir(folder)
            .with_context(|| format!("cannot read {}", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_some_and(|e| e == "mutant") {
                let name = path.file_stem().unwrap_or_default().to_string_lossy();
                let text = std::fs::read_to_string(&path)
                    .with_context(|| format!("cannot read {}", path.display()))?;
                let mutant = Self::parse(&name, &text).with_context(|| format!("mutant {name}"))?;
                mutants.push(mutant);
            }
        }
        mutants.sort_by(|a, b| a.order().cmp(&b.order()));
        Ok(mutants)
    }

    /// Sorts by rule: first those with a number.
    pub(crate) fn order(&self) -> impl Ord {
        let number = self.rule.parse::<u32>().unwrap_or(u32::MAX);
        (number, &self.rule, &self.name)
    }

    /// The test that must find it, if it is not the simulator.
    pub(crate) fn test(&self) -> Option<&str> {
        match &self.found_as[..] {
            [only] => only.strip_prefix("test "),
            _ => None,
        }
    }

    fn parse(name: &str, text: &str) -> Result<Self> {
        let mut lines = Lines::new(text);
        let (mut rule, mut what, mut found_as) = (None, None, None);
        let mut file: Option<PathBuf> = None;
        let mut edits = Vec::new();
        while let Some((number, line)) = lines.next() {
            let field = line
                .split_once(": ")
                .map(|(key, value)| (key, value.trim()));
            match (line, field) {
                (line, _) if line.trim().is_empty() || line.starts_with('#') => {}
                ("--- find", _) => edits.push(Edit {
                    file: file
                        .clone()
                        .with_context(|| format!("line {number}: no file was named"))?,
                    find: lines.until("--- replace")?,
                    replace: lines.until("--- end")?,
                }),
                (_, Some(("file", path))) => file = Some(path.into()),
                (_, Some(("rule", value))) if rule.is_none() => rule = Some(value.to_owned()),
                (_, Some(("what", value))) if what.is_none() => what = Some(value.to_owned()),
                (_, Some(("found as", value))) if found_as.is_none() => {
                    found_as = Some(value.split('|').map(|n| n.trim().to_owned()).collect());
                }
                _ => bail!("line {number}: \"{line}\" is no part of a mutant"),
            }
        }
        ensure!(!edits.is_empty(), "it replaces nothing");
        ensure!(
            edits.iter().all(|e| !e.find.is_empty()),
            "it does not say what to replace"
        );
        Ok(Self {
            name: name.to_owned(),
            rule: rule.ok_or_else(|| anyhow!("no \"rule: \""))?,
            what: what.ok_or_else(|| anyhow!("no \"what: \""))?,
            found_as: found_as.ok_or_else(|| anyhow!("no \"found as: \""))?,
            edits,
        })
    }
}

impl Edit {
    /// The text with this edit made.
    ///
    /// # Errors
    /// When it is not clear where, or nothing would change.
    pub(crate) fn apply(&self, text: &str) -> Result<String> {
        let file = self.file.display();
        ensure!(self.find != self.replace, "{file}: it changes nothing");
        let begins_a_line = |at: &usize| *at == 0 || text[..*at].ends_with('\n');
        let places: Vec<_> = text
            .match_indices(&self.find)
            .map(|(at, _)| at)
            .filter(begins_a_line)
            .collect();
        match places[..] {
            [at] => {
                let (before, rest) = text.split_at(at);
                Ok(format!(
                    "{before}{}{}",
                    self.replace,
                    &rest[self.find.len()..]
                ))
            }
            [] => bail!("{file}: not there any more:\n{}", self.find),
            _ => bail!("{file}: there {} times:\n{}", places.len(), self.find),
        }
    }
}

/// Lines with their numbers.
struct Lines<'a>(std::iter::Enumerate<std::str::Lines<'a>>);

impl<'a> Lines<'a> {
    fn new(text: &'a str) -> Self {
        Self(text.lines().enumerate())
    }

    fn next(&mut self) -> Option<(usize, &'a str)> {
        self.0.next().map(|(n, line)| (n + 1, line))
    }

    /// What stands before this line, as whole lines.
    fn until(&mut self, end: &str) -> Result<String> {
        let mut text = String::new();
        while let Some((number, line)) = self.next() {
            if line == end {
                return Ok(text);
            }
            ensure!(
                !line.starts_with("--- "),
                "line {number}: \"{line}\" where \"{end}\" should come first"
            );
            text.push_str(line);
            text.push('\n');
        }
        bail!("no \"{end}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "\
# A remark.
rule: 4
what: a candidate counts too short: by half
found as: overlap | token did not grow

file: crates/core/src/record.rs
--- find
        whole
--- replace
        half
--- end
--- find
    gone
--- replace
--- end

file: sim/src/clock.rs
--- find
# not a remark
--- replace
file: not a field
--- end
";

    fn parse(text: &str) -> Result<Mutant> {
        Mutant::parse("short", text)
    }

    fn edit(find: &str, replace: &str) -> Edit {
        Edit {
            file: "crates/core/src/record.rs".into(),
            find: find.to_owned(),
            replace: replace.to_owned(),
        }
    }

    fn error(text: &str) -> String {
        parse(text).unwrap_err().to_string()
    }

    #[test]
    fn a_mutant_is_read_as_it_is_written() {
        let mutant = parse(WHOLE).unwrap();
        assert_eq!(mutant.name, "short");
        assert_eq!(mutant.rule, "4");
        assert_eq!(mutant.what, "a candidate counts too short: by half");
        assert_eq!(mutant.found_as, ["overlap", "token did not grow"]);
        assert_eq!(mutant.edits.len(), 3);
        assert_eq!(mutant.edits[0], edit("        whole\n", "        half\n"));
        assert_eq!(mutant.edits[1], edit("    gone\n", ""));
        assert_eq!(mutant.edits[2].file, Path::new("sim/src/clock.rs"));
        assert_eq!(mutant.edits[2].find, "# not a remark\n");
        assert_eq!(mutant.edits[2].replace, "file: not a field\n");
    }

    #[test]
    fn what_a_test_must_find_names_the_test() {
        assert_eq!(parse(WHOLE).unwrap().test(), None);
        let by_test = WHOLE.replace("overlap | token did not grow", "test row_3");
        assert_eq!(parse(&by_test).unwrap().test(), Some("row_3"));
    }

    #[test]
    fn what_is_missing_or_unknown_is_named() {
        assert_eq!(error(&WHOLE.replace("rule: 4\n", "")), "no \"rule: \"");
        assert_eq!(
            error(&WHOLE.replace("rule: 4", "rule 4")),
            "line 2: \"rule 4\" is no part of a mutant"
        );
        assert_eq!(
            error(&WHOLE.replace("what:", "rule:")),
            "line 3: \"rule: a candidate counts too short: by half\" is no part of a mutant"
        );
        assert_eq!(
            error("rule: 4\nwhat: x\nfound as: overlap\n"),
            "it replaces nothing"
        );
        assert_eq!(error("--- find\n"), "line 1: no file was named");
    }

    #[test]
    fn an_edit_that_does_not_end_is_refused() {
        assert_eq!(error("file: a.rs\n--- find\nx\n"), "no \"--- replace\"");
        assert_eq!(
            error("file: a.rs\n--- find\nx\n--- replace\ny\n--- find\nz\n"),
            "line 6: \"--- find\" where \"--- end\" should come first"
        );
    }

    #[test]
    fn an_edit_is_made_where_its_text_stands() {
        let text = "a\n    b\nc\n";
        assert_eq!(
            edit("    b\n", "    d\n").apply(text).unwrap(),
            "a\n    d\nc\n"
        );
        assert_eq!(edit("    b\n", "").apply(text).unwrap(), "a\nc\n");
    }

    #[test]
    fn an_edit_whose_text_is_not_there_exactly_once_is_refused() {
        let error = |text: &str| edit("b\n", "d\n").apply(text).unwrap_err().to_string();
        assert_eq!(
            error("a\n"),
            "crates/core/src/record.rs: not there any more:\nb\n"
        );
        assert_eq!(
            error("b\nb\n"),
            "crates/core/src/record.rs: there 2 times:\nb\n"
        );
        assert_eq!(
            error("ab\n"),
            "crates/core/src/record.rs: not there any more:\nb\n"
        );
    }

    #[test]
    fn an_edit_that_changes_nothing_is_refused() {
        assert!(edit("b\n", "b\n").apply("b\n").is_err());
    }
}
