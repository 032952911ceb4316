//! What was found, for people and for programs.

use std::fmt::Write as _;

use serde_json::{Value, json};

/// How a check came out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// As it should be.
    Good(String),
    /// It works, and could go better.
    Warning(Problem),
    /// It does not work.
    Bad(Problem),
    /// Could not be looked at, and why.
    Unknown(String),
}

/// What is wrong, what to do, and where to read on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) reason: String,
    pub(crate) advice: String,
    pub(crate) read: &'static str,
}

/// Where to read on.
pub(crate) mod read {
    pub(crate) const TROUBLES: &str = "docs/kubernetes.md, When something is wrong";
    pub(crate) const RIGHTS: &str = "docs/kubernetes.md, Rights";
    pub(crate) const CLUSTER: &str = "docs/kubernetes.md, Which cluster, which namespace, who";
    pub(crate) const POD: &str = "docs/kubernetes.md, The Pod";
    pub(crate) const OPERATIONS: &str = "docs/operations.md";
    pub(crate) const SAFETY: &str = "docs/safety.md";
    pub(crate) const PRESTOP: &str = "docs/kubernetes.md, The end of a Pod";
    pub(crate) const CONTRACT: &str = "docs/child-contract.md";
}

impl Verdict {
    pub(crate) fn good(text: impl Into<String>) -> Self {
        Self::Good(text.into())
    }

    pub(crate) fn warning(
        reason: impl Into<String>,
        advice: impl Into<String>,
        read: &'static str,
    ) -> Self {
        let (reason, advice) = (reason.into(), advice.into());
        Self::Warning(Problem {
            reason,
            advice,
            read,
        })
    }

    pub(crate) fn bad(
        reason: impl Into<String>,
        advice: impl Into<String>,
        read: &'static str,
    ) -> Self {
        let (reason, advice) = (reason.into(), advice.into());
        Self::Bad(Problem {
            reason,
            advice,
            read,
        })
    }

    fn mark(&self) -> char {
        match self {
            Self::Good(_) => '✓',
            Self::Warning(_) => '‼',
            Self::Bad(_) => '×',
            Self::Unknown(_) => '?',
        }
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Good(_) => "good",
            Self::Warning(_) => "warning",
            Self::Bad(_) => "bad",
            Self::Unknown(_) => "unknown",
        }
    }
}

#[derive(Debug)]
struct Check {
    group: &'static str,
    what: String,
    verdict: Verdict,
}

/// What the last line says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Summary {
    pub(crate) well: &'static str,
    pub(crate) not_well: &'static str,
}

/// All that was found, in order.
#[derive(Debug, Default)]
pub(crate) struct Report {
    checks: Vec<Check>,
}

impl Report {
    pub(crate) fn add(&mut self, group: &'static str, what: impl Into<String>, verdict: Verdict) {
        let what = what.into();
        self.checks.push(Check {
            group,
            what,
            verdict,
        });
    }

    /// Whether nothing is broken.
    pub(crate) fn is_well(&self) -> bool {
        !self
            .checks
            .iter()
            .any(|check| matches!(check.verdict, Verdict::Bad(_)))
    }

    pub(crate) fn to_text(&self, summary: Summary) -> String {
        let mut text = String::new();
        let mut group = "";
        for check in &self.checks {
            if check.group != group {
                let gap = if group.is_empty() { "" } else { "\n" };
                let _ = writeln!(text, "{gap}{}", check.group);
                group = check.group;
            }
            let _ = writeln!(
                text,
                "{} {}{}",
                check.verdict.mark(),
                shown(&check.what),
                in_words(&check.verdict)
            );
        }
        let count = |word| {
            self.checks
                .iter()
                .filter(|check| check.verdict.word() == word)
                .count()
        };
        let _ = writeln!(
            text,
            "\n{}: {} good, {} warnings, {} bad, {} unknown",
            if self.is_well() {
                summary.well
            } else {
                summary.not_well
            },
            count("good"),
            count("warning"),
            count("bad"),
            count("unknown")
        );
        text
    }

