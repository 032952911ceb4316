//! Whether the simulator finds what is broken.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::copy::{Built, Copy, Finding, Tested, play};
use crate::patch::Mutant;
use crate::sources::Sources;

/// So many schedules of the unbroken copy must pass, else finding something in a broken one says nothing.
const CONTROL_SEEDS: u64 = 2_000;

/// A mutant and what came of it.
pub(crate) struct Judged {
    /// Which.
    pub(crate) mutant: Mutant,
    /// What came of it.
    pub(crate) verdict: Verdict,
    /// How long its build took.
    pub(crate) build: Duration,
}

/// What came of a mutant.
pub(crate) enum Verdict {
    /// Found as what it is.
    Found {
        /// The schedule that did it.
        by: Finding,
        /// What other schedules failed as before that.
        others: Vec<Tally>,
    },
    /// Found by the test of the rule that it breaks.
    FoundByTest(String),
    /// All seeds were played, or all tests run. Found as something else is not found.
    NotFound {
        /// What schedules failed as instead.
        others: Vec<Tally>,
    },
    /// What it would replace is not there any more.
    Stale(String),
    /// It is no program.
    DoesNotCompile(String),
}

/// How often schedules failed as one violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tally {
    /// The violation's.
    pub(crate) name: String,
    /// How often.
    pub(crate) times: usize,
}

impl Judged {
    /// Whether the simulator has done its work.
    pub(crate) const fn passed(&self) -> bool {
        matches!(
            self.verdict,
            Verdict::Found { .. } | Verdict::FoundByTest(_)
        )
    }
}

/// The bench at which all mutants are judged.
pub(crate) struct Judge<'a> {
    /// The workspace.
    pub(crate) root: &'a Path,
    /// Where copies go.
    pub(crate) folder: &'a Path,
    /// The unbroken sources.
    pub(crate) sources: &'a Sources,
    /// Found within so many, or not found.
    pub(crate) seeds: u64,
}

