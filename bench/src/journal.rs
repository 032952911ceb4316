//! What the children have written down.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::bail;
use tokio::time::{Instant, sleep};

const POLL: Duration = Duration::from_millis(20);

/// A file to which the children of a group write.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
}

/// One child's life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Life {
    pub(crate) replica: String,
    pub(crate) pid: u32,
    pub(crate) start: i128,
    pub(crate) end: Option<i128>,
}

impl Journal {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The lives in the order of their starts.
    pub(crate) fn lives(&self) -> Vec<Life> {
        parse(&fs::read_to_string(&self.path).unwrap_or_default())
    }

    /// Waits until the lives satisfy `enough`.
    pub(crate) async fn wait(
        &self,
        what: &str,
        patience: Duration,
        enough: impl Fn(&[Life]) -> bool,
    ) -> anyhow::Result<Vec<Life>> {
        let deadline = Instant::now() + patience;
        loop {
            let lives = self.lives();
            if enough(&lives) {
                return Ok(lives);
            }
            if Instant::now() >= deadline {
                bail!("{what} did not come within {patience:?}: {lives:?}");
            }
            sleep(POLL).await;
        }
    }
}

/// How many began before the one before them had ended.
pub(crate) fn overlaps(lives: &[Life]) -> usize {
    let overlap = |pair: &&[Life]| pair[0].end.is_none_or(|end| end > pair[1].start);
    lives.windows(2).filter(overlap).count()
}

fn parse(text: &str) -> Vec<Life> {
    let mut lives: Vec<Life> = Vec::new();
    for line in text.lines() {
        let mut words = line.split(' ');
        let (Some(what), Some(replica), Some(pid), Some(time)) = (
            words.next(),
            words.next(),
            words.next().and_then(|word| word.parse().ok()),
            words.next().and_then(|word| word.parse().ok()),
        ) else {
            continue;
        };
        match what {
            "start" => lives.push(Life {
                replica: replica.to_owned(),
                pid,
                start: time,
                end: None,
            }),
            _ => {
                let life = lives.iter_mut().rev().find(|life| life.pid == pid);
                if let Some(life) = life {
                    life.end = Some(time);
                }
            }
        }
    }
    lives.sort_by_key(|life| life.start);
    lives
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_belongs_to_the_start_of_the_same_process() {
        let lives = parse("start a 1 100\nstart b 2 150\nend a 1 200\nhalf a li");
        let told: Vec<_> = lives.iter().map(|l| (l.replica.as_str(), l.end)).collect();
        assert_eq!(told, [("a", Some(200)), ("b", None)]);
    }

    #[test]
    fn a_child_that_starts_before_the_last_one_has_ended_is_an_overlap() {
        let overlaps = |text| overlaps(&parse(text));
        assert_eq!(overlaps("start a 1 100\nend a 1 200\nstart b 2 250"), 0);
        assert_eq!(overlaps("start a 1 100\nstart b 2 150\nend a 1 200"), 1);
        assert_eq!(overlaps("start a 1 100\nstart b 2 150"), 1);
    }
}
