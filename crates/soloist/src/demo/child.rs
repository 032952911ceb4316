//! The child that the demo's replicas run: it consumes the feed, and writes what it handled.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, bail};
use soloist_process::{HeldSignals, Signal};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;

use super::feed::FENCED;
use super::interruption;
use super::journal::{Author, Event, Journal, last_handled};
use super::replicas::{FEED, JOURNAL, LOCK};
use crate::signals;

/// Until it is asked to stop. The position is kept with the output, so that a message that was handled is never asked for again.
pub(super) async fn consume(folder: &Path, held: HeldSignals) -> anyhow::Result<()> {
    let mut signals = signals::listen(Signal::TERM, held)?;
    let journal = Journal::open(&folder.join(JOURNAL), author()?).context("the journal")?;
    let lock = File::create(folder.join(LOCK)).context("the lock")?;
    if lock.try_lock().is_err() {
        journal.write(Event::FoundAnother)?;
        bail!("another child is alive");
    }
    journal.write(Event::Start)?;
    let token = author()?.token;
    let last = last_handled(&folder.join(JOURNAL))?;
    let stream = UnixStream::connect(folder.join(FEED)).await;
    let (read, mut write) = stream.context("the feed")?.into_split();
    write
        .write_all(format!("{token} {last}\n").as_bytes())
        .await?;
    let mut messages = BufReader::new(read).lines();
    loop {
        let message = tokio::select! {
            message = messages.next_line() => message?.context("the feed has ended")?,
            _ = interruption(&mut signals) => return Ok(journal.write(Event::End)?),
        };
        if message == FENCED {
            bail!("the feed has seen a higher token than {token}");
        }
        journal.write(Event::Handled(message.parse()?))?;
        write.write_all(format!("{message}\n").as_bytes()).await?;
    }
}

fn author() -> anyhow::Result<Author> {
    let variable = |name: &str| {
        std::env::var(name)
            .with_context(|| format!("{name} is not set: it is soloist that runs this"))
    };
    Ok(Author {
        replica: variable("SOLOIST_IDENTITY")?,
        pid: std::process::id(),
        token: variable("SOLOIST_TOKEN")?.parse()?,
    })
}
