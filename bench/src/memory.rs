//! What the kernel says of a process.

use std::fs;

use anyhow::Context;
use serde_json::{Value, json};

/// Memory in KiB.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) rss: u64,
    pub(crate) pss: u64,
    /// Pages that no other process maps.
    pub(crate) private: u64,
    pub(crate) threads: u64,
}

impl Memory {
    pub(crate) fn of(pid: u32) -> anyhow::Result<Self> {
        let read = |file: &str| {
            let path = format!("/proc/{pid}/{file}");
            fs::read_to_string(&path).with_context(|| format!("reading {path}"))
        };
        Ok(Self::parse(&read("smaps_rollup")?, &read("status")?))
    }

    fn parse(rollup: &str, status: &str) -> Self {
        Self {
            rss: field(rollup, "Rss"),
            pss: field(rollup, "Pss"),
            private: field(rollup, "Private_Clean") + field(rollup, "Private_Dirty"),
            threads: field(status, "Threads"),
        }
    }

    pub(crate) fn json(self) -> Value {
        let Self {
            rss,
            pss,
            private,
            threads,
        } = self;
        json!({"rss_kib": rss, "pss_kib": pss, "private_kib": private, "threads": threads})
    }
}

fn field(text: &str, name: &str) -> u64 {
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| *key == name)
        .and_then(|(_, value)| value.split_whitespace().next()?.parse().ok())
        .unwrap_or_default()
}

/// The children of a process that run the same program: soloist's guard.
pub(crate) fn same_program_below(pid: u32) -> Vec<u32> {
    let program = fs::read_link(format!("/proc/{pid}/exe")).ok();
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|other| {
        let status = fs::read_to_string(format!("/proc/{other}/status")).unwrap_or_default();
        field(&status, "PPid") == u64::from(pid)
            && fs::read_link(format!("/proc/{other}/exe")).ok() == program
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_is_clean_and_dirty_together() {
        let rollup = "Rss:  900 kB\nPss: 500 kB\nPss_Dirty: 7 kB\nPrivate_Clean: 30 kB\nPrivate_Dirty: 40 kB\n";
        let memory = Memory::parse(rollup, "Name:\tx\nThreads:\t3\n");
        let expected = Memory {
            rss: 900,
            pss: 500,
            private: 70,
            threads: 3,
        };
        assert_eq!(memory, expected);
    }
}