    pub(crate) fn to_json(&self) -> String {
        let checks: Vec<Value> = self.checks.iter().map(Check::to_json).collect();
        let report = json!({"healthy": self.is_well(), "checks": checks});
        format!("{report:#}\n")
    }
}

/// What others have written into a lease or a file does nothing to a terminal.
fn shown(line: &str) -> String {
    let escape = |c: char| match c.is_control() {
        true => c.escape_debug().to_string(),
        false => c.to_string(),
    };
    line.chars().map(escape).collect()
}

fn in_words(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Good(text) if text.is_empty() => String::new(),
        Verdict::Good(text) => format!(": {}", shown(text)),
        Verdict::Unknown(why) => format!("\n    not checked: {}", shown(why)),
        Verdict::Warning(problem) | Verdict::Bad(problem) => {
            let Problem {
                reason,
                advice,
                read,
            } = problem;
            let lines = format!("{reason}\n{advice}\nsee {read}");
            let lines = lines.lines().map(shown);
            lines.map(|line| format!("\n    {line}")).collect()
        }
    }
}

impl Check {
    fn to_json(&self) -> Value {
        let mut check =
            json!({"group": self.group, "check": self.what, "result": self.verdict.word()});
        match &self.verdict {
            Verdict::Good(text) => check["detail"] = json!(text),
            Verdict::Unknown(why) => check["reason"] = json!(why),
            Verdict::Warning(problem) | Verdict::Bad(problem) => {
                check["reason"] = json!(problem.reason);
                check["advice"] = json!(problem.advice);
                check["read"] = json!(problem.read);
            }
        }
        check
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUMMARY: Summary = Summary {
        well: "Nothing is broken",
        not_well: "Something is broken",
    };

    #[test]
    fn what_others_have_written_makes_no_line_and_no_colour() {
        let mut report = Report::default();
        let holder = "x\n✓ all is well\u{1b}[31m";
        report.add("lease", "it is held", Verdict::good(holder));
        let reason = format!("{holder} has not renewed it");
        report.add("lease", "renewed", Verdict::bad(reason, "Look", read::POD));
        let text = report.to_text(SUMMARY);
        assert!(!text.contains('\u{1b}'), "{text}");
        assert!(!text.contains("\n✓ all"), "{text}");
        assert!(
            text.contains(r"✓ it is held: x\n✓ all is well\u{1b}[31m"),
            "{text}"
        );
    }

    #[test]
    fn a_line_each_and_under_it_why_and_what_to_do() {
        let mut report = Report::default();
        report.add("rights", "create leases", Verdict::good(""));
        report.add(
            "rights",
            "update leases",
            Verdict::bad("it may not", "Allow it:\n- a rule", read::RIGHTS),
        );
        report.add(
            "lease",
            "it is renewed",
            Verdict::Unknown("it cannot be read".into()),
        );
        assert_eq!(
            report.to_text(SUMMARY),
            "rights\n✓ create leases\n× update leases\n    it may not\n    Allow it:\n    - a rule\n    see docs/kubernetes.md, Rights\n\n\
             lease\n? it is renewed\n    not checked: it cannot be read\n\nSomething is broken: 1 good, 0 warnings, 1 bad, 1 unknown\n"
        );
        assert!(!report.is_well());
        let json: Value = serde_json::from_str(&report.to_json()).unwrap();
        assert_eq!(json["healthy"], false);
        assert_eq!(json["checks"][1]["result"], "bad");
        assert_eq!(json["checks"][1]["advice"], "Allow it:\n- a rule");
    }

    #[test]
    fn warnings_do_not_break_anything() {
        let mut report = Report::default();
        report.add("pod", "replicas", Verdict::warning("a", "b", read::POD));
        assert!(report.is_well());
        assert!(
            report
                .to_text(SUMMARY)
                .contains("‼ replicas\n    a\n    b\n")
        );
    }
}
