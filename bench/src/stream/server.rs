//! The feed, in a process of its own.

use std::future::pending;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::Args;
use feed::payload::Recipe;
use feed::server::{Faults, Feed, Settings};
use feed::store::Store;
use tokio::net::TcpListener;

use super::client::{self, Report, Way};
use super::process::Process;

const SIZE: usize = 32;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    folder: PathBuf,
}

/// Serves as fast as it can, and says first where.
pub(super) async fn serve(arguments: &Arguments) -> anyhow::Result<()> {
    let settings = Settings {
        rate: 0,
        messages: u64::MAX,
        recipe: Recipe::try_new(1, SIZE)?,
        faults: Faults::default(),
    };
    let store = Store::open(arguments.folder.join("store"))?;
    let feed = Feed::new(store, settings)?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    feed::server::serve(feed, listener, feed::server::transport(None)?, pending()).await?;
    Ok(())
}

/// The feed's process, and how far it has been read.
pub(super) struct Server {
    address: String,
    last: u64,
    // Dropped before the folder that it writes to.
    process: Process,
    _folder: tempfile::TempDir,
}

impl Server {
    pub(super) async fn start(after: u64) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("a folder")?;
        let mut process = Process::start(["server".into(), folder.path().into()])?;
        Ok(Self {
            address: process.line().await.context("the feed")?,
            last: after,
            process,
            _folder: folder,
        })
    }

    /// Has a new client read on from where the last one ended: what is acknowledged does not come again.
    pub(super) async fn read(&mut self, way: Way, messages: u64) -> anyhow::Result<Report> {
        let mut client = Process::start(client::words(way, &self.address, self.last, messages))?;
        // A consumer would try again for ever.
        let line = tokio::select! {
            line = client.line() => line.context("a client")?,
            _ = self.process.line() => bail!("the feed has ended"),
        };
        let report: Report = serde_json::from_str(&line).context("a client's report")?;
        self.last = report.last;
        Ok(report)
    }
}