impl Judge<'_> {
    /// Judges them all, several at once, and tells of each as soon as it is known.
    pub(crate) fn judge_all(
        &self,
        mutants: Vec<Mutant>,
        jobs: usize,
        mut tell: impl FnMut(&Judged),
    ) -> Result<Vec<Judged>> {
        let next = AtomicUsize::new(0);
        let (sender, results) = mpsc::channel();
        std::thread::scope(|scope| {
            for worker in 0..jobs.clamp(1, mutants.len().max(1)) {
                let (sender, next, mutants) = (sender.clone(), &next, &mutants);
                scope.spawn(move || {
                    let copy = self.copy(worker);
                    while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let judged = match &copy {
                            Ok(copy) => self
                                .judge(copy, mutant)
                                .with_context(|| format!("mutant {}", mutant.name)),
                            Err(error) => Err(anyhow::anyhow!("{error:#}")),
                        };
                        // Nobody listens after the first error.
                        if sender.send(judged).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(sender);
            let mut all = Vec::new();
            for judged in results {
                let judged = judged?;
                tell(&judged);
                all.push(judged);
            }
            all.sort_by(|a, b| a.mutant.order().cmp(&b.mutant.order()));
            Ok(all)
        })
    }

    /// Plays the copy as it is: whoever finds something there finds it in every mutant.
    pub(crate) fn control(&self) -> Result<Duration> {
        let copy = self.copy(0)?;
        match copy.test(self.sources)? {
            Tested::Refused(words) => bail!("the unpatched copy's tests do not compile:\n{words}"),
            Tested::Ran { failed, .. } if failed.is_empty() => {}
            Tested::Ran { failed, .. } => {
                bail!("tests fail in the unpatched copy: {}", failed.join(", "))
            }
        }
        match copy.build(self.sources)? {
            Built::Refused(words) => bail!("the unpatched copy does not compile:\n{words}"),
            Built::Player { path, took } => {
                let findings = play(&path, CONTROL_SEEDS.min(self.seeds), &[])?;
                match findings.first() {
                    None => Ok(took),
                    Some(Finding { seed, name }) => bail!(
                        "{} of {CONTROL_SEEDS} schedules fail in the unpatched copy (seed {seed}: {name}), so nothing can be said of mutants",
                        findings.len()
                    ),
                }
            }
        }
    }

    fn copy(&self, worker: usize) -> Result<Copy> {
        Copy::new(self.root, self.folder.join(format!("copy-{worker}")))
    }

    fn judge(&self, copy: &Copy, mutant: &Mutant) -> Result<Judged> {
        let judged = |verdict, build| Judged {
            mutant: mutant.clone(),
            verdict,
            build,
        };
        let broken = match self.sources.with(mutant) {
            Ok(broken) => broken,
            Err(error) => {
                let stale = Verdict::Stale(format!("{error:#}"));
                return Ok(judged(stale, Duration::ZERO));
            }
        };
        if let Some(test) = mutant.test() {
            return Ok(match copy.test(&broken)? {
                Tested::Refused(words) => judged(Verdict::DoesNotCompile(words), Duration::ZERO),
                Tested::Ran { failed, took } => judged(weigh_tests(failed, test), took),
            });
        }
        Ok(match copy.build(&broken)? {
            Built::Refused(words) => judged(Verdict::DoesNotCompile(words), Duration::ZERO),
            Built::Player { path, took } => {
                let findings = play(&path, self.seeds, &mutant.found_as)?;
                judged(weigh(findings, &mutant.found_as), took)
            }
        })
    }
}

fn weigh_tests(failed: Vec<String>, expected: &str) -> Verdict {
    if failed.iter().any(|name| name == expected) {
        return Verdict::FoundByTest(expected.to_owned());
    }
    let others = failed.into_iter().map(|name| Tally { name, times: 1 });
    Verdict::NotFound {
        others: others.collect(),
    }
}

fn weigh(findings: Vec<Finding>, expected: &[String]) -> Verdict {
    let mut others: Vec<Tally> = Vec::new();
    for finding in findings {
        if expected.contains(&finding.name) {
            return Verdict::Found {
                by: finding,
                others,
            };
        }
        match others.iter_mut().find(|t| t.name == finding.name) {
            Some(tally) => tally.times += 1,
            None => others.push(Tally {
                name: finding.name,
                times: 1,
            }),
        }
    }
    Verdict::NotFound { others }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(seed: u64, name: &str) -> Finding {
        Finding {
            seed,
            name: name.to_owned(),
        }
    }

    fn tally(name: &str, times: usize) -> Tally {
        Tally {
            name: name.to_owned(),
            times,
        }
    }

    #[test]
    fn what_is_found_as_something_else_is_not_found() {
        let findings = vec![
            finding(3, "busy loop"),
            finding(5, "no leader in time"),
            finding(9, "busy loop"),
        ];
        let Verdict::NotFound { others } = weigh(findings, &["overlap".to_owned()]) else {
            panic!("found");
        };
        assert_eq!(
            others,
            [tally("busy loop", 2), tally("no leader in time", 1)]
        );
    }

    #[test]
    fn what_else_was_seen_before_it_was_found_is_counted() {
        let findings = vec![finding(3, "busy loop"), finding(5, "overlap")];
        let Verdict::Found { by, others } = weigh(findings, &["overlap".to_owned()]) else {
            panic!("not found");
        };
        assert_eq!(by, finding(5, "overlap"));
        assert_eq!(others, [tally("busy loop", 1)]);
    }

    #[test]
    fn another_test_that_fails_has_not_found_it() {
        let failed = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        assert!(matches!(
            weigh_tests(failed(&["row_1", "row_2"]), "row_2"),
            Verdict::FoundByTest(name) if name == "row_2"
        ));
        assert!(matches!(
            weigh_tests(failed(&["row_1"]), "row_2"),
            Verdict::NotFound { others } if others == [tally("row_1", 1)]
        ));
    }

    #[test]
    fn nothing_found_is_not_found() {
        assert!(matches!(
            weigh(Vec::new(), &["overlap".to_owned()]),
            Verdict::NotFound { others } if others.is_empty()
        ));
    }
}
