//! This program, started again.

use std::env;
use std::ffi::OsString;
use std::process::{Child, Stdio};

use anyhow::Context;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::ChildStdout;

use super::Part;
use crate::group::guarded;

/// A part in a process of its own.
pub(super) struct Process {
    output: BufReader<ChildStdout>,
    _killed: Killed,
}

impl Process {
    pub(super) fn start(words: impl IntoIterator<Item = OsString>) -> anyhow::Result<Self> {
        let own = env::current_exe().context("where this program is")?;
        let mut command = guarded(&own);
        command.arg(Part::NAME).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let child = command.spawn().context("starting this program again")?;
        let mut killed = Killed(child);
        let output = killed.0.stdout.take().context("no output")?;
        Ok(Self {
            output: BufReader::new(ChildStdout::from_std(output)?),
            _killed: killed,
        })
    }

    /// The next line that it writes.
    pub(super) async fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        let length = self.output.read_line(&mut line).await?;
        anyhow::ensure!(length > 0, "a part of the benchmark has ended too early");
        Ok(line.trim_end().to_owned())
    }
}

/// Killed and waited for when dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
